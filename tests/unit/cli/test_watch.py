"""``lakegate watch``: its options, output and exit codes. ``tests/unit/loading`` tests how it watches."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import pytest
from click.testing import Result

from lakegate.errors import CatalogUnavailableError, RetryableError, SourceError
from lakegate.sources.discovery import list_files
from support.cli_support import FakeLake, invoke
from support.loader_support import FolderLake


class CliLake(FolderLake):
    """A lake as commands open it, with existing files."""

    opened = 0

    def __enter__(self) -> Self:
        self.opened += 1
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def list_files(self, paths: Sequence[str], **options: Any) -> Any:
        return list_files(paths, **options)


@pytest.fixture
def landing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "landing"
    folder.mkdir()
    return folder


def put(landing: Path, *names: str) -> None:
    for name in names:
        (landing / name).parent.mkdir(parents=True, exist_ok=True)
        (landing / name).write_text("x", encoding="utf-8")


def watch(lake: Any, *words: str) -> Result:
    return invoke(["watch", "landing", "--settle", "0s", *words], lake)


def failing_on(name: str, outcome: Any = "rejected") -> Callable[[Sequence[str]], Any]:
    return lambda taken: outcome if name in taken else "published"


def test_once_exits_with_the_outcome_of_the_files(landing: Path) -> None:
    put(landing, "1.csv", "2.csv", "notes.txt")
    lake = CliLake()
    done = watch(
        lake, "--table", "nyc.trips", "--once", "-c", "not_null(id)", "-c", "unique(id)", "--on-changed", "replace"
    )
    assert (done.exit_code, done.stdout) == (0, ""), done.stderr
    assert lake.names() == [["1.csv", "2.csv"]]
    [options] = lake.options
    assert [str(check) for check in options.checks] == ["not_null(id)", "unique(id)"]
    assert (options.on_changed, options.on_busy) == ("replace", "skip")
    assert "published  nyc.trips: 2 files, 100,000 rows in 3.2 s, run r1" in done.stderr.replace("3.3 s", "3.2 s")
    assert "ended      1 run published 100,000 rows; 2 files done, 0 not done." in done.stderr


def test_json_is_one_object_per_line(landing: Path) -> None:
    put(landing, "1.csv", "2.csv")
    done = watch(CliLake(), "--table", "nyc.trips", "--once", "--max-files", "1", "-o", "json")
    assert [json.loads(line)["run_id"] for line in done.stdout.splitlines()] == ["r1", "r2"]


def test_json_names_files_that_failed_without_a_run(landing: Path) -> None:
    put(landing, "1.csv", "2.csv")
    lake = CliLake(becomes=failing_on("2.csv", SourceError("2.csv is cut off.", hint="Send it again.", uri="2.csv")))
    done = watch(lake, "--table", "nyc.trips", "--once", "--max-tries", "1", "-o", "json")
    both, *alone = map(json.loads, done.stdout.splitlines())
    error = {"code": SourceError.code, "message": "2.csv is cut off.", "hint": "Send it again."}
    context = {"uri": "2.csv", "table": "nyc.trips"}
    files = [f"{landing}/{name}" for name in ("1.csv", "2.csv")]
    assert (done.exit_code, both) == (1, {"error": {**error, "context": {**context, "files": files}}})
    assert {"error": {**error, "context": {**context, "files": files[1:]}}} in alone
    assert [one["run_id"] for one in alone if "run_id" in one] == ["r2"]


def test_json_has_no_secret_of_an_internal_error(landing: Path) -> None:
    put(landing, "1.csv")

    def fail(_: object) -> OSError:
        return OSError("GET https://host/a?X-Amz-Signature=0f3a99 failed")

    done = watch(CliLake(becomes=fail), "--table", "nyc.trips", "--once", "-o", "json")
    assert "Internal error: OSError" in json.loads(done.stdout.splitlines()[0])["error"]["message"]
    assert "0f3a99" not in done.stdout + done.stderr


def test_a_file_that_is_given_up_is_reported_with_its_reason(landing: Path) -> None:
    put(landing, "1.csv", "2.csv")
    lake = CliLake(becomes=failing_on("2.csv", SourceError("2.csv is cut off.")))
    done = watch(lake, "--table", "nyc.trips", "--once", "--max-tries", "1")
    assert done.exit_code == 1
    assert "Retrying them one by one." in done.stderr
    assert f"given up   {landing}/2.csv: 2.csv is cut off." in done.stderr
    again = watch(lake, "--table", "nyc.trips", "--once", "--max-tries", "1")
    assert again.exit_code == 0
    assert f"given up   {landing}/2.csv: 2.csv is cut off." in again.stderr
    lake.becomes = lambda _: "published"
    assert watch(lake, "--table", "nyc.trips", "--once", "--again").exit_code == 0
    assert lake.outcomes()["2.csv"] == ("done", 1)


def test_retryable_failures_exit_with_3(landing: Path) -> None:
    put(landing, "1.csv")
    lake = CliLake(becomes=lambda _: CatalogUnavailableError("The catalog is away."))
    done = watch(lake, "--table", "nyc.trips", "--once")
    assert done.exit_code == 3
    assert "waiting    The catalog is away. Retrying in" in done.stderr
    assert lake.opened > 1


def test_routes_of_the_settings(landing: Path, tmp_path: Path) -> None:
    put(landing, "nyc/trips/1.csv", "nyc/b@d/2.csv")
    route = '[watch]\nroutes = ["landing/{namespace}/{table}/*.csv"]\n'
    (tmp_path / "lakegate.toml").write_text(route, encoding="utf-8")
    lake = CliLake()
    done = watch(lake, "--once")
    assert done.exit_code == 0
    assert {table for table, _ in lake.known} == {"nyc.trips"}
    assert f"ignored    {landing}/nyc/b@d/2.csv: " in done.stderr
    assert watch(lake, "--once", "--table", "nyc.all").exit_code == 0
    assert {table for table, _ in lake.known} == {"nyc.trips", "nyc.all"}


def test_quiet(landing: Path) -> None:
    put(landing, "1.csv")
    done = watch(CliLake(), "--table", "nyc.trips", "--once", "--quiet")
    assert (done.exit_code, done.stderr) == (0, "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_it_after_the_current_run(landing: Path, number: signal.Signals) -> None:
    put(landing, "1.csv", "2.csv")
    lake = CliLake()

    def interrupted(_: Sequence[str]) -> str:
        os.kill(os.getpid(), number)
        return "published"

    lake.becomes = interrupted
    before = signal.getsignal(number)
    done = watch(lake, "--table", "nyc.trips", "--max-files", "1")
    assert (done.exit_code, lake.outcomes()) == (0, {"1.csv": ("done", 1)})
    assert "ended      1 run published" in done.stderr
    assert signal.getsignal(number) is before


def test_an_outage_while_maintenance_is_due_does_not_end_it(
    landing: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lakegate.toml").write_text('[maintenance]\nevery = "1h"\n', encoding="utf-8")
    lake = CliLake()

    def runs(**_: object) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        raise RetryableError("The journal is away.")

    monkeypatch.setattr(lake, "runs", runs, raising=False)
    done = watch(lake, "--table", "nyc.trips")
    assert (done.exit_code, "waiting    Maintenance: The journal is away." in done.stderr) == (0, True)


def test_the_second_ctrl_c_stops_the_run(landing: Path) -> None:
    put(landing, "1.csv")
    lake = CliLake()

    def interrupted(_: Sequence[str]) -> str:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
        return "published"

    lake.becomes = interrupted
    done = watch(lake, "--table", "nyc.trips")
    assert (done.exit_code, lake.outcomes()) == (130, {})
    assert "ended      0 runs published" in done.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("landing", "No table is set for the files"),
        ("landing --table trips", "can't name a table"),
        ("landing --table System.trips", "'System' isn't a namespace of the lake"),
        ("landing --table a.b --route x", "--table and --route can't be combined"),
        ("landing --route /l/*.csv", "doesn't define"),
        ("landing --table a.b --every 5m --on-event", "can't be combined"),
        ("landing --table a.b --every 0s", "greater than zero"),
        ("landing --table a.b --every often", "Invalid duration"),
        ("landing --table a.b --settle -1s", "Invalid duration"),
        ("landing --table a.b -c notnull(", "check"),
        ("s3://b/p/ --table a.b --on-event", "needs a local folder"),
        ("nowhere --table a.b", "doesn't exist"),
        ("nowhere/*.csv --table a.b", "doesn't exist"),
        ("", "PATH"),
    ],
)
def test_wrong_words(landing: Path, words: str, told: str) -> None:
    done = invoke(["watch", *words.split()], FakeLake())
    assert done.exit_code == 2
    assert told in done.stderr
    assert "hint:" in done.stderr


def test_a_missing_path_can_be_waited_for(landing: Path) -> None:
    done = invoke(["watch", "nowhere", "--table", "a.b", "--wait", "--once"], CliLake())
    assert done.exit_code == 0
