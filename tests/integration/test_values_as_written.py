"""Values at the edges of their types: verdicts of real Spark, of manifests, and of exact arithmetic are one."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakegate.checks import validate_checks
from lakegate.checks.audit import answer_from_manifest
from lakegate.checks.questions import FailingRows
from lakegate.checks.registry import find_check
from lakegate.components import Components
from lakegate.errors import AuditFailedError, CheckError, InputError
from lakegate.lake import Lake
from lakegate.model.checks import Check
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import TableAt
from lakegate.model.tables import AddedFiles, AddedRows
from lakegate.spark.sessions import CATALOG
from support.lakes import session_of

pytestmark = pytest.mark.jvm

COLUMNS = {
    "small": "decimal(38, 38)",
    "fine": "decimal(38, 10)",
    "whole": "decimal(38, 0)",
    "single": "float",
    "double": "double",
}
TINY = Decimal("1E-38")
VALUES: dict[str, Sequence[Any]] = {
    "small": (Decimal(0), TINY, -TINY, Decimal("0.1"), Decimal("0.1") + TINY, Decimal("0.5")),
    "fine": (Decimal(0), Decimal("1E-10"), Decimal("-1E-10"), Decimal("1234567890123456789012345678.0000000001")),
    "whole": (Decimal(0), Decimal(1), Decimal("9" * 38), Decimal("-" + "9" * 38)),
    "single": (0.1, 0.3, 0.7, -0.0, 16_777_217.0, 1.5),
    "double": (0.1, 0.1 + 2**-56, 9007199254740992.0, 9007199254740994.0, 9007199254740996.0, -0.0),
}
ENDS: dict[str, Sequence[Any]] = {
    "small": (0, 0.1, "0.1", "1E-38", "-1E-38", "0.10000000000000000000000000000000000001"),
    "fine": (0, "1E-10", "0.00000000005", "1234567890123456789012345678.0000000001"),
    "whole": (0, 0.5, 1, "9" * 38),
    "single": (0, 0.1, 0.3, 0.7, 16_777_216, 16_777_217, 1.5),
    "double": (0, 0.1, 9007199254740993, 9007199254740995, 9007199254740994),
}


def stored(column: str, value: Any) -> Any:
    return struct.unpack("<f", struct.pack("<f", value))[0] if column == "single" else value


def exact(end: Any) -> Decimal:
    """Return the number that was written: of a float, the double that it is in every language."""
    return Decimal(end) if not isinstance(end, float) else Decimal(repr(end))


def as_column(column: str, end: Any) -> Decimal:
    return Decimal(end) if column in ("single", "double") else exact(end)


def breaks(check: Check, value: Any) -> bool:
    (column,) = check.columns
    number = Decimal(stored(column, value))
    if check.kind == "accepted_values":
        listed = check.arguments["values"]
        return number not in {Decimal(stored(column, v)) if isinstance(v, float) else exact(v) for v in listed}
    for end, sign in (("min", 1), ("max", -1)):
        if end in check.arguments:
            distance = (number - as_column(column, check.arguments[end])) * sign
            if distance < 0 or (distance == 0 and not check.arguments.get("inclusive", True)):
                return True
    return False


def checks() -> Iterator[Check]:
    for column, ends in ENDS.items():
        for end in ends:
            for side in ("min", "max"):
                for inclusive in (True, False):
                    yield Check(kind="in_range", columns=(column,), arguments={side: end, "inclusive": inclusive})
    yield Check(kind="accepted_values", columns=("small",), arguments={"values": [0]})
    yield Check(kind="accepted_values", columns=("small",), arguments={"values": ["1E-38", "0.1", 0.5]})
    yield Check(kind="accepted_values", columns=("fine",), arguments={"values": [0, "1E-10"]})
    yield Check(kind="accepted_values", columns=("whole",), arguments={"values": [0, "9" * 38]})
    yield Check(kind="accepted_values", columns=("single",), arguments={"values": [0.1, 1.5]})


def literal(column: str, value: Any) -> str:
    return f"CAST('{value!s}' AS {COLUMNS[column]})"


def test_ends_mean_what_was_written(components: Components, namespace: str) -> None:
    session: Any = session_of(components)  # Spark's own, behind the seam
    table = TableIdentifier.parse(f"{namespace}.numbers")
    name = table.sql(CATALOG)
    rows = [{column: values[i % len(values)] for column, values in VALUES.items()} for i in range(6)]
    session.sql(f"CREATE NAMESPACE {CATALOG}.`{namespace}`")
    session.sql(f"CREATE TABLE {name} ({', '.join(f'{c} {t}' for c, t in COLUMNS.items())}) USING iceberg")
    for some in (rows[:3], rows[3:]):
        values = ", ".join(f"({', '.join(literal(column, row[column]) for column in COLUMNS)})" for row in some)
        session.sql(f"INSERT INTO {name} SELECT /*+ REPARTITION({len(some)}) */ * FROM VALUES {values}")
    pointer = components.catalog.get_table(table, components.catalog.get_ref("main"))
    assert pointer is not None
    schema = components.reader.metadata(pointer).table_schema
    asked: list[Check] = []
    for one in checks():
        with suppress(CheckError):  # no value of the type lies beyond its greatest
            asked += validate_checks([one], schema)
    assert len(asked) > 100
    predicates = []
    for check in asked:
        question = find_check(check.kind).ask(check, schema)
        assert isinstance(question, FailingRows)
        predicates.append(question.predicate)
    added = AddedRows(table=table, ref="main", after_snapshot_id=None, snapshot_id=pointer.snapshot_id)

    found = components.engine.count_failing(added, predicates)

    assert found.total == len(rows)
    wrong = {
        str(check): (failing, expected)
        for check, failing in zip(asked, found.failing, strict=True)
        if failing != (expected := sum(breaks(check, row[check.columns[0]]) for row in rows))
    }
    assert wrong == {}
    files = list(components.reader.files(pointer))
    for check in asked:
        proven = answer_from_manifest(
            find_check(check.kind).ask(check, schema), AddedFiles(tuple(files), complete=True)
        )
        if proven is not None:
            assert not any(breaks(check, row[check.columns[0]]) for row in rows), check


def test_keys_from_before_the_gregorian_calendar(components: Components, lake: Lake, namespace: str) -> None:
    """ORC's statistics of such days are off by up to ten days: as bounds they hide the rows that a key repeats."""
    session: Any = session_of(components)  # as above
    days = ["0001-01-01", "0150-03-01", "1000-02-28", "1500-03-01", "1582-10-04", "1582-10-14", "1582-10-15"]
    session.sql(f"CREATE NAMESPACE {CATALOG}.`{namespace}`")

    def table(name: str, file_format: str, rows: Sequence[str]) -> TableIdentifier:
        made = TableIdentifier.parse(f"{namespace}.{name}")
        session.sql(
            f"CREATE TABLE {made.sql(CATALOG)} (day date, at timestamp_ntz, utc timestamp) USING iceberg "
            f"TBLPROPERTIES ('write.format.default' = '{file_format}')"
        )
        values = ", ".join(f"(date '{d}', timestamp_ntz '{d}', timestamp '{d} 00:00:00+00')" for d in rows)
        # A file for each day, so that bounds have something to leave out.
        spread = f"SELECT /*+ REPARTITION({len(rows)}, day) */ * FROM VALUES {values} AS t(day, at, utc)"
        session.sql(f"INSERT INTO {made.sql(CATALOG)} {spread}")
        return made

    formats = ("orc", "avro")
    others = {file_format: table(file_format, file_format, days) for file_format in formats}
    # One that is off to one side, one to the other, and one that was no day of the older calendar.
    batches = {day: table(f"batch{number}", "parquet", [day]) for number, day in enumerate((days[0], days[4], days[5]))}
    head = components.catalog.get_ref("main")
    wrong = []
    for day, batch in batches.items():
        pointer = components.catalog.get_table(batch, head)
        assert pointer is not None
        rows = AddedRows(table=batch, ref="main", after_snapshot_id=None, snapshot_id=pointer.snapshot_id)
        for file_format in formats if day == days[-2] else formats[:1]:
            theirs = TableAt(table=others[file_format], ref="main", hash=head.hash)
            wrong += [
                (day, file_format, column)
                for column in ("day", "at", "utc")
                if components.engine.count_known(rows, [column], [theirs]).failing != (1, 1)
            ]
    assert wrong == []

    orc = f"{namespace}.orc"
    with pytest.raises(InputError, match=r"has a time before 1677 .* in an ORC file"):
        lake.table(orc).to_arrow()
    with pytest.raises(AuditFailedError), lake.transaction(on_failure="drop") as tx:
        tx.sql(f"INSERT INTO {orc} SELECT * FROM {orc} WHERE day < date '1500-01-01'")
        tx.check(orc, "unique(day, scope='table')", "in_range(day, max='1000-02-27')", "in_range(at, min='0150-03-01')")
    (report,) = tx.run.reports
    assert [result.failing_rows for result in report.results] == [3, 1, 1]


