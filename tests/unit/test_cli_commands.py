"""The commands, run in process against a lake that is made of values."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Self

import jsonschema
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from lakegate.cli import completions
from lakegate.cli.app import App
from lakegate.cli.main import cli
from lakegate.cli.registry import COMMANDS
from lakegate.errors import AuditFailedError, ConflictError, NotFoundError, OutcomeUnknownError, QueryError
from lakegate.local.state import ServiceStatus
from lakegate.model.batch import Batch, CsvOptions, SourceColumn, SourceFile
from lakegate.model.checks import AuditReport, Check, CheckResult
from lakegate.model.files import DataFile
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.plan import IngestPlan
from lakegate.model.refs import Commit, Ref, TableDifference, TablePointer
from lakegate.model.run import Publication, Run, RunError, WriteRequest
from lakegate.model.schema import Column, Schema
from lakegate.model.tables import Snapshot, TableMetadata

SCHEMA = Path(__file__).resolve().parents[2] / "src" / "lakegate" / "schemas" / "ingest-result.schema.json"
HASH = "2e1cfa82b035c26cbbbdae632cea070514eb8b773f616aaeaf668e2f0be8f10d"
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
REQUEST = WriteRequest.model_validate(
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
    )


def report(*results: CheckResult) -> AuditReport:
    return AuditReport(
        run_id=RUN_ID,
        table="nyc.trips",
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
        "table": "nyc.trips",
        "branch": BRANCH,
        "status": status,
        "started_at": START,
        "finished_at": START + timedelta(seconds=3.25),
        "request": REQUEST,
    }
    return Run.model_validate(fields | changes)


PUBLICATION = Publication(run_id=RUN_ID, target="main", commit=HASH, tables=("nyc.trips",), rows=100_000)
PUBLISHED = make_run("published", report=PASSED, publication=PUBLICATION)
REJECTED = make_run("rejected", report=FAILED, branch_kept=True)
DROPPED = make_run("rejected", report=FAILED)
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
ROWS = pa.table(
    {
        "id": pa.array([1, 2], pa.int64()),
        "fare": pa.array([Decimal("2.50"), None], pa.decimal128(10, 2)),
        "ratio": pa.array([float("nan"), 0.5]),
        "at": pa.array([START, None], pa.timestamp("us", tz="UTC")),
        "note": pa.array(['say "hi", you', "plain\x1b[2J"]),
    }
)


class FakeTable:
    metadata = METADATA
    rows = 100_000

    def snapshots(self) -> Sequence[Snapshot]:
        return [SNAPSHOT]

    def files(self) -> Iterator[DataFile]:
        yield DataFile(path="file:///lake/a.parquet", rows=50_000, size_bytes=2500, partition={"pickup_day": START})


class FakeQuery:
    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self.columns = table.column_names

    def to_arrow(self) -> pa.Table:
        return self._table


class FakeLake:
    """Answers every method with a value set beforehand (or raises it), and remembers what it was asked."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.opened_with: dict[str, Any] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
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


class FakeStack:
    def __init__(self, state: str = "running") -> None:
        self.state = state
        self.ups = 0

    def up(self) -> None:
        self.ups += 1

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


@pytest.fixture(autouse=True)
def _in_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".lakegate").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("COLUMNS", raising=False)


def invoke(words: str | Sequence[str], lake: FakeLake | None = None, **given: Any) -> Result:
    fake: Any = lake or FakeLake()
    stack: Any = given.pop("stack", FakeStack())
    stdin = given.pop("stdin", None)

    def connect(home: Path | None, **options: Any) -> Any:
        fake.opened_with = {"home": home, **options}
        return fake

    app = App(connect=connect, local_stack=lambda *_: stack, **given)
    args = words.split() if isinstance(words, str) else list(words)
    return CliRunner().invoke(cli, args, obj=app, input=stdin)


INGEST = ["ingest", "nyc.trips", "trips.parquet"]


