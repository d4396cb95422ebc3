"""Peak memory of reading a table without Spark: streamed, it must not grow with the table's rows."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

from benchmarks.harness import Figure
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import TablePointer

_FILES = 10
_FILE_ROWS = 1_000_000
_FEW = 2
_READ = dedent("""
    import json, sys
    import pyiceberg.io.pyarrow, pyiceberg.table
    from lakegate.iceberg.reader import IcebergTableReader
    from lakegate.model.refs import TablePointer
    from lakegate.table import Table

    table = Table(TablePointer.model_validate_json(sys.argv[2]), IcebergTableReader())
    rows = size = 0
    if sys.argv[1] == "stream":
        for batch in table.to_batches():
            rows, size = rows + batch.num_rows, size + batch.nbytes
    elif sys.argv[1] == "whole":
        found = table.to_arrow()
        rows, size = found.num_rows, found.nbytes
    # Not ru_maxrss, which begins with what the parent had when it made this process.
    [peak] = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")]
    print(json.dumps([int(peak) * 1024, rows, size]))
""")


def measure(home: Path) -> Iterator[Figure]:
    """Yield the peak memory of a stream over ten million rows, against one over two million, and against all of them.

    What the process needs before it reads a row is left out of both.
    """
    few, all_rows = _table(home)
    base, _, _ = _read("nothing", few)
    little, _, _ = _read("stream", few)
    streamed, rows, size = _read("stream", all_rows)
    whole, _, _ = _read("whole", all_rows)
    assert rows == _FILES * _FILE_ROWS
    detail = f"{_mib(streamed - base)} / {_mib(little - base)}, files of {_FILE_ROWS:,} rows"
    yield Figure("memory of a stream, 10M / 2M rows", (streamed - base) / (little - base), 1.5, detail)
    detail = f"{_mib(streamed - base)} / {_mib(size)} of Arrow; to_arrow() {_mib(whole - base)}"
    yield Figure("memory of a stream / size of its rows", (streamed - base) / size, 0.6, detail)


def _table(home: Path) -> tuple[TablePointer, TablePointer]:
    """Return a table after its first files, and after all of them."""
    home.mkdir()
    draw = np.random.default_rng(1)
    words = pa.array([f"word-{number % 997}" for number in range(_FILE_ROWS)])
    catalog = SqlCatalog("bench", uri=f"sqlite:///{home / 'catalog.db'}", warehouse=home.as_uri())
    catalog.create_namespace("bench")
    pointers = []
    table: Any = None
    for file in range(_FILES):
        columns: dict[str, Any] = {"id": pa.array(np.arange(file * _FILE_ROWS, (file + 1) * _FILE_ROWS))}
        columns |= {f"d{at}": pa.array(draw.random(_FILE_ROWS)) for at in range(9)}
        columns |= {f"l{at}": pa.array(draw.integers(0, 1 << 40, _FILE_ROWS)) for at in range(4)}
        columns |= {f"s{at}": words for at in range(3)}
        rows = pa.table(columns)
        if table is None:
            table = catalog.create_table("bench.rows", rows.schema)
        table.append(rows)
        snapshot = table.refresh().current_snapshot()
        pointers.append(
            TablePointer(
                table=TableIdentifier.parse("bench.rows"),
                content_id=None,
                metadata_location=table.metadata_location,
                snapshot_id=snapshot.snapshot_id,
                schema_id=0,
                spec_id=0,
                sort_order_id=0,
            )
        )
    catalog.close()
    return pointers[_FEW - 1], pointers[-1]


def _read(how: str, pointer: TablePointer) -> tuple[int, int, int]:
    """Return the peak memory of a process that reads the table, in bytes, and rows and bytes of what it read."""
    done = subprocess.run(
        [sys.executable, "-c", _READ, how, pointer.model_dump_json()], capture_output=True, text=True, check=True
    )
    peak, rows, size = json.loads(done.stdout)
    return peak, rows, size


def _mib(size: float) -> str:
    return f"{size / (1 << 20):,.0f} MiB"
