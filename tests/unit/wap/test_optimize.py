"""Compaction on main: Iceberg makes the commit, a second one says which run it was, and the rows are counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lakegate.errors import AuditFailedError, InputError, NotReplayableError
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.run import Run
from lakegate.upkeep.verify_journal import MainCommits, journal_findings
from lakegate.wap.rebuild import rebuild
from lakegate.wap.revert import restore_table
from lakegate.wap.table_changes import optimize
from support.fakes_transaction import FakeTransaction
from support.flow_support import TRIPS
from support.revert_support import A, B, C, House


@pytest.fixture
def house() -> House:
    house = House()
    house.add("r1", A)
    house.add("r2", B)
    return house


def compacted(house: House, run: str = "o1", *, attempts: int = 3) -> Run:
    return optimize(house.context, TRIPS, sort=None, where=None, attempts=attempts, new_run_id=run)


def files(house: House) -> int:
    pointer = house.pointer()
    return len(house.versions[pointer.metadata_location].rows)


def findings(house: House) -> list[str]:
    step = house.context.narrator.step("verify")
    with step as progress:
        commits = MainCommits(house.context, (), None)
        return [one.kind for one in journal_findings(house.context, commits, progress)]


def instead(monkeypatch: pytest.MonkeyPatch, compact: Callable[..., None]) -> None:
    monkeypatch.setattr(FakeTransaction, "compact", compact)


def test_a_compaction_is_a_run_that_changes_no_row(house: House) -> None:
    run = compacted(house)
    assert (run.status, run.kind, run.name, run.branch) == ("published", "maintenance", "optimize nyc.trips", "")
    assert (house.rows(), files(house)) == ([*A, *B], 1)
    claim, compaction = list(house.catalog.history("main"))[:2]
    assert run.publication is not None
    assert (run.publication.commit, claim.parent) == (claim.hash, compaction.hash)
    assert claim.message == "Optimize nyc.trips: the same 2 rows in other files"
    assert findings(house) == []
    rebuild(house.context, "main")
    assert findings(house) == []
    assert house.status("o1") == ("published", None)

    house.add("r3", C)
    assert house.rows() == [*A, *B, *C]


def test_a_compaction_that_lost_rows_says_how_to_restore_the_table(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = house.head()
    whole = FakeTransaction.compact

    def lossy(self: FakeTransaction, table: TableIdentifier, **given: Any) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(FakeTransaction, "table", lambda *_: A)
            whole(self, table, **given)

    instead(monkeypatch, lossy)
    with pytest.raises(AuditFailedError, match="changed its number of rows from 2 to 1") as lost:
        compacted(house)
    assert f"lakegate table restore nyc.trips --at {before.hash[:12]}" in str(lost.value.hint)
    assert house.status("o1") == ("failed", None)
    assert findings(house) == ["foreign-commit"]
    restore_table(house.context, TRIPS, before, new_run_id="x")
    assert house.rows() == [*A, *B]


@pytest.mark.parametrize("attempts", [1, 3])
def test_a_compaction_that_lost_to_others_is_made_again_while_they_wait(
    house: House, monkeypatch: pytest.MonkeyPatch, attempts: int
) -> None:
    locked, whole = list[bool](), FakeTransaction.compact

    def beaten(self: FakeTransaction, table: TableIdentifier, **given: Any) -> None:
        locked.append(house.journal.is_locked(f"main/{table}"))
        if len(locked) < 3:
            raise NotReplayableError("Others changed the same files.", table=str(table))
        whole(self, table, **given)

    instead(monkeypatch, beaten)
    if attempts == 1:
        with pytest.raises(NotReplayableError, match="Others changed"):
            compacted(house, attempts=attempts)
        assert house.status("o1") == ("failed", None)
        return
    assert compacted(house, attempts=attempts).status == "published"
    assert locked == [False, False, True]
    assert not house.journal.is_locked("main/nyc.trips")


def test_a_compaction_cannot_be_reverted(house: House) -> None:
    before = house.head().hash
    compacted(house)
    with pytest.raises(InputError, match=r"compacted nyc\.trips, which changed no row") as refused:
        house.undo("o1")
    assert f"lakegate table restore nyc.trips --at {before[:12]}" in str(refused.value.hint)
