"""A lake that is made of values, and the commands run in process against it."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from click.testing import CliRunner, Result

from lakegate.cli.app import App
from lakegate.cli.main import cli
from lakegate.local.state import ServiceStatus
from lakegate.model.batch import Batch, KnownFile, SourceColumn, SourceFile
from lakegate.model.checks import AuditReport, Check, CheckResult
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.maintenance import JournalStatus
from lakegate.model.refs import Commit, TablePointer
from lakegate.model.request import IngestRequest
from lakegate.model.run import Publication, Run, RunError, RunStep, StagedTable
from lakegate.model.schema import Column, Schema
from lakegate.model.tables import DataFile, Snapshot, TableMetadata

if TYPE_CHECKING:
    import pyarrow as pa
    import pytest

HASH = "2e1cfa82b035c26cbbbdae632cea070514eb8b773f616aaeaf668e2f0be8f10d"
HEAD = "9" * 64
BASE = "b" * 64
RUN_ID = "20260131T070509-1a2b3c4d"
BRANCH = f"wap/nyc.trips_{RUN_ID}"
START = datetime(2026, 1, 31, 7, 5, 9, tzinfo=UTC)
NOT_NULL = Check(kind="not_null", columns=("passenger_count",))
IN_RANGE = Check(kind="in_range", columns=("trip_distance",), arguments={"min": 0, "max": 200}, severity="warn")

BATCH = Batch(
    format="parquet",
    files=(SourceFile(uri="file:///data/trips.parquet", size_bytes=1_234_567, version="1", rows=100_000),),
    columns=(SourceColumn(name="passenger_count", type="int64"),),
)
REQUEST = IngestRequest.model_validate(
    {
        "run_id": RUN_ID,
        "table": "nyc.trips",
        "branch": BRANCH,
        "base": HASH,
        "batch": BATCH,
        "checks": (NOT_NULL, IN_RANGE),
        "partition_by": ("days(pickup)",),
    }
)


def result(check: Check, failing: int = 0, examples: Sequence[dict[str, Any]] = ()) -> CheckResult:
    return CheckResult(
        name=check.name,
        check=str(check),
        columns=check.columns,
        severity=check.severity,
        verdict="fail" if failing else "pass",
        failing_rows=failing,
        total_rows=100_000,
        evidence="scan" if failing else "manifest",
        examples=tuple(examples),
        condition=f"{check.columns[0]} IS NULL" if failing and check.kind == "not_null" else None,
    )


def report(*results: CheckResult, table: str = "nyc.trips") -> AuditReport:
    return AuditReport(
        run_id=RUN_ID,
        table=table,
        branch=BRANCH,
        metadata_location="file:///lake/m.json",
        rows=100_000,
        results=results,
        seconds=0.4,
    )


EXAMPLES = [
    {"trip_id": number, "note": "a\x1b[31m\nb", "passenger_count": None, "fare": float("nan"), "_file": "f.parquet"}
    for number in range(3)
]
FAILED = report(result(NOT_NULL, 1003, EXAMPLES), result(IN_RANGE, 2, [{"trip_distance": 301.5, "trip_id": 7}]))
PASSED = report(result(NOT_NULL), result(IN_RANGE))


def make_run(status: str, **changes: Any) -> Run:
    fields = {
        "run_id": RUN_ID,
        "tables": ("nyc.trips",),
        "branch": BRANCH,
        "status": status,
        "started_at": START,
        "finished_at": START + timedelta(seconds=3.25),
        "request": REQUEST,
    }
    return Run.model_validate(fields | changes)


PUBLICATION = Publication(run_id=RUN_ID, target="main", commit=HASH, tables=("nyc.trips",), rows=100_000)
STEPS = (
    RunStep(name="write", started_at=START, finished_at=START + timedelta(seconds=2), outcome="done"),
    RunStep(
        name="audit",
        started_at=START + timedelta(seconds=2),
        finished_at=START + timedelta(seconds=3),
        outcome="done",
    ),
    RunStep(
        name="publish",
        started_at=START + timedelta(seconds=3),
        finished_at=START + timedelta(seconds=3.25),
        outcome="done",
    ),
)
OTHER_RUN = "20260130T010101-99999999"


def known(name: str, run_id: str = OTHER_RUN) -> KnownFile:
    """Return a source file that another run has."""
    file = SourceFile(uri=f"file:///data/{name}", size_bytes=10, version="1", rows=5)
    return KnownFile(file=file, run_id=run_id)


def staged(table: str, **changes: Any) -> StagedTable:
    """Return what a run did to one table; by default it appended 100,000 rows."""
    identifier = TableIdentifier.parse(table)
    pointer = TablePointer(
        table=identifier,
        content_id="c",
        metadata_location="file:///lake/m.json",
        snapshot_id=11,
        schema_id=0,
        spec_id=0,
        sort_order_id=0,
    )
    fields = {
        "run_id": RUN_ID,
        "table": identifier,
        "branch": BRANCH,
        "target": "main",
        "base": BASE,
        "head": HEAD,
        "before": pointer,
        "pointer": pointer,
        "parent_snapshot_id": None,
        "snapshot_ids": (11,),
        "rows": 100_000,
        "data_files": 2,
    }
    return StagedTable.model_validate(fields | changes)


PUBLISHED = make_run("published", reports=(PASSED,), publication=PUBLICATION)
REJECTED = make_run("rejected", reports=(FAILED,), branch_kept=True)
DROPPED = make_run("rejected", reports=(FAILED,))
SKIPPED = make_run("skipped", request=None, branch="", detail="The source file holds no rows; nothing to publish.")
FAILED_RUN = make_run("failed", error=RunError(code="engine", message="Spark went away.", hint="Try again."))

SNAPSHOT = Snapshot(
    snapshot_id=11,
    parent_id=None,
    time=START,
    operation="append",
    summary={
        "total-records": "100000",
        "total-data-files": "2",
        "total-files-size": "5000",
        "total-delete-files": "0",
        "added-records": "100000",
    },
)
METADATA = TableMetadata(
    table=TableIdentifier.parse("nyc.trips"),
    metadata_location="file:///lake/m.json",
    location="file:///lake/trips",
    table_schema=Schema(columns=(Column(name="passenger_count", type="long", required=True),)),
    partition_by=("days(pickup)",),
    snapshot=SNAPSHOT,
)
POINTER = TablePointer(
    table=METADATA.table,
    content_id="c",
    metadata_location="file:///lake/m.json",
    snapshot_id=11,
    schema_id=0,
    spec_id=0,
    sort_order_id=0,
)
COMMITS = [
    Commit(hash=f"{number:064x}", parent=None, message=f"Publish {number}", author="me", time=START, tables=("t",))
    for number in range(5)
]


EMPTY_JOURNAL = JournalStatus(location="/home/.lakegate/journal.db", version="0001", synced=None, runs={}, files=0)


class FakeTable:
    def __init__(self, metadata: TableMetadata = METADATA) -> None:
        self.metadata = metadata

    @property
    def rows(self) -> int | None:
        return self.metadata.rows

    @property
    def rows_at_most(self) -> int | None:
        return self.metadata.rows_at_most

    def snapshots(self) -> Sequence[Snapshot]:
        return [SNAPSHOT]

    def files(self) -> Iterator[DataFile]:
        yield DataFile(path="file:///lake/a.parquet", rows=50_000, size_bytes=2500, partition={"pickup_day": START})

    def to_arrow(self, *, columns: Sequence[str] | None, where: str | None, limit: int) -> pa.Table:
        import pyarrow as pa  # processes of tests start without it

        return pa.table({"asked": [f"{columns} {where} {limit}"], "at": [START]})


class FakeLake:
    """Answers every method with a value set beforehand (or raises it), and remembers what it was asked.

    The answer of ``lake.tags.list()`` is called ``tags_list``.
    """

    def __init__(self, **answers: Any) -> None:
        nothing: dict[str, Any] = {"downstream_deliveries": (), "superseded": {}, "branches_runs": {}}
        self.answers = {**nothing, "maintenance_journal_status": EMPTY_JOURNAL, **answers}
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.opened_with: dict[str, Any] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    @property
    def intake(self) -> Self:
        return self

    def __getattr__(self, name: str) -> Any:
        return _FakePart(self, name) if name in _PARTS else self.answer(name)

    def answer(self, name: str) -> Any:
        answer = self.answers[name]

        def method(*args: Any, **options: Any) -> Any:
            self.calls.append((name, args, options))
            if isinstance(answer, BaseException):
                raise answer
            if isinstance(answer, list) and name == "ingest":
                return answer.pop(0)
            return answer

        return method

    def asked(self, name: str) -> dict[str, Any]:
        [options] = [options for called, _, options in self.calls if called == name]
        return options


_PARTS = ("alerts", "branches", "contracts", "downstream", "files", "maintenance", "quarantine", "tags")


class _FakePart:
    def __init__(self, lake: FakeLake, name: str) -> None:
        self._lake, self._name = lake, name

    def __getattr__(self, name: str) -> Any:
        return self._lake.answer(f"{self._name}_{name}")


class FakeStack:
    def __init__(self, state: str = "running") -> None:
        self.state = state
        self.ups = 0

    def up(self) -> None:
        self.ups += 1

    def has_catalog(self) -> bool:
        return False

    def down(self) -> tuple[str, ...]:
        return ("spark", "nessie") if self.state == "running" else ()

    def status(self) -> tuple[ServiceStatus, ...]:
        nessie = {"name": "nessie", "state": self.state, "log": "/l/nessie.log", "address": "http://127.0.0.1:1/api/v2"}
        spark = {
            "name": "spark",
            "state": self.state,
            "log": "/l/spark.log",
            "address": "sc://localhost:2/;token=s3cret",
            "uptime_s": 61.0,
            "memory_bytes": 320_000_000,
        }
        return (ServiceStatus.model_validate(nessie), ServiceStatus.model_validate(spark))


def invoke(words: str | Sequence[str], lake: Any = None, **given: Any) -> Result:
    fake = lake or FakeLake()
    stack: Any = given.pop("stack", FakeStack())
    stdin = given.pop("stdin", None)

    def connect(home: Path | None, **options: Any) -> Any:
        fake.opened_with = {"home": home, **options}
        return fake

    app = App(connect=connect, local_stack=lambda *_: stack, **given)
    args = words.split() if isinstance(words, str) else list(words)
    return CliRunner().invoke(cli, args, obj=app, input=stdin)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def printed(words: Sequence[str], lake: Any, monkeypatch: pytest.MonkeyPatch, *, columns: int) -> tuple[str, str]:
    """Return what a command prints on a terminal without colors: its standard output and standard error."""
    for name, value in {"COLUMNS": str(columns), "LINES": "50", "TERM": "dumb", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    stack: Any = FakeStack()
    with redirect_stdout(Terminal()) as out, redirect_stderr(Terminal()) as err, suppress(SystemExit):
        cli.main(list(words), obj=App(connect=lambda *_, **__: lake, local_stack=lambda *_: stack))
    return out.getvalue(), err.getvalue()


INGEST = ["ingest", "nyc.trips", "trips.parquet"]
