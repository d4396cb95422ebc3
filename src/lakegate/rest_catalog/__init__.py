"""A read-only Iceberg REST catalog of published tables: ``lakegate serve``, extra ``lakegate[serve]``.

It's a stateless ASGI app over the catalog and the tables' own metadata files, and none of its requests can write.
``contents.py`` decides which commits are visible and reads them; ``app.py`` authenticates requests, answers them as
Iceberg's REST API, logs them, and runs the server.
"""
