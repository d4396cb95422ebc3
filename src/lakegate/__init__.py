"""lakegate: write–audit–publish for Iceberg lakehouses.

Example:
    .. code-block:: python

        import lakegate

        with lakegate.connect() as lake:
            run = lake.ingest("nyc.trips", "trips/*.parquet", checks=["not_null(passenger_count)"])
            print(run.status, run.report)

Importing this package loads nothing heavy: each name is imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakegate.errors import LakegateError
    from lakegate.lake import Lake, connect
    from lakegate.model.batch import CsvOptions
    from lakegate.model.checks import AuditReport, Check, CheckResult
    from lakegate.model.run import Run
    from lakegate.table import Query, RowDifference, Table

__version__ = "0.1.0"
__all__ = [
    "AuditReport",
    "Check",
    "CheckResult",
    "CsvOptions",
    "Lake",
    "LakegateError",
    "Query",
    "RowDifference",
    "Run",
    "Table",
    "__version__",
    "connect",
]

_MODULES = {
    "AuditReport": "lakegate.model.checks",
    "Check": "lakegate.model.checks",
    "CheckResult": "lakegate.model.checks",
    "CsvOptions": "lakegate.model.batch",
    "Lake": "lakegate.lake",
    "LakegateError": "lakegate.errors",
    "Query": "lakegate.table",
    "RowDifference": "lakegate.table",
    "Run": "lakegate.model.run",
    "Table": "lakegate.table",
    "connect": "lakegate.lake",
}


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        msg = f"module 'lakegate' has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return sorted(__all__)
