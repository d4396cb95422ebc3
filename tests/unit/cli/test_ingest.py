"""``lakegate ingest``: its output and exit codes."""

from __future__ import annotations

import json
import traceback
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import jsonschema
import pytest

from lakegate.config import Settings
from lakegate.intake import Intake
from lakegate.lake import Lake
from lakegate.model.batch import Claim, CsvOptions, KnownFile
from lakegate.model.refs import CommitRequest, Ref
from lakegate.model.request import IngestOptions, IngestPlan
from lakegate.model.run import Run
from lakegate.progress import SilentNarrator
from support.cli_support import (
    BATCH,
    BRANCH,
    DROPPED,
    FAILED_RUN,
    HASH,
    INGEST,
    METADATA,
    OTHER_RUN,
    PUBLICATION,
    PUBLISHED,
    REJECTED,
    REQUEST,
    SKIPPED,
    FakeLake,
    invoke,
    known,
    make_run,
    staged,
)
from support.fakes import FakeLakehouse
from support.flow_support import ordered
from support.nessie_answers import Server, answer, catalog

SCHEMA = resources.files("lakegate") / "schemas" / "ingest-result.schema.json"

PARTLY = PUBLISHED.model_copy(update={"skipped_files": (known("a"), known("b"))})
NOTHING_NEW = make_run(
    "skipped",
    branch="",
    skipped_files=(KnownFile(file=BATCH.files[0], run_id=OTHER_RUN),),
    detail="Told by the flow in other words.",
)
REPLAYED = PUBLISHED.model_copy(
    update={
        "publication": PUBLICATION.model_copy(update={"replayed": ("nyc.trips",)}),
        "staged": (staged("nyc.trips"),),
    }
)

pytestmark = pytest.mark.usefixtures("in_a_project")