# ingest ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("run", "code", "branch", "commit", "published"),
    [
        (PUBLISHED, 0, None, HASH, 100_000),
        (REJECTED, 1, BRANCH, None, 0),
        (DROPPED, 1, None, None, 0),
        (SKIPPED, 0, None, None, 0),
    ],
)
def test_ingest_json_is_one_object_that_fits_its_schema(
    run: Run, code: int, branch: str | None, commit: str | None, published: int
) -> None:
    outcome = invoke([*INGEST, "-o", "json"], FakeLake(ingest=run))
    assert outcome.exit_code == code
    assert outcome.stderr == ""
    told = json.loads(outcome.stdout, parse_constant=pytest.fail)
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(told, schema, cls=jsonschema.Draft202012Validator)
    assert (told["branch"], told["commit"], told["rows"]["published"]) == (branch, commit, published)
    assert told["seconds"] == 3.25
    assert told["status"] == run.status


@pytest.mark.parametrize(
    "broken",
    [
        {"status": "published", "commit": None},
        {"status": "rejected", "commit": "abc"},
        {"status": "maybe"},
        {"extra": 1},
    ],
)
def test_the_schema_refuses_results_that_contradict_themselves(broken: dict[str, Any]) -> None:
    told = json.loads(invoke([*INGEST, "-o", "json"], FakeLake(ingest=PUBLISHED)).stdout)
    validator = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))
    assert validator.is_valid(told)
    assert not validator.is_valid(told | broken)


def test_a_rejected_run_names_column_rows_examples_branch_and_next_commands() -> None:
    outcome = invoke(INGEST, FakeLake(ingest=REJECTED))
    text = outcome.stdout
    assert outcome.exit_code == 1
    assert "rejected" in text
    assert "not_null(passenger_count)" in text
    assert "1,003" in text
    assert "1.00 %" in text
    assert BRANCH in text
    assert f"lakegate query 'SELECT * FROM nyc.trips WHERE passenger_count IS NULL LIMIT 20' --ref {BRANCH}" in text
    for command in (f"diff main {BRANCH}", f"publish {BRANCH}", f"discard {BRANCH}"):
        assert f"lakegate {command}\n" in text
    header = next(line for line in text.splitlines() if "trip_id" in line and "note" in line)
    assert header.split()[0] == "passenger_count"
    assert "Warnings" in text
    assert "in_range(trip_distance, min=0, max=200, severity='warn')" in text


def test_data_cannot_steer_the_terminal() -> None:
    text = invoke(INGEST, FakeLake(ingest=REJECTED)).stdout
    assert "\x1b" not in text
    assert r"a\x1b[31m\nb" in text


def test_a_dropped_branch_is_not_offered() -> None:
    text = invoke(INGEST, FakeLake(ingest=DROPPED)).stdout
    assert "was dropped" in text
    assert "--ref" not in text


def test_next_commands_reach_the_same_lake(tmp_path: Path) -> None:
    home = tmp_path / "my lake"
    home.mkdir()
    lake = FakeLake(ingest=REJECTED)
    text = invoke([*INGEST, "--home", str(home), "--engine", "sc://h:1/;token=s3cret"], lake).stdout
    assert f"lakegate --home '{home}' discard {BRANCH}" in text
    assert "s3cret" not in text
    assert lake.opened_with["home"] == home
    assert lake.opened_with["engine"] == "sc://h:1/;token=s3cret"


def test_a_published_run_tells_rows_and_commit() -> None:
    outcome = invoke(INGEST, FakeLake(ingest=PUBLISHED))
    assert outcome.exit_code == 0
    for part in ("published", "nyc.trips", "100,000 rows", HASH[:12], "3.2 s", "2 checks, passed (2 by file metrics)"):
        assert part in outcome.stdout


def test_a_skipped_run_says_why() -> None:
    outcome = invoke(INGEST, FakeLake(ingest=SKIPPED))
    assert outcome.exit_code == 0
    assert "holds no rows" in outcome.stdout


def test_a_run_that_did_not_end_is_an_error() -> None:
    outcome = invoke(INGEST, FakeLake(ingest=FAILED_RUN))
    assert outcome.exit_code == 2
    assert "Spark went away." in outcome.stderr


