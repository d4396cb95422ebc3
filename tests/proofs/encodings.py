"""Texts in Parquet files of every encoding, whose checks dictionaries may answer, compared with a reading in Python.

Where a column has few texts, an audit asks for the rows with any other text alone, so that Iceberg skips the row groups
whose dictionary has none. That must hold whoever wrote the files: with and without dictionaries, with dictionaries that
overflowed halfway through a column, in data pages of both versions, in many row groups, and with bytes that aren't
UTF-8. Some files are added to a table as they are, others are read by an ingest and written again by Spark.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakegate import checks
from lakegate.lake import Lake
from lakegate.model.checks import Check, CheckResult
from lakegate.model.identifiers import TableIdentifier
from lakegate.spark.sessions import CATALOG
from support.lakes import components_of, session_of

_FEW = (
    b"",
    b" ",
    b"a",
    b"A",
    b"ab",
    b"zone-1",
    b"zone-2",
    b"it's",
    b"\\",
    "\u00e9".encode(),
    "\ufffd".encode(),
    b"a\n",
)
_BROKEN = (b"\xff", b"a\xff")  # of which Java and Python make as many characters
_PATTERNS = ("^zone-[0-9]+$", "^.?$", "a", "^[^b]*$", r"\d$")
_WRITTEN = {
    "write.parquet.dict-size-bytes": ("64", "400", "2097152"),
    "write.parquet.page-row-limit": ("10", "100", "20000"),
    "write.parquet.page-size-bytes": ("100", "1048576"),
    "write.parquet.page-version": ("v1", "v2"),
    "write.parquet.row-group-size-bytes": ("500", "134217728"),
    "write.parquet.row-group-check-min-record-count": ("10",),
    "write.parquet.row-group-check-max-record-count": ("50",),
    "write.parquet.dict-encoding-enabled.column.t": ("true", "true", "false"),
    "write.metadata.metrics.default": ("none", "counts", "full", "truncate(16)"),
}
_COLUMNS = "n BIGINT, t STRING, u STRING"

Texts = Sequence[bytes | None]


def judge(lake: Lake, folder: Path, table: str, r: random.Random) -> tuple[list[str], Counter[str]]:
    """Audit one table of texts; return what was wrong, and what was looked at."""
    as_they_are = r.random() < 0.6
    files = [_texts(r, is_any=as_they_are) for _ in range(r.randint(1, 3))]
    paths = [_write(folder / table / f"{number}.parquet", texts, r) for number, texts in enumerate(files)]
    rows = [text for texts in files for text in texts]
    asked = list({str(check): (check, failing) for check, failing in _asked(r, rows)}.values())
    session, name = session_of(components_of(lake)), TableIdentifier.parse(table).sql(CATALOG)
    options = ", ".join(f"'{key}' = '{r.choice(values)}'" for key, values in _WRITTEN.items())
    session.sql(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.{table.partition('.')[0]}")
    session.sql(f"CREATE TABLE {name} ({_COLUMNS}) USING iceberg TBLPROPERTIES ({options})")
    wanted = [check for check, _ in asked]
    if as_they_are:
        source = f"`parquet`.`{folder / table}`"
        session.sql(f"CALL {CATALOG}.system.add_files(table => '{table}', source_table => '{source}')").collect()
        report = lake.audit(table, branch="main", checks=wanted)
    else:
        run = lake.ingest(table, list(map(str, paths)), checks=wanted, on_failure="drop", on_rejected="return")
        assert run.report is not None
        report = run.report
    how = "added" if as_they_are else "ingested"
    seen = Counter({f"verdicts on texts {how}": len(asked)})
    failures = [
        f"{table}, {how}: {found.check}: {found.verdict}, {found.failing_rows} of {found.total_rows}, not {failing} of "
        f"{len(rows)}"
        for (_, failing), found in zip(asked, report.results, strict=True)
        if not _is_right(found, failing, len(rows))
    ]
    return failures, seen


def _is_right(found: CheckResult, failing: int, total: int) -> bool:
    return (found.verdict == "fail", found.failing_rows, found.total_rows) == (failing > 0, failing, total)


def _asked(r: random.Random, rows: Texts) -> Iterator[tuple[Check, int]]:
    there = [text for text in rows if text is not None]
    counted = Counter(there)
    usual = [text for text, _ in counted.most_common(40)]
    for known in (usual, r.sample(usual, r.randint(1, len(usual))) if usual else []):
        values = [text.decode() for text in known if _is_text(text)]
        if values:
            accepted = {value.encode() for value in values}
            yield checks.accepted_values("t", values), sum(text not in accepted for text in there)
            yield checks.not_accepted_values("t", values), sum(text in accepted for text in there)
    if r.random() < 0.3:
        rest = list(counted)
        values = sorted({text.decode() for text in rest if _is_text(text)})[:1_200]
        if values:
            yield (
                checks.accepted_values("u", values),
                sum(text.decode(errors="replace") not in values for text in there),
            )
    for pattern in r.sample(_PATTERNS, 3):
        found = _count(there, partial(_matches, pattern))
        yield checks.matches("t", pattern), len(there) - found
    yield checks.not_match_regex("t", "^zone-"), _count(there, lambda text: text.startswith("zone-"))
    yield checks.not_empty_string("t"), _count(there, lambda text: not text.strip())
    yield checks.length_between("t", 1, 6), _count(there, lambda text: not 1 <= len(text) <= 6)
    yield checks.not_null("t"), len(rows) - len(there)


def _matches(pattern: str, text: str) -> bool:
    return re.search(pattern, text, re.ASCII) is not None


def _count(there: Sequence[bytes], fails: Callable[[str], bool]) -> int:
    return sum(fails(text.decode(errors="replace")) for text in there)


def _is_text(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _texts(r: random.Random, *, is_any: bool) -> Texts:
    """Return a file's texts: few, or first few and then many, with an odd one here and there, of any bytes or not."""
    number = r.choice((1, 40, 400, 3_000))
    pool = r.sample(_FEW, r.randint(1, len(_FEW)))
    if r.random() < 0.3:
        pool = [text for text in pool if text.startswith(b"zone")] or [b"zone-1"]
    rows: list[bytes | None] = [r.choice(pool) for _ in range(number)]
    if r.random() < 0.3:
        half = r.randrange(number)
        rows[half:] = [f"zone-{r.randrange(10**6)}".encode() for _ in rows[half:]]
    if r.random() < 0.3:
        rows[r.randrange(number)] = r.choice((*_FEW, b"odd", "zone-\u00e9".encode(), *(_BROKEN if is_any else ())))
    nulls = r.choice((0, 0, 0, 1, number // 3, number))
    at = r.randint(0, number - nulls)
    rows[at : at + nulls] = [None] * nulls
    return rows


def _write(path: Path, texts: Texts, r: random.Random) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    column = pa.array(texts, pa.binary()).cast(r.choice((pa.string(), pa.large_string())), safe=False)
    plain = pa.array([None if text is None else text.decode(errors="replace") for text in texts], pa.string())
    has_dictionary = r.random() < 0.7
    options: dict[str, Any] = {"use_dictionary": has_dictionary}
    if has_dictionary:
        options["dictionary_pagesize_limit"] = r.choice((20, 200, 2**20))
    else:
        options["column_encoding"] = {"t": r.choice(("PLAIN", "DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"))}
    pq.write_table(
        pa.table({"n": pa.array(range(len(texts)), pa.int64()), "t": column, "u": plain}),
        path,
        row_group_size=r.choice((7, 100, 10_000)),
        data_page_size=r.choice((10, 500, 2**20)),
        write_batch_size=r.choice((5, 1024)),
        data_page_version=r.choice(("1.0", "2.0")),
        write_statistics=r.choice((True, True, ["n"])),
        compression=r.choice(("none", "snappy", "zstd")),
        store_schema=False,
        **options,
    )
    return path
