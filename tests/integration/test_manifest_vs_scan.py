"""File metrics never disagree with reading the rows, on files and manifests that Spark wrote."""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.conversions import to_bytes
from pyiceberg.io.pyarrow import DataFileStatistics
from pyiceberg.types import LongType

from lakegate.checks import validate_checks
from lakegate.checks.audit import answer_from_manifest
from lakegate.checks.questions import FailingRows, Finding, RowTotal
from lakegate.checks.registry import find_check
from lakegate.components import Components
from lakegate.errors import CheckError
from lakegate.lake import Lake
from lakegate.model.checks import Check
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import CommitRequest
from lakegate.model.schema import Schema
from lakegate.model.tables import AddedFiles, AddedRows
from lakegate.spark.sessions import CATALOG
from support.lakes import session_of

pytestmark = pytest.mark.jvm

SEED = 20_240_101
FILES = 4
ROWS = 60
NOW = datetime(2024, 3, 1, 12)
_AT_ONCE = 150
_AGAIN = 25
"""Of a table with the same rows as another: how many predicates are counted there, too."""
SPECIAL = (math.nan, math.inf, -math.inf, -0.0, 0.0)

Draw = Callable[[random.Random, int], Any]


def _decimal(scale: int, digits: int) -> Draw:
    # From below zero upwards, file by file.
    return lambda r, file: Decimal(r.randint(-(10**digits), 10**digits) * (file - 1)).scaleb(-scale)


def _float(r: random.Random, file: int) -> float:
    # Special values in the files after the first only: NaN makes bounds useless, which must not go unnoticed.
    return r.choice(SPECIAL) if file > 1 and r.random() < 0.1 else round(r.uniform(-5, 5), 3) + 10 * file


KINDS: dict[str, tuple[str, pa.DataType, Draw]] = {
    "flag": ("boolean", pa.bool_(), lambda r, file: r.random() < 0.5 if file else True),
    "small": ("int", pa.int32(), lambda r, file: r.randint(-3, 3) + 10 * file),
    "id": ("bigint", pa.int64(), lambda r, file: r.choice([-(2**63), 2**63 - 1, 0, file])),
    "ratio": ("float", pa.float32(), _float),
    "score": ("double", pa.float64(), _float),
    "calm": ("double", pa.float64(), lambda r, file: r.uniform(-1, 1) + file),
    "fare": ("decimal(9, 2)", pa.decimal128(9, 2), _decimal(2, 5)),
    "exact": ("decimal(38, 10)", pa.decimal128(38, 10), _decimal(10, 30)),
    "fine": (
        "decimal(38, 20)",
        pa.decimal128(38, 20),
        lambda r, file: Decimal(3_000_000_000) - Decimal(r.randint(0, 1)).scaleb(-20),
    ),
    "day": ("date", pa.date32(), lambda r, file: date(1969, 12, 25) + timedelta(days=r.randint(0, 9) + 100 * file)),
    "at": (
        "timestamp_ntz",
        pa.timestamp("us"),
        lambda r, file: NOW + timedelta(days=file, microseconds=r.randint(0, 99)),
    ),
    "utc": (
        "timestamp",
        pa.timestamp("us", tz="UTC"),
        lambda r, file: datetime(1969, 12, 31, tzinfo=UTC) + timedelta(hours=r.randint(0, 60)),
    ),
    "word": ("string", pa.string(), lambda r, file: r.choice(["a", "b", "", "é", "\U0001f600"])),
    "long_text": (
        "string",
        pa.string(),
        lambda r, file: "sixteen characters and " + r.choice(["more", "\uffff", "z" * 40]),
    ),
    "raw": ("binary", pa.binary(), lambda r, file: bytes(r.randbytes(r.randint(0, 20)))),
    "region": ("string", pa.string(), lambda r, file: f"region-{file % 3}"),
    "zone": ("int", pa.int32(), lambda r, file: file % 2),
}
# How often a column is NULL, in each file.
NULLS = {
    "small": (0, 0.2, 0, 0),
    "calm": (0, 0, 1, 0),
    "exact": (1, 1, 1, 1),
    "word": (0.1, 0, 0, 1),
    "zone": (0, 0, 1, 0),
}
WIDE = [f"n{index:03d}" for index in range(120)]
TABLES = {
    "plain": "",
    "by_identity": "PARTITIONED BY (region, zone)",
    "by_day_and_bucket": "PARTITIONED BY (days(at), bucket(3, id))",
    "no_metrics": "TBLPROPERTIES ('write.metadata.metrics.default' = 'none')",
    "counts_only": "TBLPROPERTIES ('write.metadata.metrics.default' = 'counts')",
    "full_metrics": "TBLPROPERTIES ('write.metadata.metrics.default' = 'full')",
    "mixed_metrics": "TBLPROPERTIES ('write.metadata.metrics.column.small' = 'none', "
    "'write.metadata.metrics.column.calm' = 'counts', 'write.metadata.metrics.column.long_text' = 'truncate(2)')",
}