def test_ingest_passes_on_all_it_was_given() -> None:
    lake = FakeLake(ingest=PUBLISHED)
    words = (
        "ingest nyc.trips a.csv b.csv -c not_null(id) --check unique(id) --branch b1 --on-failure drop "
        "--partition-by days(pickup) --format csv --delimiter tab --no-header --encoding cp1252 --null-value NA"
    )
    assert invoke(words, lake).exit_code == 0
    assert lake.asked("ingest") == {
        "table": "nyc.trips",
        "paths": ("a.csv", "b.csv"),
        "checks": ("not_null(id)", "unique(id)"),
        "branch": "b1",
        "on_failure": "drop",
        "partition_by": ("days(pickup)",),
        "format": "csv",
        "csv": CsvOptions(header=False, delimiter="\t", encoding="cp1252", null_values=("NA",)),
    }


def test_csv_flags_change_the_tables_settings_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "lakegate.toml").write_text('[tables."nyc.trips".csv]\nquote = "|"\ndelimiter = ";"\n')
    lake = FakeLake(ingest=PUBLISHED)
    invoke([*INGEST, "--encoding", "latin-1"], lake)
    assert lake.asked("ingest")["csv"] == CsvOptions(quote="|", delimiter=";", encoding="latin-1")


def test_without_csv_flags_the_settings_decide() -> None:
    lake = FakeLake(ingest=PUBLISHED)
    invoke(INGEST, lake)
    assert lake.asked("ingest")["csv"] is None


@pytest.mark.parametrize(
    ("flags", "part"),
    [
        ("--delimiter ab", "one character"),
        ("--encoding klingon", "klingon"),
        ("--format parquet --delimiter ;", "do not go with"),
        ("--format xml", "xml"),
    ],
)
def test_wrong_flags_are_usage_errors(flags: str, part: str) -> None:
    outcome = invoke([*INGEST, *flags.split()])
    assert outcome.exit_code == 2
    assert outcome.stdout == ""
    assert part in outcome.stderr


def test_dry_run_plans_and_prints_the_command_that_does_it() -> None:
    plan = IngestPlan(
        request=REQUEST, exists=False, table_schema=METADATA.table_schema, descriptions=("No NULLs.", "In range.")
    )
    lake = FakeLake(plan=plan)
    outcome = invoke([*INGEST, "--check", "not_null(passenger_count)", "--dry-run"], lake)
    assert outcome.exit_code == 0
    assert [name for name, _, _ in lake.calls] == ["plan"]
    for part in ("would create", "days(pickup)", "100,000", "No NULLs."):
        assert part in outcome.stdout
    assert "lakegate ingest nyc.trips trips.parquet --check 'not_null(passenger_count)'\n" in outcome.stdout
    told = json.loads(invoke([*INGEST, "--dry-run", "-o", "json"], FakeLake(plan=plan)).stdout)
    assert (told["exists"], told["rows"], told["checks"][0]["description"]) == (False, 100_000, "No NULLs.")


# audit, publish, discard, runs ----------------------------------------------------------------------------------------


def test_audit_exits_as_the_report_says() -> None:
    words = f"audit nyc.trips --branch {BRANCH} -o json"
    passed = invoke(words, FakeLake(audit=PASSED))
    assert (passed.exit_code, json.loads(passed.stdout)["passed"]) == (0, True)
    lake = FakeLake(audit=FAILED)
    failed = invoke(words, lake)
    assert (failed.exit_code, json.loads(failed.stdout)["passed"]) == (1, False)
    assert lake.asked("audit") == {"branch": BRANCH, "checks": None}
    text = invoke(f"audit nyc.trips --branch {BRANCH}", FakeLake(audit=FAILED)).stdout
    assert "failed" in text
    assert "Rows that fail" in text


def test_publish_and_discard() -> None:
    assert json.loads(invoke("publish b -o json", FakeLake(publish=PUBLISHED)).stdout)["commit"] == HASH
    assert "published" in invoke("publish b", FakeLake(publish=PUBLISHED)).stdout
    assert json.loads(invoke("discard b -o json", FakeLake(discard=None)).stdout)["run_id"] is None
    assert RUN_ID in invoke("discard b", FakeLake(discard=REJECTED)).stdout


