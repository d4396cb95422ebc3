"""The command line as a process on the real stack: what it prints where, and how it ends."""

from __future__ import annotations

import csv
import io
import json
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jsonschema
import pytest

from lakegate.errors import ExitCode
from lakegate.lake import Lake
from lakegate.local.state import StackState
from lakegate.model.run import Run
from support.e2e_support import Cli, write_trips

pytestmark = pytest.mark.jvm


@pytest.fixture(scope="module")
def cli(home: Path, stack: StackState) -> Cli:
    return Cli(home)


@pytest.fixture(scope="module")
def result_schema() -> dict[str, Any]:
    text = (resources.files("lakegate") / "schemas" / "ingest-result.schema.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    jsonschema.Draft202012Validator.check_schema(schema)
    return schema


@pytest.fixture
def published(lake: Lake, namespace: str, tmp_path: Path) -> str:
    """A table with 20 published rows."""
    table = f"{namespace}.trips"
    assert lake.ingest(table, write_trips(tmp_path / "first.parquet", 20)).status == "published"
    return table


@pytest.fixture(scope="module")
def stable(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table like :func:`published`, for tests that don't change it."""
    table = "stable.trips"
    source = write_trips(tmp_path_factory.mktemp("stable") / "first.parquet", 20)
    assert lake.ingest(table, source).status == "published"
    return table


@pytest.fixture
def rejected(lake: Lake, published: str, tmp_path: Path) -> Run:
    """A run into that table whose branch is kept: 3 of its 30 rows have no passengers."""
    source = write_trips(tmp_path / "b.parquet", 30, nulls=3)
    run = lake.ingest(published, source, checks=["not_null(passengers)"], on_rejected="return")
    assert (run.status, run.branch_kept) == ("rejected", True)
    return run


def test_ingest_prints_one_object_of_its_schema(
    cli: Cli, namespace: str, tmp_path: Path, result_schema: dict[str, Any]
) -> None:
    table = f"{namespace}.trips"
    checks = ("--check", "not_null(passengers)", "--check", "unique(id, severity='warn')", "-c", "row_count(min=1)")
    clean = cli.run("ingest", table, write_trips(tmp_path / "a.parquet", 20), *checks, "-o", "json")
    dirty = cli.run("ingest", table, write_trips(tmp_path / "b.parquet", 30, nulls=3), *checks, "-o", "json")
    empty = cli.run("ingest", table, write_trips(tmp_path / "c.parquet", 0), *checks, "-o", "json")
    assert [one.returncode for one in (clean, dirty, empty)] == [0, 1, 0]
    assert [one.stderr for one in (clean, dirty, empty)] == ["", "", ""]
    results = [json.loads(one.stdout) for one in (clean, dirty, empty)]
    for result in results:
        jsonschema.validate(result, result_schema)

    was_published, was_rejected, was_skipped = results
    head = cli.branches()["main"]
    assert (was_published["status"], was_published["commit"], was_published["branch"]) == ("published", head, None)
    assert was_published["rows"] == {"source": 20, "published": 20, "removed": 0, "quarantined": 0}
    assert (was_rejected["status"], was_rejected["commit"]) == ("rejected", None)
    assert was_rejected["rows"] == {"source": 30, "published": 0, "removed": 0, "quarantined": 0}
    assert was_rejected["branch"] in cli.branches()
    failed = next(check for check in was_rejected["checks"] if check["verdict"] == "fail")
    assert (failed["columns"], failed["failing_rows"], failed["total_rows"]) == (["passengers"], 3, 30)
    assert {example["id"] for example in failed["examples"]} == {0, 1, 2}
    assert (was_skipped["status"], was_skipped["rows"]) == (
        "skipped",
        {"source": None, "published": 0, "removed": 0, "quarantined": 0},
    )
    assert cli.count(table) == 20


def test_ingest_for_people(cli: Cli, namespace: str, tmp_path: Path) -> None:
    # The servers are on this machine: a proxy that the environment names, and that answers nothing, isn't asked.
    proxies = {f"{name}_proxy": "http://127.0.0.1:9" for name in ("http", "https", "grpc", "all")}
    unset = dict.fromkeys(("no_proxy", "NO_PROXY", "no_grpc_proxy"), "")
    cli = Cli(cli.home, {**unset, **proxies, **{name.upper(): proxy for name, proxy in proxies.items()}})
    table = f"{namespace}.trips"
    source = write_trips(tmp_path / "a.parquet", 30, nulls=3)
    rejected = cli.run("ingest", table, source, "--check", "not_null(passengers)", "--branch", f"look/{namespace}")
    assert (rejected.returncode, rejected.stderr) == (1, "")
    for word in ("rejected", table, "passengers", " 3 ", "30", f"look/{namespace}", "lakegate", "discard"):
        assert word in rejected.stdout, word
    published = cli.run("ingest", table, source, "--check", "not_null(id)")
    assert (published.returncode, published.stderr) == (0, "")
    assert "published" in published.stdout
    assert "30 rows" in published.stdout


def test_a_dry_run_touches_nothing(cli: Cli, namespace: str, stable: str, tmp_path: Path) -> None:
    source = write_trips(tmp_path / "a.parquet", 30, nulls=3)
    before, runs = cli.branches(), cli.json("runs", "--limit", "1000")
    plan = cli.json("ingest", stable, source, "-c", "not_null(passengers)", "--dry-run")
    shown = cli.run("ingest", f"{namespace}.new", source, "-c", "not_null(id)", "--partition-by", "id", "--dry-run")
    wrong = cli.run("ingest", stable, source, "-c", "not_null(passenger)", "--dry-run")
    assert stable in json.dumps(plan)
    assert (shown.returncode, shown.stderr, wrong.returncode) == (0, "", 2)
    assert f"{namespace}.new" in shown.stdout
    assert "Did you mean 'passengers'?" in wrong.stderr
    assert (cli.branches(), cli.json("runs", "--limit", "1000")) == (before, runs)
    assert cli.count(f"{namespace}.new") is None


def test_query_in_all_formats(cli: Cli, stable: str) -> None:
    sql = f"SELECT id, passengers, pickup, note FROM {stable} WHERE id < 3 ORDER BY id"
    rows = cli.json("query", sql)
    assert [row["id"] for row in rows] == [0, 1, 2]
    assert rows[1] == {"id": 1, "passengers": 1, "pickup": "2024-01-02T07:00:00", "note": "trip 1"}

    text = cli.run("query", sql, "--output", "csv").stdout
    assert list(csv.DictReader(io.StringIO(text)))[1] == {
        "id": "1",
        "passengers": "1",
        "pickup": "2024-01-02T07:00:00",
        "note": "trip 1",
    }
    shown = cli.run("query", "-", stdin=sql)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "trip 2" in shown.stdout
    assert cli.json("query", f"SELECT * FROM {stable} WHERE id < 0") == []


def test_query_on_a_branch_and_in_the_past(cli: Cli, lake: Lake, published: str, tmp_path: Path) -> None:
    count = f"SELECT count(*) AS n FROM {published}"
    (before,) = cli.json("log", "--limit", "1")
    lake.ingest(published, write_trips(tmp_path / "b.parquet", 5, nulls=1))
    dirty = lake.ingest(
        published,
        write_trips(tmp_path / "c.parquet", 7, nulls=1),
        checks=["not_null(passengers)"],
        on_rejected="return",
    )

    assert cli.json("query", count) == [{"n": 25}]
    assert cli.json("query", count, "--ref", dirty.branch) == [{"n": 32}]
    assert cli.json("query", count, "--at", before["time"]) == [{"n": 20}]
    assert cli.json("query", count, "--ref", before["hash"]) == [{"n": 20}]
    assert cli.json("table", "show", published, "--at", before["hash"])["rows"] == 20
    assert cli.json("table", "show", published, "--ref", dirty.branch)["rows"] == 32


def test_a_rejected_branch_is_looked_at_again_and_accepted(
    cli: Cli, published: str, rejected: Run, result_schema: dict[str, Any]
) -> None:
    branch = rejected.branch
    assert cli.run("publish", branch).returncode == 1
    again = cli.json("audit", published, "--branch", branch, code=1)
    assert (again["passed"], again["rows"], again["checks"][0]["failing_rows"]) == (False, 30, 3)
    assert cli.count(published) == 20

    lenient = ("audit", published, "--branch", branch, "--check", "not_null(passengers, severity='warn')")
    assert cli.run(*lenient).returncode == 0
    assert cli.run("publish", branch).returncode == 1
    assert cli.run("publish", branch, "--accept", " ").returncode == 2
    assert cli.count(published) == 20
    done = cli.json("publish", branch, "--accept", "three trips without passengers are known")
    jsonschema.validate(done, result_schema)
    assert (done["status"], done["rows"]["published"]) == ("published", 30)
    assert branch not in cli.branches()
    assert cli.count(published) == 50
    gone = cli.run("publish", branch)
    assert gone.returncode == 2
    assert branch in gone.stderr


def test_a_rejected_branch_is_discarded(cli: Cli, rejected: Run) -> None:
    assert cli.json("discard", rejected.branch)["run_id"] == rejected.run_id
    assert rejected.branch not in cli.branches()
    assert cli.json("runs", rejected.run_id)["status"] == "discarded"
    again = cli.run("discard", rejected.branch)
    assert (again.returncode, again.stdout) == (2, "")
    assert "hint:" in again.stderr


def test_log_and_diff_and_tables(cli: Cli, published: str, rejected: Run) -> None:
    (commit,) = cli.json("log", "--limit", "1")
    assert commit["hash"] == cli.branches()["main"]
    assert published in commit["message"]
    shown = cli.run("log", "--limit", "1")
    assert commit["hash"][:12] in shown.stdout
    assert "earlier commits" in shown.stderr

    (difference,) = cli.json("diff", "main", rejected.branch)
    assert (difference["table"], difference["change"]) == (published, "changed")
    assert published in cli.run("diff", "main", rejected.branch).stdout
    assert cli.json("diff", "main", "main") == []

    assert cli.count(published, rejected.branch) == 50
    assert published in cli.run("table", "list").stdout
    details = cli.json("table", "show", published)
    assert (details["table"], details["rows"]) == (published, 20)
    assert [column["name"] for column in details["columns"]] == ["id", "passengers", "pickup", "note"]
    assert "passengers" in cli.run("table", "show", published).stdout
    (file,) = cli.json("table", "files", published)
    assert file["rows"] == 20
    assert Path(urlsplit(file["path"]).path).is_file()


def test_runs_tell_what_happened(cli: Cli, published: str, tmp_path: Path) -> None:
    dirty = write_trips(tmp_path / "b.parquet", 30, nulls=3)
    run = cli.json("ingest", published, dirty, "-c", "not_null(passengers)", code=1)
    runs = cli.json("runs", "--table", published)
    assert [one["status"] for one in runs] == ["rejected", "published"]
    one = cli.json("runs", run["run_id"])
    assert one["checks"] == run["checks"]
    assert one["files"] == [dirty.as_uri()]
    shown = cli.run("runs", run["run_id"])
    for word in (run["run_id"], "rejected", "not_null(passengers)", run["branch"], "b.parquet"):
        assert word in shown.stdout, word
    assert run["run_id"] in cli.run("runs", "--table", published, "--status", "rejected").stdout


def test_generated_files_are_ingested(cli: Cli, namespace: str, tmp_path: Path) -> None:
    """As CSV; the README and the tutorial do the same with Parquet."""
    nulls = ("--null-rate", "0.05", "--null-column", "passenger_count", "--seed", "3")
    words = ("--files", "2", "--rows", "500", "--format", "csv")
    clean = cli.json("generate", tmp_path / "clean", *words)
    cli.json("generate", tmp_path / "dirty", *words, *nulls)
    checks = ("-c", "not_null(passenger_count)", "-c", "unique(trip_id)", "-c", "row_count(min=1000, max=1000)")
    table = f"{namespace}.trips"
    done = cli.json(
        "ingest", table, *(file["path"] for file in clean["files"]), *checks, "--partition-by", "days(pickup)"
    )
    assert done["rows"] == {"source": 1000, "published": 1000, "removed": 0, "quarantined": 0}
    rejected = cli.json("ingest", table, tmp_path / "dirty", *checks, code=1)
    failed = [check["columns"] for check in rejected["checks"] if check["verdict"] == "fail"]
    assert failed == [["passenger_count"]]
    assert cli.count(table) == 1000


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_result_that_cannot_be_written_is_told_and_the_data_stays_published(
    cli: Cli, namespace: str, tmp_path: Path
) -> None:
    table = f"{namespace}.trips"
    source = write_trips(tmp_path / "a.parquet", 20)
    with Path("/dev/full").open("w") as full:
        command = cli.begin("ingest", table, source, "-o", "json", stdout=full)
        _, told = command.communicate()
    assert command.returncode == ExitCode.OUTPUT_LOST
    assert "No space left" in told
    assert "Traceback" not in told
    assert cli.count(table) == 20


def test_servers_elsewhere_that_do_not_answer_are_retryable(cli: Cli, namespace: str, tmp_path: Path) -> None:
    source = write_trips(tmp_path / "a.parquet", 5)
    catalog = Cli(
        cli.home, {"LAKEGATE_CATALOG_URI": "http://127.0.0.1:9/api/v2", "LAKEGATE_CATALOG_WAREHOUSE": "file:///x"}
    )
    for words in (("branch", "list"), ("ingest", f"{namespace}.t", source)):
        done = catalog.run(*words)
        assert (done.returncode, done.stdout) == (3, "")
        assert "http://127.0.0.1:9/api/v2" in done.stderr
        assert "hint:" in done.stderr


def test_the_demo_shows_both_outcomes_as_often_as_one_likes(cli: Cli) -> None:
    before = cli.count("demo.trips") or 0
    first = cli.run("demo", "--rows", "2000")
    assert first.returncode == 0, first.stderr
    assert first.stderr == ""
    for word in ("published", "rejected", "passenger_count", "main", "lakegate"):
        assert word in first.stdout
    again = cli.json("demo", "--rows", "2000")
    assert (again["published"]["status"], again["rejected"]["status"]) == ("published", "rejected")
    rows = {one["branch"]: one["rows"] for one in again["rows_per_branch"]}
    assert rows["main"] == before + 8000
    assert rows[again["rejected"]["branch"]] == before + 10000
