"""A file that failed too often is reported once, and only when it's given up."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from lakegate.config import JournalSettings
from lakegate.errors import RetryableError, SourceError
from lakegate.journal.factory import open_journal
from lakegate.lake import Lake, connect
from lakegate.loading.routes import Routes
from lakegate.loading.scan import FileLoader, Scan
from lakegate.model.run import RunError
from lakegate.progress import LogNarrator
from support.cli_support import make_run
from support.loader_support import TABLE, FakeClock, FolderLake, make_loader
from support.notify_support import BOT, WEBHOOK, lost_file, told_server
from support.slack_server import SlackServer


@pytest.fixture
def lake() -> FolderLake:
    return FolderLake()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def work(loader: FileLoader, clock: FakeClock) -> None:
    """Scan and ingest until nothing is left to try."""
    for _ in range(100):
        found = loader.scan()
        if not found.chunks and found.due_s is None:
            return
        for chunk in found.chunks:
            loader.ingest(chunk)
        clock.sleep(found.due_s or 0.0)
    pytest.fail("there is no end to it")


def told(lake: FolderLake) -> list[tuple[str, int, str]]:
    return [(file.uri.rpartition("/")[2], file.tries, file.code) for file in lake.given_up]


def test_only_the_bad_file_of_a_chunk_is_reported_once_it_is_given_up(lake: FolderLake, clock: FakeClock) -> None:
    lake.put("1.csv", "2.csv", "3.csv")
    lake.becomes = lambda names: SourceError("2.csv is cut off.") if "2.csv" in names else "published"
    work(make_loader(lake, clock, max_tries=3), clock)
    assert told(lake) == [("2.csv", 3, "source")]
    (file,) = lake.given_up
    assert (file.table, file.stamp, file.reason, file.run_id) == (TABLE, "1", "2.csv is cut off.", None)


def test_the_run_reports_a_rejected_file(lake: FolderLake, clock: FakeClock) -> None:
    lake.put("1.csv")
    lake.becomes = lambda _: "rejected"
    work(make_loader(lake, clock), clock)
    assert (lake.outcomes(), lake.given_up) == ({"1.csv": ("rejected", 1)}, [])


def test_a_run_that_fails_is_named(lake: FolderLake, clock: FakeClock) -> None:
    lake.put("1.csv")
    loader = make_loader(lake, clock, max_tries=1)
    (chunk,) = loader.scan().chunks
    error = RunError(code="schema", message="A column is missing.")
    loader.save_outcomes(chunk, make_run("failed", run_id="r9", error=error))
    assert [(file.run_id, file.code, file.reason) for file in lake.given_up] == [
        ("r9", "schema", "A column is missing.")
    ]


def test_a_changed_file_is_reported_again(lake: FolderLake, clock: FakeClock) -> None:
    lake.becomes = lambda _: SourceError("no")
    for version in (1, 2):
        lake.put("1.csv", version=version)
        work(make_loader(lake, clock, max_tries=2), clock)
        work(make_loader(lake, clock, max_tries=2), clock)
    assert [(file.stamp, file.tries) for file in lake.given_up] == [("1", 2), ("2", 2)]


def test_trouble_gives_nothing_up(lake: FolderLake, clock: FakeClock) -> None:
    lake.put("1.csv")
    lake.becomes = lambda _: RetryableError("away")
    loader = make_loader(lake, clock, max_tries=1)
    (chunk,) = loader.scan().chunks
    with pytest.raises(RetryableError):
        loader.ingest(chunk)
    assert lake.given_up == []


def test_the_alert_precedes_the_final_checkpoint(
    lake: FolderLake, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.put("1.csv")
    lake.becomes = lambda _: SourceError("no")

    def die(_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(lake, "notify_given_up", die)
        with pytest.raises(KeyboardInterrupt):
            work(make_loader(lake, clock, max_tries=1), clock)
    work(make_loader(lake, clock, max_tries=1), clock)
    assert told(lake) == [("1.csv", 1, "source")]


# with a real lake -----------------------------------------------------------------------------------------------------


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlackServer]:
    with told_server(monkeypatch) as running:
        yield running


@pytest.fixture
def home(tmp_path: Path, server: SlackServer, monkeypatch: pytest.MonkeyPatch) -> Path:
    bot = BOT | {"api_url": f"{server.url}/api/"}
    monkeypatch.setenv("LAKEGATE_NOTIFY_CHANNELS", json.dumps([WEBHOOK, bot]))
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing" / "bad.parquet").write_bytes(b"PAR1 and no more")
    (tmp_path / "lakegate.toml").write_text("", encoding="utf-8")
    return tmp_path


def attempt(home: Path, lake: Lake, clock: FakeClock) -> Scan:
    """Scan, and save that the files can't be read, like an orchestrator that runs the steps itself."""
    clock.sleep(1.0)
    loader = FileLoader(lake, [str(home / "landing")], Routes.to(TABLE), settle_s=0.0, max_tries=2, clock=clock)
    found = loader.scan()
    for chunk in found.chunks:
        loader.save_outcomes(chunk, None, SourceError("'bad.parquet' is cut off."))
    return found


def test_every_way_in_reports_a_truncated_file_to_every_channel(
    home: Path, server: SlackServer, clock: FakeClock
) -> None:
    for _ in range(3):
        # A process each, as a schedule's or a function's.
        with connect(home) as lake:
            found = attempt(home, lake, clock)
    assert [(landing.outcome, landing.tries) for landing in found.given_up] == [("failed", 2)]
    assert len(server.messages) == 2
    for message in server.messages:
        told = json.dumps(message)
        for part in ("file given up", "bad.parquet", "is cut off", "lakegate ingest nyc.trips file:///"):
            assert part in told, part


def test_a_file_is_given_up_even_if_the_alert_fails(
    home: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK_URL", "http://127.0.0.1:9/verysecretpath")
    monkeypatch.delenv("BOT_TOKEN")
    log = io.StringIO()
    with connect(home, narrator=LogNarrator(log)) as lake:
        for _ in range(3):
            found = attempt(home, lake, clock)
    assert len(found.given_up) == 1
    untold = [line for line in log.getvalue().splitlines() if "The alert to channel" in line]
    assert [name for name in ("ops", "bot") if any(f"'{name}'" in line for line in untold)] == ["ops", "bot"]
    assert "verysecretpath" not in log.getvalue()


def test_its_last_run_shows_the_notifications(home: Path, server: SlackServer) -> None:
    with closing(open_journal(JournalSettings(), home)) as journal, connect(home) as lake:
        journal.save(make_run("failed", run_id="r9"))
        lake.notify_given_up(lost_file(run_id="r9"))
        lake.notify_given_up(lost_file("other.csv"))
        told = lake.run("r9").notifications
    assert [(one.channel, one.event, one.outcome) for one in told] == [
        (name, "given_up", "sent") for name in ("ops", "bot")
    ]