def test_runs_lists_filters_and_shows_one() -> None:
    lake = FakeLake(runs=[PUBLISHED, REJECTED, FAILED_RUN], run=REJECTED)
    text = invoke("runs --table nyc.trips --status rejected -n 3", lake).stdout
    assert lake.asked("runs") == {"table": "nyc.trips", "status": "rejected", "limit": 3}
    assert "not_null_passenger_count" in text
    told = json.loads(invoke("runs -o json", FakeLake(runs=[FAILED_RUN])).stdout)
    assert told[0]["error"]["message"] == "Spark went away."
    one = invoke("runs 2026", lake).stdout
    assert "file:///data/trips.parquet" in one
    assert json.loads(invoke("runs 2026 -o json", lake).stdout)["started_at"] == "2026-01-31T07:05:09+00:00"


def test_runs_with_none_prints_no_data() -> None:
    outcome = invoke("runs", FakeLake(runs=[]))
    assert (outcome.exit_code, outcome.stdout, outcome.stderr) == (0, "", "No runs.\n")
    assert json.loads(invoke("runs -o json", FakeLake(runs=[])).stdout) == []
    assert invoke("runs 2026 --table nyc.trips").exit_code == 2


# branch, log, diff, table ---------------------------------------------------------------------------------------------


def test_branch_commands() -> None:
    ref = Ref(name="january", hash=HASH)
    lake = FakeLake(branches=[ref], create_branch=ref, delete_branch=ref)
    assert json.loads(invoke("branch list -o json", lake).stdout) == [ref.model_dump()]
    assert "january" in invoke("branch list", lake).stdout
    invoke(f"branch create january --from other --at {HASH}", lake)
    assert lake.asked("create_branch") == {"source": "other", "at": HASH}
    assert f"lakegate branch create january --at {HASH}" in invoke("branch delete january", lake).stdout


def test_log_shows_full_hashes_and_says_when_there_is_more() -> None:
    outcome = invoke("log -n 3", FakeLake(log=iter(COMMITS)))
    assert outcome.stdout.count("commit 0") == 3
    assert COMMITS[2].hash in outcome.stdout
    assert "earlier commits" in outcome.stderr
    whole = invoke("log -o json", FakeLake(log=iter(COMMITS)))
    assert len(json.loads(whole.stdout)) == 5
    assert whole.stderr == ""


def test_diff_counts_rows_on_both_sides() -> None:
    added = TableDifference(table="nyc.trips", kind="table", left=None, right=POINTER)
    space = TableDifference(table="nyc", kind="namespace", left=None, right=None)
    lake = FakeLake(diff=[added, space], table=FakeTable())
    told = json.loads(invoke("diff main b -o json", lake).stdout)
    assert [(one["change"], one["left"]) for one in told] == [("added", None), ("changed", None)]
    assert told[0]["right"]["rows"] == 100_000
    text = invoke("diff main b", lake).stdout
    assert "+100,000" in text
    assert "same tables" in invoke("diff main b", FakeLake(diff=[])).stderr


def test_table_commands() -> None:
    lake = FakeLake(tables=[METADATA], table=FakeTable())
    listed = json.loads(invoke("table list -o json", lake).stdout)
    assert (listed[0]["table"], listed[0]["rows"], listed[0]["size_bytes"]) == ("nyc.trips", 100_000, 5000)
    assert "5.0 kB" in invoke("table list", lake).stdout
    shown = invoke("table show nyc.trips --ref b --at 2026-01-31", lake).stdout
    assert "passenger_count" in shown
    assert "b at 2026-01-31" in shown
    details = json.loads(invoke("table show nyc.trips -o json", lake).stdout)
    assert details["columns"][0] == {"name": "passenger_count", "type": "long", "required": True}
    files = json.loads(invoke("table files nyc.trips -o json", lake).stdout)
    assert files[0]["partition"] == {"pickup_day": START.isoformat()}
    assert "a.parquet" in invoke("table files nyc.trips", lake).stdout


# query ----------------------------------------------------------------------------------------------------------------


def test_query_json_keeps_what_json_can_and_nulls_the_rest() -> None:
    outcome = invoke(["query", "SELECT 1", "-o", "json"], FakeLake(query=FakeQuery(ROWS)))
    first, second = json.loads(outcome.stdout, parse_constant=pytest.fail)
    assert first == {"id": 1, "fare": "2.50", "ratio": None, "at": START.isoformat(), "note": 'say "hi", you'}
    assert second["at"] is None
    empty = invoke(["query", "SELECT 1", "-o", "json"], FakeLake(query=FakeQuery(ROWS.slice(0, 0))))
    assert json.loads(empty.stdout) == []