def test_a_time_that_orc_moves_by_a_second_is_refused(lake: Lake, components: Components, namespace: str) -> None:
    session: Any = session_of(components)
    session.sql(f"CREATE NAMESPACE {CATALOG}.`{namespace}`")
    name = f"{namespace}.moved"
    made = TableIdentifier.parse(name).sql(CATALOG)
    orc = "TBLPROPERTIES ('write.format.default' = 'orc')"
    session.sql(f"CREATE TABLE {made} (at timestamp_ntz, utc timestamp) USING iceberg {orc}")
    for at in ("1969-12-31 23:59:58.5", "1969-12-31 23:59:59", "1970-01-01 00:00:00"):
        with lake.transaction() as tx:
            tx.sql(f"INSERT INTO {name} VALUES (timestamp_ntz '{at}', timestamp '{at}Z')")
    written = lake.table(name).to_arrow().column("at").cast(pa.int64()).to_pylist()
    assert set(written) == {-1_500_000, -1_000_000, 0}
    for values in ("(timestamp_ntz '1969-12-31 23:59:59.999998', NULL)", "(NULL, timestamp '1969-12-31 23:59:59.5Z')"):
        with pytest.raises(InputError, match=r"a time in the first second of 1970"), lake.transaction() as tx:
            tx.sql(f"INSERT INTO {name} VALUES {values}")
    with lake.transaction() as tx:
        tx.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('write.format.default' = 'parquet')")
        tx.sql(f"INSERT INTO {name} VALUES (timestamp_ntz '1969-12-31 23:59:59.999998', NULL)")
    assert -2 in lake.table(name).to_arrow().column("at").cast(pa.int64()).to_pylist()


