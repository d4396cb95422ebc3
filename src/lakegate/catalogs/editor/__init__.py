"""Changes of tables by their metadata alone: replays, drops and trims, without an engine.

``editor.py`` does them; ``metadata.py`` and ``manifests.py`` know the documents, ``avro.py`` their container format,
``fit.py`` which of them can be put on top of each other.
"""

from __future__ import annotations

from lakegate.catalogs.editor.editor import IcebergTableEditor

__all__ = ["IcebergTableEditor"]
