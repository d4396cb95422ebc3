"""A read-only Iceberg REST catalog of what was published: ``lakegate serve``, extra ``lakegate[serve]``.

An ASGI app over the catalog and the tables' own metadata files. It keeps nothing, and none of its requests can write:
``contents.py`` decides which commits there are to see, and what they hold, ``app.py`` how Iceberg's REST API says it,
``access.py`` who may ask, and ``server.py`` runs it.
"""

from __future__ import annotations