@pytest.mark.parametrize(
    ("run", "code", "branch", "commit", "published"),
    [
        (PUBLISHED, 0, None, HASH, 100_000),
        (REJECTED, 1, BRANCH, None, 0),
        (DROPPED, 1, None, None, 0),
        (SKIPPED, 0, None, None, 0),
        (PARTLY, 0, None, HASH, 100_000),
        (NOTHING_NEW, 0, None, None, 0),
        (REPLAYED, 0, None, HASH, 100_000),
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


def test_a_rejected_run_shows_column_rows_examples_branch_and_commands() -> None:
    outcome = invoke(INGEST, FakeLake(ingest=REJECTED))
    text = outcome.stdout
    assert outcome.exit_code == 1
    assert "rejected" in text
    assert "not_null(passenger_count)" in text
    assert "1,003" in text
    assert "1.00 %" in text
    assert BRANCH in text
    assert f"lakegate query 'SELECT * FROM nyc.trips WHERE passenger_count IS NULL LIMIT 20' --ref {BRANCH}" in text
    for command in (f"diff main {BRANCH}", f"discard {BRANCH}", f"publish {BRANCH} --accept REASON"):
        assert f"lakegate {command}\n" in text
    header = next(line for line in text.splitlines() if "trip_id" in line and "note" in line)
    assert header.split()[0] == "passenger_count"
    assert "Warnings" in text
    assert "in_range(trip_distance, min=0, max=200)" in text


def test_a_rejected_run_says_until_when_its_branch_is_kept() -> None:
    run = REJECTED.model_copy(update={"branch_until": datetime(2026, 2, 2, 7, tzinfo=UTC)})
    text = " ".join(invoke(INGEST, FakeLake(ingest=run)).stdout.split())
    assert f"stays on branch {BRANCH} until 2026-02-02T07:00:00Z; main is unchanged" in text


def test_data_cannot_control_the_terminal() -> None:
    text = invoke(INGEST, FakeLake(ingest=REJECTED)).stdout
    assert "\x1b" not in text
    assert r"a\x1b[31m\nb" in text


def test_next_commands_reach_the_same_lake(tmp_path: Path) -> None:
    home = tmp_path / "my lake"
    home.mkdir()
    lake = FakeLake(ingest=REJECTED)
    text = invoke([*INGEST, "--home", str(home), "--engine", "sc://h:1/;token=s3cret"], lake).stdout
    assert f"lakegate --home '{home}' discard {BRANCH}" in text
    assert "s3cret" not in text
    assert lake.opened_with["home"] == home
    assert lake.opened_with["engine"] == "sc://h:1/;token=s3cret"


def test_a_published_run_shows_rows_and_commit() -> None:
    outcome = invoke(INGEST, FakeLake(ingest=PUBLISHED))
    assert outcome.exit_code == 0
    for part in ("published", "nyc.trips", "100,000 rows", HASH[:12], "3.2 s", "2 checks, passed (2 by file metrics)"):
        assert part in outcome.stdout


def test_a_run_that_did_not_end_is_an_error() -> None:
    outcome = invoke(INGEST, FakeLake(ingest=FAILED_RUN))
    assert outcome.exit_code == 2
    assert "Spark went away." in outcome.stderr


def test_ingest_passes_all_options_on() -> None:
    lake = FakeLake(ingest=PUBLISHED)
    words = (
        "ingest nyc.trips a.csv b.csv -c not_null(id) --check unique(id) --branch b1 --on-failure drop "
        "--partition-by days(pickup) --format csv --delimiter tab --no-header --encoding cp1252 --null-value NA "
        "--decimal , --numbers accounting --date-format %d.%m.%Y --skip-lines 1 --skip-footer 2 --types a=double "
        "--on-changed replace --on-busy skip --column old=new "
        "--mode upsert --key id --key n --delete-when gone"
    )
    assert invoke(words, lake).exit_code == 0
    options = IngestOptions(
        checks=("not_null(id)", "unique(id)"),
        branch="b1",
        on_failure="drop",
        on_changed="replace",
        on_busy="skip",
        columns={"old": "new"},
        mode="upsert",
        key=("id", "n"),
        delete_when="gone",
        partition_by=("days(pickup)",),
        format="csv",
        csv=CsvOptions(
            header=False,
            delimiter="\t",
            encoding="cp1252",
            null_values=("NA",),
            decimal=",",
            numbers="accounting",
            date_format="%d.%m.%Y",
            skip_lines=1,
            skip_footer=2,
            types={"a": "double"},
        ),
    )
    assert lake.calls == [("ingest", ("nyc.trips", ("a.csv", "b.csv"), options), {})]


def test_a_query_comes_in_place_of_paths() -> None:
    lake = FakeLake(ingest=PUBLISHED, query="the query")
    assert invoke(["ingest", "nyc.daily", "--sql", "SELECT 1 AS a"], lake).exit_code == 0
    assert lake.calls == [
        ("query", ("SELECT 1 AS a",), {}),
        ("ingest", ("nyc.daily", "the query", IngestOptions()), {}),
    ]
    for words in (["ingest", "nyc.orders"], ["ingest", "nyc.orders", "a.csv", "--sql", "SELECT 1"]):
        refused = invoke(words, lake)
        assert (refused.exit_code, "Pass either files, or --sql" in refused.stderr) == (2, True)


@pytest.mark.parametrize(
    ("flags", "part"),
    [
        ("--delimiter ab", "one character"),
        ("--encoding klingon", "klingon"),
        ("--format parquet --delimiter ;", "can't be combined with"),
        ("--format xml", "xml"),
        ("--on-changed keep", "'refuse', 'append', 'replace'"),
        ("--on-busy fail", "'wait', 'skip'"),
        ("--column fare", "isn't OLD=NEW"),
    ],
)
def test_invalid_flags_are_usage_errors(flags: str, part: str) -> None:
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


# files that aren't new -----------------------------------------------------------------------------------------------


def test_skipped_files_are_shown_with_the_run_that_published_them() -> None:
    outcome = invoke(INGEST, FakeLake(ingest=PARTLY, run=PUBLISHED))
    assert outcome.exit_code == 0
    assert f"2 of 3 files skipped: published by run {OTHER_RUN}\n" in outcome.stdout
    told = json.loads(invoke([*INGEST, "-o", "json"], FakeLake(ingest=PARTLY)).stdout)
    assert told["skipped_files"] == [{"file": f"file:///data/{name}", "run_id": OTHER_RUN} for name in "ab"]


def test_a_run_with_nothing_new_is_skipped_and_no_failure() -> None:
    outcome = invoke(INGEST, FakeLake(ingest=NOTHING_NEW, run=PUBLISHED))
    assert outcome.exit_code == 0
    assert outcome.stdout.startswith(f"skipped  nyc.trips  already published by run {OTHER_RUN}\n")


def test_a_rebased_run_says_what_it_was_rebased_onto() -> None:
    assert "rebased onto newer changes to nyc.trips" in invoke(INGEST, FakeLake(ingest=REPLAYED)).stdout
    assert "rebased" not in invoke(INGEST, FakeLake(ingest=PUBLISHED)).stdout


@pytest.mark.parametrize(
    ("what", "words", "told"),
    [
        ("published", "", ("would skip all 1 file", f"published by run {OTHER_RUN}: would be skipped")),
        ("busy", "", ("100,000 rows; nothing written", "is ingesting it: would wait for it")),
        ("busy", "--on-busy skip", ("would skip all 1 file", "is ingesting it: would be skipped")),
        ("changed", "", ("would refuse 1 file", "with other content: would be refused")),
        ("changed", "--on-changed append", ("100,000 rows; nothing", "its rows would be added")),
        ("changed", "--on-changed replace", ("100,000 rows; nothing", "its rows would replace the old ones")),
    ],
)
def test_dry_run_shows_what_is_known_about_each_file(what: str, words: str, told: tuple[str, ...]) -> None:
    file = KnownFile(file=BATCH.files[0], run_id=OTHER_RUN)
    plan = IngestPlan(
        request=REQUEST.model_copy(update={"checks": ()}),
        exists=True,
        table_schema=METADATA.table_schema,
        known=Claim(**{what: (file,)}),
    )
    words = f"{words} --dry-run"
    outcome = invoke([*INGEST, *words.split()], FakeLake(plan=plan))
    assert outcome.exit_code == 0
    for part in told:
        assert part in outcome.stdout
    payload = json.loads(invoke([*INGEST, *words.split(), "-o", "json"], FakeLake(plan=plan)).stdout)
    lists = {name: payload[f"{name}_files"] for name in ("published", "busy", "changed")}
    entry = {"file": BATCH.files[0].uri, "run_id": OTHER_RUN}
    assert lists == {name: [entry] if name == what else [] for name in lists}


def test_dry_run_uses_the_settings_without_flags(in_a_project: Path) -> None:
    (in_a_project / "lakegate.toml").write_text('[ingest]\non_busy = "skip"\non_changed = "append"\n')
    plan = IngestPlan(
        request=REQUEST.model_copy(update={"checks": ()}), exists=True, table_schema=METADATA.table_schema
    )
    told = json.loads(invoke([*INGEST, "--dry-run", "-o", "json"], FakeLake(plan=plan)).stdout)
    assert (told["on_busy"], told["on_changed"]) == ("skip", "append")
    flags = ["--on-busy", "wait", "--on-changed", "replace", "--dry-run", "-o", "json"]
    told = json.loads(invoke([*INGEST, *flags], FakeLake(plan=plan)).stdout)
    assert (told["on_busy"], told["on_changed"]) == ("wait", "replace")


def test_the_command_is_nine_calls_from_the_http_request(
    house: FakeLakehouse, in_a_project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def nessie(request: httpx.Request) -> httpx.Response:
        ours = [one for one in traceback.extract_stack() if "/src/lakegate/" in one.filename]
        command = next(number for number, one in enumerate(ours) if one.filename.endswith("cli/commands/ingest.py"))
        asked.append([f"{Path(one.filename).stem}.{one.name}" for one in ours[command:]])
        return Server(answer({}, 403))(request)

    def commit(request: CommitRequest) -> Ref:
        return catalog(nessie).commit(request) if request.branch == "main" else in_memory(request)

    in_memory = house.catalog.commit
    monkeypatch.setattr(house.catalog, "commit", commit)
    monkeypatch.setattr(Intake, "request", lambda *_: ordered(house))
    components: Any = SimpleNamespace(
        close=lambda: None,
        context=house.context,
        home=in_a_project,
        journal=house.journal,
        narrator=SilentNarrator(),
        open_engine_ahead=lambda _: None,
        settings=Settings(),
    )
    lake: Any = Lake(components)
    invoke("ingest nyc.trips trips.parquet", lake)
    assert asked[0] == [
        "ingest.ingest",  # the command
        "intake.ingest",
        "ingest.ingest",  # write–audit–publish
        "ingest.advance",
        "ingest.publish_audited",
        "publish.publish",
        "commit_loop.commit_change",
        "commit_loop._commit",
        "catalog.commit",
        "client.change",
    ]