def test_query_csv_reads_back() -> None:
    outcome = invoke(["query", "SELECT 1", "-o", "csv"], FakeLake(query=FakeQuery(ROWS)))
    header, first, second = csv.reader(io.StringIO(outcome.stdout))
    assert header == ROWS.column_names
    assert first == ["1", "2.50", "nan", START.isoformat(), 'say "hi", you']
    assert second[1] == ""


def test_query_table_says_what_it_leaves_out() -> None:
    outcome = invoke(["query", "SELECT 1"], FakeLake(query=FakeQuery(pa.table({"n": range(1500)}))))
    assert "1,000 of 1,500 rows" in outcome.stderr
    assert len(outcome.stdout.splitlines()) == 1002
    text = invoke(["query", "SELECT 1"], FakeLake(query=FakeQuery(ROWS))).stdout
    assert "NULL" in text
    assert "\x1b" not in text


def test_query_reads_standard_input() -> None:
    lake = FakeLake(query=FakeQuery(ROWS))
    assert invoke(["query", "-", "--ref", "b", "--at", HASH], lake, stdin="SELECT 2").exit_code == 0
    assert lake.calls[0] == ("query", ("SELECT 2",), {"ref": "b", "at": HASH})
    assert invoke(["query", "-"], lake, stdin="  \n").exit_code == 2


def test_columns_of_one_name_are_not_lost_in_json() -> None:
    twice = pa.table([pa.array([1]), pa.array([2])], names=["a", "a"])
    outcome = invoke(["query", "SELECT 1 a, 2 a", "-o", "json"], FakeLake(query=FakeQuery(twice)))
    assert outcome.exit_code == 2
    assert "'a'" in outcome.stderr
    assert "a,a\n1,2\n" in invoke(["query", "S", "-o", "csv"], FakeLake(query=FakeQuery(twice))).stdout


# stack, generate, config, version, completion -------------------------------------------------------------------------


def test_stack_commands_show_no_token() -> None:
    stack = FakeStack()
    for words in ("up", "status", "status -o json", "up -o json"):
        outcome = invoke(words, stack=stack)
        assert outcome.exit_code == 0
        assert "s3cret" not in outcome.stdout
        assert "sc://localhost:2/;token=…" in outcome.stdout
    assert stack.ups == 2
    assert json.loads(invoke("down -o json").stdout) == {"stopped": ["spark", "nessie"]}
    assert "Nothing was running" in invoke("down", stack=FakeStack("stopped")).stderr
    assert "/l/nessie.log" in invoke("status", stack=FakeStack("unresponsive")).stdout


def test_generate_passes_on_and_offers_the_next_step(tmp_path: Path) -> None:
    asked: dict[str, Any] = {}

    def generate(folder: Path, **options: Any) -> tuple[Path, ...]:
        asked.update(options)
        folder.mkdir()
        (folder / "a.csv").write_text("x\n")
        return (folder / "a.csv",)

    words = "generate out --files 1 --rows 10 --null-rate 0.5 --null-column fare --seed 3 --format csv --force"
    outcome = invoke(words, generate=generate)
    asked.pop("narrator")
    assert asked == {
        "files": 1,
        "rows": 10,
        "null_rate": 0.5,
        "null_columns": ("fare",),
        "seed": 3,
        "format": "csv",
        "overwrite": True,
    }
    assert "lakegate ingest nyc.trips out/a.csv --check 'not_null(passenger_count)'" in outcome.stdout
    assert invoke("generate out --null-rate 2", generate=generate).exit_code == 2


