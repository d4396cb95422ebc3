"""The lake as an Iceberg REST catalog: ``lakegate serve``, extra ``lakegate[serve]``.

Everybody reads what is published. A writer has an opening: a token for one branch, which it writes to as to any Iceberg
catalog, and which is audited and published when it's sealed. The app is stateless: what it knows is in the catalog, in
the tables' metadata files, and in the openings that it's given.

``app.py`` has the routes. ``access.py`` authenticates and logs requests, with ``openings.py`` for writers.
``reading.py`` answers from ``contents.py``, which decides what is visible. ``writing.py`` has the handlers that write,
by ``commits.py``: ``updates.py`` and ``new_tables.py`` make the new metadata, ``locations.py`` decides where files may
be. ``engine.py`` is the way of lakegate's own Spark to catalogs without branches. ``server.py`` listens. All of them
refuse with ``refusals.py``.
"""
