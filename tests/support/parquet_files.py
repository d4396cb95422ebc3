"""Parquet files as other producers write or break them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def write_flipped(path: Path, *, wrong: int) -> None:
    """Write ``id`` from 0 to 999 with page checksums, and flip a bit of one of them."""
    ids = pa.table({"id": range(1_000)})
    pq.write_table(
        ids, path, compression="none", use_dictionary=False, write_statistics=False, write_page_checksum=True
    )
    content = bytearray(path.read_bytes())
    content[content.index(wrong.to_bytes(8, "little")) + 1] ^= 1
    path.write_bytes(content)
