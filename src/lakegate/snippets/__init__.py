"""Snippets to read a published table in other engines (``lakegate table connect``).

To add an engine, add a function to ``files.py`` or ``catalogs.py``, a line to the mapping at the end of that module,
and its name below. No snippet contains a secret: each says how the engine finds its credentials.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

Engine: TypeAlias = Literal[
    "pyiceberg",
    "duckdb",
    "polars",
    "daft",
    "spark",
    "trino",
    "dremio",
    "snowflake",
    "athena",
    "redshift",
    "clickhouse",
]
ENGINES: tuple[Engine, ...] = get_args(Engine)
TITLES: dict[str, str] = {
    "pyiceberg": "PyIceberg",
    "duckdb": "DuckDB",
    "polars": "Polars",
    "daft": "Daft",
    "spark": "Spark",
    "trino": "Trino",
    "dremio": "Dremio",
    "snowflake": "Snowflake",
    "athena": "Athena",
    "redshift": "Redshift",
    "clickhouse": "ClickHouse",
}
RUN_HERE: frozenset[str] = frozenset({"pyiceberg", "duckdb", "polars", "daft", "spark", "trino"})
"""Engines in which a test runs the snippets as printed; for Trino, ``make prove`` does."""
