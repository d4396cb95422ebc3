"""A file that failed too often is reported once, and only when it's given up."""

from __future__ import annotations

import pytest

from lakegate.errors import SourceError
from lakegate.loading.scan import FileLoader
from lakegate.model.run import RunError
from support.cli_support import make_run
from support.loader_support import FakeClock, FolderLake, make_loader


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


def told(lake: FolderLake) -> list[tuple[str, int]]:
    return [(file.uri.rpartition("/")[2], file.tries) for file in lake.given_up]


def test_only_the_bad_file_of_a_chunk_is_reported_once_it_is_given_up(lake: FolderLake, clock: FakeClock) -> None:
    lake.put("1.csv", "2.csv", "3.csv")
    lake.becomes = lambda names: SourceError("2.csv is cut off.") if "2.csv" in names else "published"
    work(make_loader(lake, clock, max_tries=3), clock)
    assert told(lake) == [("2.csv", 3)]
    (file,) = lake.given_up
    assert (file.stamp, file.reason, file.run_id) == ("1", "2.csv is cut off.", None)


def test_a_run_that_fails_is_named(lake: FolderLake, clock: FakeClock) -> None:
    lake.put("1.csv")
    loader = make_loader(lake, clock, max_tries=1)
    (chunk,) = loader.scan().chunks
    error = RunError(code="schema", message="A column is missing.")
    loader.save_outcomes(chunk, make_run("failed", run_id="r9", error=error))
    assert [(file.run_id, file.reason) for file in lake.given_up] == [("r9", "A column is missing.")]


def test_a_changed_file_is_reported_again(lake: FolderLake, clock: FakeClock) -> None:
    lake.becomes = lambda _: SourceError("no")
    for version in (1, 2):
        lake.put("1.csv", version=version)
        work(make_loader(lake, clock, max_tries=2), clock)
        work(make_loader(lake, clock, max_tries=2), clock)
    assert [(file.stamp, file.tries) for file in lake.given_up] == [("1", 2), ("2", 2)]


def test_the_alert_precedes_the_final_checkpoint(
    lake: FolderLake, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.put("1.csv")
    lake.becomes = lambda _: SourceError("no")

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(lake, "notify_given_up", die)
        with pytest.raises(KeyboardInterrupt):
            work(make_loader(lake, clock, max_tries=1), clock)
    work(make_loader(lake, clock, max_tries=1), clock)
    assert told(lake) == [("1.csv", 1)]
