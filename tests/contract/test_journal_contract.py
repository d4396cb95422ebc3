"""What every journal does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from lakegate.errors import InputError, RetryableError
from lakegate.journal.memory import MemoryJournal
from lakegate.journal.sql import open_sqlite
from lakegate.model.run import Run, RunStatus
from lakegate.protocols import Journal

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(params=["memory", "sqlite"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Journal]:
    makers: dict[str, Callable[[], Journal]] = {
        "memory": MemoryJournal,
        "sqlite": lambda: open_sqlite(tmp_path / "deep" / "journal.db"),
    }
    made = makers[request.param]()
    yield made
    made.close()


def run(number: int, *, table: str = "nyc.trips", status: RunStatus = "running", branch: str | None = None) -> Run:
    return Run(
        run_id=f"r{number:02}",
        table=table,
        branch=branch or f"b{number}",
        status=status,
        started_at=START + timedelta(seconds=number),
    )


def test_a_run_comes_back_as_it_was_saved(journal: Journal) -> None:
    journal.save(run(1))
    assert journal.get("r01") == run(1)
    assert journal.get("r02") is None


def test_saving_again_replaces(journal: Journal) -> None:
    journal.save(run(1))
    journal.save(run(1, status="published"))
    assert [r.status for r in journal.runs()] == ["published"]


def test_runs_are_newest_first_filtered_and_limited(journal: Journal) -> None:
    for number in (2, 1, 3):
        journal.save(run(number, table="a.b" if number == 1 else "nyc.trips"))
    journal.save(run(4, status="rejected"))

    assert [r.run_id for r in journal.runs()] == ["r04", "r03", "r02", "r01"]
    assert [r.run_id for r in journal.runs(limit=2)] == ["r04", "r03"]
    assert [r.run_id for r in journal.runs(table="a.b")] == ["r01"]
    assert [r.run_id for r in journal.runs(status="rejected")] == ["r04"]


def test_the_newest_run_of_a_branch_is_found(journal: Journal) -> None:
    journal.save(run(1, branch="same"))
    journal.save(run(2, branch="same"))
    found = journal.find_by_branch("same")
    assert found is not None
    assert found.run_id == "r02"
    assert journal.find_by_branch("other") is None


def test_runs_are_found_by_the_beginning_of_their_id(journal: Journal) -> None:
    journal.save(run(1))
    journal.save(run(11))
    assert [r.run_id for r in journal.find("r")] == ["r11", "r01"]
    assert [r.run_id for r in journal.find("r11")] == ["r11"]
    assert not journal.find("%")


def test_runs_outlive_the_process_in_sqlite(tmp_path: Path) -> None:
    first = open_sqlite(tmp_path / "journal.db")
    first.save(run(1))
    first.close()
    second = open_sqlite(tmp_path / "journal.db")
    assert second.get("r01") == run(1)
    second.close()


def test_a_file_that_is_no_journal_is_said_to_be_none(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    path.write_text("this is not a database, but it is long enough to be read as one" * 20)
    with pytest.raises(InputError, match="not a lakegate journal"):
        open_sqlite(path)


def test_a_folder_that_cannot_be_written_is_retryable_or_configuration(tmp_path: Path) -> None:
    (tmp_path / "journal.db").mkdir()
    with pytest.raises(RetryableError, match="cannot be used now"):
        open_sqlite(tmp_path / "journal.db")
