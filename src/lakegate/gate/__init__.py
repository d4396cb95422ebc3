"""The lake as an Iceberg REST catalog: ``lakegate serve``, extra ``lakegate[serve]``.

It's a stateless ASGI app over the catalog and the tables' own metadata files. ``contents.py`` decides which commits are
visible and reads them; ``access.py`` authenticates and logs requests; ``app.py`` answers them as Iceberg's REST API;
``server.py`` runs the server.
"""
