"""All the seams, a module a side. Each is one technology's room; the flow knows nothing else of them."""

from __future__ import annotations

from lakegate.protocols.catalog import Catalog, FileStore, TableEditor, TableReader
from lakegate.protocols.engine import Engine, EngineTransaction
from lakegate.protocols.journal import Journal
from lakegate.protocols.narration import Narrator, Step
from lakegate.protocols.notifier import Notifier

__all__ = [
    "Catalog",
    "Engine",
    "EngineTransaction",
    "FileStore",
    "Journal",
    "Narrator",
    "Notifier",
    "Step",
    "TableEditor",
    "TableReader",
]