@pytest.mark.parametrize("partition_by", [(), ("x",)])
def test_filters_lose_no_nan_and_no_negative_zero(
    lake: Lake, namespace: str, tmp_path: Path, partition_by: Sequence[str]
) -> None:
    """Iceberg's bounds and partitions leave out NaN, and order -0.0 before 0.0: files that hold them are skipped."""

    def file(name: str, *rows: tuple[int, float]) -> Path:
        ids, numbers = zip(*rows, strict=True)
        pq.write_table(pa.table({"id": ids, "x": numbers}), tmp_path / name)
        return tmp_path / name

    files = [file("1", (1, math.nan), (2, math.nan)), file("2", (3, -0.0), (4, -0.0)), file("3", (5, 0.0), (6, 0.5))]
    known = f"{namespace}.t"
    lake.ingest(known, files, partition_by=partition_by)
    checks = [
        "mean(id, max=3, where='x >= 0')",
        "distinct_count(id, max=7, where='x >= 0')",
        "custom_sql('SELECT * FROM batch WHERE x > 1')",
        "unique(id, scope='table', where='x > 1')",
        "in_range(x, 0, 1)",
    ]
    again = [
        file("4", (1, math.nan), (2, 5.0), (7, math.nan)),
        file("5", (8, -0.0), (9, -0.0)),
        file("6", (10, 0.5), (11, 1.0)),
    ]
    run = lake.ingest(known, again, checks=checks, on_rejected="return")
    assert run.report is not None
    results = {result.check: result for result in run.report.results}
    assert [(one.verdict, one.failing_rows, one.total_rows) for one in results.values()] == [
        ("fail", 0, 7), ("pass", 0, 7), ("fail", 3, 7), ("fail", 2, 3), ("fail", 3, 7)
    ]  # fmt: skip
    assert sorted(example["id"] for example in results["in_range(x, min=0, max=1)"].examples) == [1, 2, 7]
