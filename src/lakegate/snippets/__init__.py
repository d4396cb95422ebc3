"""What to paste into another engine to read a published table (``lakegate table connect``).

An engine is a function in ``files.py`` or ``catalogs.py``, a line in the mapping at that module's end, and its name in
``engines.py``. No snippet holds a secret: each says how the engine gets its credentials by its own means.
"""
