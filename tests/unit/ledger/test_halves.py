"""A run's rows come back to all tables that they were in at that time, or to none."""

from __future__ import annotations

from functools import partial

import pytest

from lakegate.errors import NotRevertableError
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.run import Run
from lakegate.wap.revert import restore_table
from lakegate.wap.table_changes import runs_in
from lakegate.wap.transaction import Transaction
from support.flow_support import TRIPS
from support.revert_support import A, B, House

ZONES = TableIdentifier.parse("nyc.zones")


def to_both(tx: Transaction) -> None:
    tx.append("nyc.trips", B)
    tx.append("nyc.zones", B)


def emptied(house: House, table: TableIdentifier, run: str) -> Run:
    """What ``lakegate table truncate`` does."""
    undoes = partial(runs_in, house.context, table)
    return house.work(run, lambda tx: tx.overwrite(str(table), []), undoes=undoes)


@pytest.fixture
def house() -> House:
    """A table each with a row of its own, and a transaction that added one to both."""
    house = House()
    house.add("r1", A)
    house.add("r2", A, table=ZONES)
    house.work("both", to_both)
    return house


def test_half_of_a_reverted_transaction_does_not_come_back(house: House) -> None:
    emptied(house, TRIPS, "empties")
    assert house.status("both") == ("published", None)
    house.undo("both")
    assert house.status("both") == ("reverted", "x-both")
    with pytest.raises(
        NotRevertableError, match=r"rows of run both would come back to nyc.trips, but not to"
    ) as caught:
        house.undo("empties")
    assert caught.value.context["run_id"] == "both"
    assert (house.rows("nyc.trips"), house.rows("nyc.zones")) == ([], A)

    # The way out that it names.
    assert str(caught.value.hint).startswith(
        "Bring them back to nyc.zones first: lakegate table restore nyc.zones --at"
    )
    at = str(caught.value.hint).rpartition(" ")[2]
    commit = next(one for one in house.catalog.history("main") if one.hash.startswith(at))
    restore_table(house.context, ZONES, house.head().detached(commit.hash), new_run_id="back")
    assert house.status("both") == ("published", None)
    house.undo("empties")
    assert (house.rows("nyc.trips"), house.rows("nyc.zones")) == ([*A, *B], [*A, *B])


def test_one_table_of_a_reverted_transaction_is_not_restored(house: House) -> None:
    before = house.head()
    house.undo("both")
    with pytest.raises(NotRevertableError, match=r"run both would come back to nyc\.trips, but not to nyc\.zones"):
        restore_table(house.context, TRIPS, before, new_run_id="back")
    assert house.status("both") == ("reverted", "x-both")


def test_tables_that_were_emptied_one_by_one_come_back_one_by_one(house: House) -> None:
    emptied(house, TRIPS, "empties-1")
    assert house.status("both") == ("published", None)
    emptied(house, ZONES, "empties-2")
    assert (house.status("both"), house.status("r1")) == (("reverted", "empties-2"), ("reverted", "empties-1"))
    with pytest.raises(NotRevertableError, match=r"but not to nyc\.zones, from which run empties-2 has removed them"):
        house.undo("empties-1")
    house.undo("empties-2")
    assert house.status("both") == ("published", None)
    house.undo("empties-1")
    assert (house.rows("nyc.trips"), house.rows("nyc.zones")) == ([*A, *B], [*A, *B])