def test_config_show_tells_origins_and_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lakegate.toml").write_text(
        '[catalog]\nuri = "http://u:hunter2@h/api/v2"\ntoken = "hunter2"\n'
        '[tables."nyc.trips"]\nchecks = ["unique(id)"]\n'
    )
    monkeypatch.setenv("LAKEGATE_LOCAL_NESSIE_MEMORY", "1g")
    outcome = invoke("--engine sc://h:1/;token=hunter2 config show -o json")
    told = json.loads(outcome.stdout)
    assert "hunter2" not in outcome.stdout
    assert told["engine.url"] == {"value": "sc://h:1/;token=…", "origin": "flag"}
    assert told["local.nessie_memory"] == {"value": "1g", "origin": "LAKEGATE_LOCAL_NESSIE_MEMORY"}
    assert told["catalog.uri"]["origin"] == "lakegate.toml"
    assert told["ingest.on_failure"] == {"value": "keep", "origin": "default"}
    assert told['tables."nyc.trips".checks'] == {"value": ["unique(id)"], "origin": "lakegate.toml"}
    assert "engine.url" in invoke("config show").stdout
    assert invoke("config path").stdout == f"{tmp_path / 'lakegate.toml'}\n"


def test_a_wrong_settings_file_is_an_error_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / "lakegate.toml").write_text("[engin]\n")
    outcome = invoke("config show")
    assert outcome.exit_code == 2
    assert "did you mean 'engine'" in outcome.stderr


def test_version() -> None:
    assert set(json.loads(invoke("version -o json").stdout)) >= {"lakegate", "python", "pyspark", "pyiceberg"}
    assert invoke("--version").stdout.startswith("lakegate ")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(shell: str) -> None:
    assert "_LAKEGATE_COMPLETE" in invoke(["completion", shell]).stdout


# errors ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (AuditFailedError("no"), 1),
        (NotFoundError("no"), 2),
        (ConflictError("no"), 3),
        (OutcomeUnknownError("no"), 4),
        (KeyboardInterrupt("Branch wap/x was removed."), 130),
        (RuntimeError("bug"), 70),
    ],
)
def test_errors_become_exit_codes_without_traceback(error: BaseException, code: int) -> None:
    outcome = invoke("publish b -o json", FakeLake(publish=error))
    assert outcome.exit_code == code
    assert "Traceback" not in outcome.stderr
    assert "error:" in outcome.stderr
    told = json.loads(outcome.stdout)["error"]
    assert set(told) == {"code", "message", "hint", "context"}
    assert told["message"] in outcome.stderr
    plain = invoke("publish b", FakeLake(publish=error))
    assert (plain.exit_code, plain.stdout) == (code, "")
    assert "Traceback" in invoke("publish b --debug", FakeLake(publish=error)).stderr


def test_hints_and_interruptions_are_told() -> None:
    error = QueryError("Column x does not exist.", hint="Did you mean y?", column="x")
    outcome = invoke("query SELECT", FakeLake(query=error))
    assert outcome.stderr == "error: Column x does not exist.\nhint:  Did you mean y?\n"
    interrupted = invoke("publish b", FakeLake(publish=KeyboardInterrupt("Branch wap/x was removed.")))
    assert "Interrupted. Branch wap/x was removed." in interrupted.stderr


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ("ingset a b", "Did you mean 'ingest'?"),
        ("ingest a b --chek x", "'--check'"),
        ("branch lst", "list"),
        ("ingest", "Missing argument 'TABLE'"),
    ],
)
def test_mistyped_commands_suggest_the_nearest(words: str, part: str) -> None:
    outcome = invoke(words)
    assert outcome.exit_code == 2
    assert part in outcome.stderr
    assert "--help" in outcome.stderr


def test_usage_errors_are_json_too_when_json_was_asked_for() -> None:
    outcome = invoke("ingest nyc.trips --nope -o json")
    assert outcome.exit_code == 2
    assert json.loads(outcome.stdout)["error"]["code"] == "usage"


def test_every_command_has_help_with_examples() -> None:
    for entry in COMMANDS:
        outcome = invoke([entry.name, "-h"])
        assert outcome.exit_code == 0, f"{entry.name}: {outcome.output} {outcome.exception!r}"
        assert "Examples:" in outcome.stdout, entry.name
    text = invoke("--help").stdout
    assert all(f"  {entry.name} " in text and entry.help in text for entry in COMMANDS)