@dataclass(frozen=True)
class Subject:
    """A table, what its manifests say, and the values its rows really have."""

    rows: AddedRows
    added: AddedFiles
    schema: Schema
    values: dict[str, list[Any]]


def _files(folder: Path) -> Iterator[tuple[Path, pa.Table]]:
    r = random.Random(SEED)
    for file in range(FILES):
        columns = {
            name: pa.array(
                [None if r.random() < NULLS.get(name, (0,) * FILES)[file] else draw(r, file) for _ in range(ROWS)], kind
            )
            for name, (_, kind, draw) in KINDS.items()
        }
        table = pa.table(columns)
        pq.write_table(table, folder / f"{file}.parquet")
        yield folder / f"{file}.parquet", table


def _subject(
    components: Components, name: str, columns: str, clause: str, files: Sequence[tuple[Path, pa.Table]]
) -> Subject:
    table = TableIdentifier.parse(f"manifests.{name}")
    session: Any = session_of(components)  # Spark's own, behind the seam
    session.sql(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.manifests")
    session.sql(f"CREATE TABLE {table.sql(CATALOG)} ({columns}) USING iceberg {clause}")
    for part in (files[:2], files[2:]):
        # A task for each file, and so a data file; two snapshots in all.
        frames = [session.read.parquet(str(path)).coalesce(1) for path, _ in part]
        if frames:
            reduce(lambda left, right: left.union(right), frames).writeTo(table.sql(CATALOG)).append()
    head = components.catalog.get_ref("main")
    pointer = components.catalog.get_table(table, head)
    assert pointer is not None
    snapshots = [snapshot.snapshot_id for snapshot in components.reader.snapshots(pointer)]
    assert len(snapshots) == -(-len(files) // 2)
    whole = pa.concat_tables([content for _, content in files])
    return Subject(
        rows=AddedRows(table=table, ref="main", after_snapshot_id=None, snapshot_id=pointer.snapshot_id),
        added=components.reader.added_files(pointer, snapshots),
        schema=components.reader.metadata(pointer).table_schema,
        values={column: whole[column].to_pylist() for column in whole.column_names},
    )


@pytest.fixture(scope="module")
def subjects(lake: Lake, components: Components, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Subject]:
    folder = tmp_path_factory.mktemp("manifests")
    files = list(_files(folder))
    columns = ", ".join(f"`{name}` {kind}" for name, (kind, _, _) in KINDS.items())
    made = {name: _subject(components, name, columns, clause, files) for name, clause in TABLES.items()}

    wide = pa.table({name: pa.array([index, None, index + 1], pa.int32()) for index, name in enumerate(WIDE)})
    pq.write_table(wide, folder / "wide.parquet")
    columns = ", ".join(f"{name} int" for name in WIDE)
    made["wide"] = _subject(components, "wide", columns, "", [(folder / "wide.parquet", wide)])
    around_the_limit = [*WIDE[:2], *WIDE[97:103], WIDE[-1]]
    for name in set(WIDE) - set(around_the_limit):
        del made["wide"].values[name]
    return made


def _literal(value: Any) -> Any:
    if isinstance(value, (date, datetime)):
        return value.isoformat().replace("+00:00", "Z")
    return str(value) if isinstance(value, Decimal) else value


def _finite(values: Sequence[Any]) -> list[Any]:
    kept = [v for v in values if v is not None and not (isinstance(v, float) and not math.isfinite(v))]
    return sorted(set(kept))


def _candidates(r: random.Random, name: str, values: Sequence[Any], *, texts: bool) -> Iterator[Check]:
    yield Check(kind="not_null", columns=(name,))
    known = _finite(values)
    if not known or isinstance(known[0], bytes):
        return
    literals = [_literal(value) for value in known]
    yield Check(kind="accepted_values", columns=(name,), arguments={"values": literals})
    yield Check(kind="accepted_values", columns=(name,), arguments={"values": literals[:1]})
    yield Check(
        kind="accepted_values", columns=(name,), arguments={"values": r.sample(literals, max(1, len(literals) // 2))}
    )
    for inclusive in (True, False):
        ends = [{"min": literals[0]}, {"max": literals[-1]}, {"min": literals[0], "max": literals[-1]}]
        low, high = sorted(r.sample(range(len(known)), 2)) if len(known) > 1 else (0, 0)
        ends += [{"min": literals[low], "max": literals[high]}, {"min": literals[high]}, {"max": literals[low]}]
        for end in ends:
            yield Check(kind="in_range", columns=(name,), arguments={**end, "inclusive": inclusive})
    for text in _predicates(r, name, known) if texts else ():
        yield Check(kind="sql", columns=(name,), arguments={"predicate": text})
        yield Check(kind="expression_is_true", columns=(name,), arguments={"expression": text})


def _predicates(r: random.Random, name: str, known: Sequence[Any]) -> Iterator[str]:
    if isinstance(known[0], bool):
        yield from (name, f"NOT {name}", f"{name} OR {name} IS NULL")
    if isinstance(known[0], (bool, str, date)):
        return
    low, high = f"{known[0]:f}" if isinstance(known[0], Decimal) else known[0], known[-1]
    there = [low, high, *r.sample(list(known), min(3, len(known)))]
    beside = [0, -1, 0.5, -0.1, 16_777_217, 3_000_000_000]
    texts, others = ([f"{n:f}" if isinstance(n, Decimal) else str(n) for n in some] for some in (there, beside))
    for text in (*texts, *others):
        ways = [f"{text} > {name}", *(f"{name} {operator} {text}" for operator in ("<", "<=", ">", ">=", "=", "<>"))]
        yield from ways if text in texts else r.sample(ways, 3)
    yield from (f"{name} BETWEEN {texts[0]} AND {texts[1]}", f"{name} NOT BETWEEN {texts[0]} AND {texts[1]}")
    yield from (f"{name} IN ({', '.join((*texts, *others))})", f"NOT {name} IN ({texts[0]}, 0)")
    yield from (f"{name} IS NULL", f"NOT ({name} IS NOT NULL)", f"{name} < {texts[0]} AND {name} IS NOT NULL")
    yield from (f"{name} > {texts[1]} OR {name} < {texts[0]}", f"NOT ({name} >= {texts[0]} AND {name} <= {texts[1]})")


def _checks(subject: Subject) -> list[Check]:
    r = random.Random(SEED)
    total = len(next(iter(subject.values.values())))
    # The wide table is about which columns are measured: what is said of integers is tried in the others.
    texts = len(subject.schema.columns) <= len(KINDS)
    made = [
        Check(kind="row_count", arguments=arguments)
        for arguments in ({"min": total}, {"max": total}, {"min": total + 1}, {"max": total - 1})
    ]
    for name, values in subject.values.items():
        for check in _candidates(r, name, values, texts=texts):
            try:
                made += validate_checks([check], subject.schema)
            except CheckError:
                continue  # a range that nothing lies in, booleans that have no order
    return made


def _predicates_of(subject: Subject, checks: Sequence[Check]) -> list[str]:
    questions = (find_check(check.kind).ask(check, subject.schema) for check in checks)
    return list(dict.fromkeys(one.predicate for one in questions if isinstance(one, FailingRows)))


def _count(components: Components, subject: Subject, predicates: Sequence[str]) -> tuple[int, dict[str, int]]:
    """Return the number of rows, and of those for which each predicate is true, by reading them."""
    failing: dict[str, int] = {}
    total = -1
    for start in range(0, len(predicates), _AT_ONCE):
        part = predicates[start : start + _AT_ONCE]
        counted = components.engine.count_failing(subject.rows, part)
        failing |= dict(zip(part, counted.failing, strict=True))
        total = counted.total
    return total, failing


def _opposites(subject: Subject, checks: Sequence[Check]) -> dict[str, tuple[str, int]]:
    """Return predicates ``NOT (p)`` that are NULL just where their column is, each with ``(p)`` and how often it is."""
    found = {}
    for check in checks:
        if check.kind == "expression_is_true" and " NULL" not in check.arguments["expression"]:
            question = find_check(check.kind).ask(check, subject.schema)
            assert isinstance(question, FailingRows)
            of = question.predicate.removeprefix("NOT ")
            found[question.predicate] = (of, subject.values[check.columns[0]].count(None))
    return found


Counted = Callable[[str], tuple[int, dict[str, int]]]


@pytest.fixture(scope="module")
def counted(components: Components, subjects: dict[str, Subject]) -> Counted:
    """What all predicates of a table's checks count in its rows; of a predicate and its opposite, Spark counts one."""

    @functools.cache
    def count(name: str) -> tuple[int, dict[str, int]]:
        subject = subjects[name]
        checks = _checks(subject)
        predicates, opposites = _predicates_of(subject, checks), _opposites(subject, checks)
        total, failing = _count(components, subject, [one for one in predicates if one not in opposites])
        failing |= {one: total - failing[of] - nulls for one, (of, nulls) in opposites.items()}
        return total, {one: failing[one] for one in predicates}

    return count


@pytest.mark.parametrize("name", [*TABLES, "wide"])
def test_never_disagree(components: Components, subjects: dict[str, Subject], counted: Counted, name: str) -> None:
    subject = subjects[name]
    checks = _checks(subject)
    assert len(checks) > 100
    # All tables but the wide one hold the same rows: what is counted in one, some of its predicates in each of the
    # others, which are not the same in any two.
    total, failing = counted("wide" if name == "wide" else "plain")
    if name not in ("wide", "plain"):
        predicates = list(failing)
        some = predicates[list(TABLES).index(name) :: -(-len(predicates) // _AGAIN)]
        assert predicates == _predicates_of(subject, checks)
        assert _count(components, subject, some) == (total, {predicate: failing[predicate] for predicate in some})
    questions = [find_check(check.kind).ask(check, subject.schema) for check in checks]
    truth = [
        question.judge(total) if isinstance(question, RowTotal) else Finding(failing[question.predicate])
        for question in questions
        if isinstance(question, (RowTotal, FailingRows))
    ]
    answers = [answer_from_manifest(question, subject.added) for question in questions]
    wrong = {
        str(check): (answer, true)
        for check, answer, true in zip(checks, answers, truth, strict=True)
        if answer is not None and (answer.verdict, answer.failing_rows) != (true.verdict, true.failing_rows)
    }
    assert wrong == {}
    # The comparison is worth something only if both verdicts occur, and rows were read right.
    assert {true.verdict for true in truth} == {"pass", "fail"}
    nulls = {c.columns[0]: t.failing_rows for c, t in zip(checks, truth, strict=True) if c.kind == "not_null"}
    assert nulls == {column: values.count(None) for column, values in subject.values.items()}


def _answered(subject: Subject, check: Check) -> bool:
    (valid,) = validate_checks([check], subject.schema)
    return answer_from_manifest(find_check(valid.kind).ask(valid, subject.schema), subject.added) is not None


def _range(subject: Subject, name: str) -> Check:
    known = _finite(subject.values[name])
    return Check(kind="in_range", columns=(name,), arguments={"min": _literal(known[0]), "max": _literal(known[-1])})


RANGED = ("small", "id", "calm", "fare", "day", "at", "utc")


def test_ordinary_columns_are_answered_without_reading_them(subjects: dict[str, Subject]) -> None:
    subject = subjects["plain"]
    unanswered = [c for c in KINDS if not _answered(subject, Check(kind="not_null", columns=(c,)))]
    assert unanswered == []
    assert [c for c in RANGED if not _answered(subject, _range(subject, c))] == []
    assert _answered(subject, Check(kind="row_count", arguments={"min": 1}))
    sparse = Check(kind="sql", columns=("fare",), arguments={"predicate": "fare < -99999.99 OR fare > 199999.98"})
    assert _answered(subject, sparse)
    # NaN is in these, and bounds leave it out.
    assert not _answered(subject, _range(subject, "score"))
    assert not _answered(subject, _range(subject, "ratio"))


def _write_as_another(
    components: Components,
    monkeypatch: pytest.MonkeyPatch,
    table: TableIdentifier,
    branch: str,
    claims: dict[str, Any],
    write: Callable[[Any], object],
) -> None:
    """Change a table on a branch by another writer, whose manifests have the measures ``claims``."""
    head = components.catalog.get_ref(branch)
    pointer = components.catalog.get_table(table, head)
    assert pointer is not None
    measured = DataFileStatistics.to_serialized_dict
    monkeypatch.setattr(DataFileStatistics, "to_serialized_dict", lambda self: measured(self) | claims)
    with closing(SqlCatalog("other", uri="sqlite:///:memory:", warehouse="file:///unused")) as catalog:
        catalog.create_namespace("other")
        written = catalog.register_table("other.t", pointer.metadata_location)
        write(written)
        written.refresh()
        snapshot = written.current_snapshot()
        assert snapshot is not None
        update = {"metadata_location": written.metadata_location, "snapshot_id": snapshot.snapshot_id}
        request = CommitRequest(
            branch=branch, base=head.hash, message="miscounted", puts=(pointer.model_copy(update=update),)
        )
        components.catalog.commit(request)


def test_what_another_writer_says_about_its_files_is_no_evidence(
    lake: Lake, components: Components, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that counts NULLs wrongly, as one with a bug does, gets no row with NULL past an audit."""
    table = TableIdentifier.parse("manifests.miscounted")
    lake.ingest(str(table), pa.table({"id": [1, 2]}))
    branch = lake.branches.create("miscounted")
    rows = pa.table({"id": pa.array([3, None], pa.int64())})
    _write_as_another(
        components, monkeypatch, table, branch.name, {"null_value_counts": {1: 0}}, lambda one: one.append(rows)
    )
    report = lake.audit(
        str(table), branch=branch.name, checks=["not_null(id)", "row_count(max=2)", "in_range(id, 1, 3)"]
    )
    assert [(one.verdict, one.evidence, one.failing_rows) for one in report.results[:1]] == [("fail", "scan", 1)]
    assert [one.verdict for one in report.results] == ["fail", "pass", "pass"]
    lake.branches.delete(branch.name)


def test_spark_measures_rows_and_repeats_no_claims_of_another_writer(
    lake: Lake, components: Components, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Iceberg answers min, max and count from manifests, if Spark asks for nothing else of a whole table."""
    table = TableIdentifier.parse("manifests.misjudged")
    lake.ingest(str(table), pa.table({"id": [1, 2]}))
    branch = lake.branches.create("misjudged")
    claims = {"lower_bounds": {1: to_bytes(LongType(), 1)}, "upper_bounds": {1: to_bytes(LongType(), 3)}}
    rows = pa.table({"id": [1, 5000]})
    _write_as_another(components, monkeypatch, table, branch.name, claims, lambda one: one.overwrite(rows))
    report = lake.audit(str(table), branch=branch.name, checks=["max(id, max=10)"])
    assert [(one.verdict, one.detail) for one in report.results] == [("fail", "The greatest value of id is '5000'.")]
    lake.branches.delete(branch.name)


def test_spark_skips_no_rows_by_claims_of_another_writer(
    lake: Lake, components: Components, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Iceberg skips files that can't match a filter: by their metrics, this one has no value."""
    checks = {
        "custom_sql('SELECT * FROM batch WHERE id < 0')": 1,
        "sequential_values(id)": 2,
        "outliers(id, 1)": 1,
        "unique(id, scope='table')": 1,
        "max(id, max=1, where='id < 3')": 0,
    }
    table = TableIdentifier.parse("manifests.skipped")
    lake.ingest(str(table), pa.table({"id": [1, 2]}))
    branch = lake.branches.create("skipped")
    claims = {"value_counts": {1: 4}, "null_value_counts": {1: 4}}
    rows = pa.table({"id": pa.array([-9, 2, 5, None], pa.int64())})
    _write_as_another(components, monkeypatch, table, branch.name, claims, lambda one: one.append(rows))
    # Each of them is a query of its own.
    report = lake.audit(str(table), branch=branch.name, checks=[*checks])
    found = [(one.verdict, one.failing_rows) for one in report.results]
    assert found == [("fail", failing) for failing in checks.values()]
    lake.branches.delete(branch.name)