def test_global_options_work_before_and_after_the_command(tmp_path: Path) -> None:
    for words in (["--home", str(tmp_path), "runs"], ["runs", "--home", str(tmp_path)]):
        lake = FakeLake(runs=[])
        assert invoke(words, lake).exit_code == 0
        assert lake.opened_with["home"] == tmp_path
    assert invoke("--home /nowhere/at/all runs").exit_code == 2


# demo -----------------------------------------------------------------------------------------------------------------


def demo(clean: Run, dirty: Run, words: str = "demo") -> tuple[Result, FakeStack, list[dict[str, Any]]]:
    generated: list[dict[str, Any]] = []

    def generate(folder: Path, **options: Any) -> tuple[Path, ...]:
        generated.append({"folder": folder, **options})
        return (folder / "x.parquet",)

    stack = FakeStack()
    branches = [(Ref(name="main", hash=HASH), 200_000), (Ref(name=BRANCH, hash=HASH), 300_000)]
    lake = FakeLake(ingest=[clean, dirty], rows_per_branch=branches)
    return invoke(words, lake, stack=stack, generate=generate), stack, generated


def test_demo_publishes_rejects_and_tells_what_to_try(tmp_path: Path) -> None:
    outcome, stack, generated = demo(PUBLISHED, REJECTED)
    assert outcome.exit_code == 0
    assert stack.ups == 1
    assert [(one["files"], one["null_rate"]) for one in generated] == [(2, 0.0), (1, 0.01)]
    assert generated[0]["folder"] == tmp_path / ".lakegate" / "demo" / "clean"
    for part in ("published", "rejected", "1,003", BRANCH, "300,000", f"lakegate discard {BRANCH}\n"):
        assert part in outcome.stdout
    told = json.loads(demo(PUBLISHED, REJECTED, "demo -o json")[0].stdout)
    assert told["rows_per_branch"][1] == {"branch": BRANCH, "rows": 300_000}


@pytest.mark.parametrize(("clean", "dirty"), [(PUBLISHED, PUBLISHED), (REJECTED, REJECTED), (PUBLISHED, SKIPPED)])
def test_demo_fails_when_the_gate_does_not_hold(clean: Run, dirty: Run) -> None:
    outcome, _, _ = demo(clean, dirty)
    assert outcome.exit_code != 0
    assert "should have been" in outcome.stderr


# completion of names --------------------------------------------------------------------------------------------------


def complete(words: list[str], incomplete: str, lake: FakeLake, stack: FakeStack) -> list[str]:
    from click.shell_completion import ShellComplete  # noqa: PLC0415 - only here

    fake: Any = lake
    handle: Any = stack
    app = App(connect=lambda *_, **__: fake, local_stack=lambda *_: handle)
    found = ShellComplete(cli, {"obj": app}, "lakegate", "_LAKEGATE_COMPLETE").get_completions(words, incomplete)
    return [item.value for item in found]


def test_names_are_completed_when_the_catalog_is_up() -> None:
    lake = FakeLake(tables=[METADATA], branches=[Ref(name="main", hash=HASH)], runs=[PUBLISHED])
    up = FakeStack()
    assert complete(["ingest"], "nyc", lake, up) == ["nyc.trips"]
    assert complete(["publish"], "", lake, up) == ["main"]
    assert complete(["query", "x", "--ref"], "ma", lake, up) == ["main"]
    assert complete(["runs"], "2026", lake, up) == [RUN_ID]
    assert complete([], "in", lake, up) == ["ingest"]


def test_completion_starts_nothing_and_swallows_errors() -> None:
    down = FakeStack("stopped")
    lake = FakeLake(tables=[METADATA], runs=RuntimeError("no journal"))
    assert complete(["ingest"], "", lake, down) == []
    assert complete(["runs"], "", lake, down) == []
    assert (down.ups, [name for name, _, _ in lake.calls]) == (0, ["runs"])


def test_a_slow_catalog_does_not_hold_the_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    import threading  # noqa: PLC0415 - only here

    released = threading.Event()
    monkeypatch.setattr(completions, "_PATIENCE_S", 0.01)

    class Slow(FakeLake):
        def branches(self) -> list[Ref]:
            released.wait(10)
            return [Ref(name="main", hash=HASH)]

    assert complete(["publish"], "", Slow(), FakeStack()) == []
    released.set()
