"""Renamed tables keep their rows, their history and the record of their ingested files."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime

import pytest

from lakegate.errors import (
    AlreadyExistsError,
    ConfigurationError,
    ConflictError,
    InputError,
    NotFoundError,
    NotRevertableError,
)
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import Ref
from lakegate.model.run import Run
from lakegate.wap.alerting import find_late
from lakegate.wap.rebuild import rebuild
from lakegate.wap.revert import restore_table
from lakegate.wap.review import accepted, publish_branch
from lakegate.wap.table_changes import drop_table, rename_table
from support.flow_support import when_reached
from support.revert_support import A, B, C, D, House

TRIPS, RIDES = TableIdentifier.parse("nyc.trips"), TableIdentifier.parse("nyc.rides")
NUMBERS = itertools.count()


@pytest.fixture
def house() -> House:
    return House()


def rename(house: House, old: TableIdentifier = TRIPS, new: TableIdentifier = RIDES, run: str = "n") -> Run:
    return rename_table(house.context, old, new, new_run_id=run)


def again(house: House, *names: str, table: TableIdentifier = RIDES) -> list[str]:
    """Ingest files again, and return how that ended, by this journal and by one that is read from the commits."""
    found: list[str] = []
    for _ in range(2):
        found += [house.add(f"again-{next(NUMBERS)}", A, file=name, table=table).status for name in names]
        rebuild(house.context, "main")
    return found


def test_what_was_published_counts_under_the_new_name(house: House) -> None:
    house.add("r1", A)
    house.add("r2", B)
    run = rename(house)
    assert (run.status, run.kind, run.name) == ("published", "maintenance", "rename nyc.trips to nyc.rides")
    assert [(one.table, one.rows, one.dropped) for one in run.undone] == [
        ("nyc.trips", -2, True),
        ("nyc.rides", 2, False),
    ]
    assert house.catalog.get_table(TRIPS, house.head()) is None
    assert house.rows("nyc.rides") == [*A, *B]
    assert again(house, "r1", "r2") == ["skipped"] * 4
    # The old name is free, for another table.
    assert house.add("other", C, file="r1", table=TRIPS).status == "published"
    assert again(house, "r1", table=TRIPS) == ["skipped"] * 2
    assert house.add("r3", D, table=RIDES).status == "published"
    assert (house.rows(), house.rows("nyc.rides")) == (C, [*A, *B, *D])


def test_a_renamed_table_is_dropped_and_restored_with_all_its_files(house: House) -> None:
    house.add("r1", A)
    rename(house, new=TableIdentifier.parse("nyc.mid"))
    house.add("r2", B, table=TableIdentifier.parse("nyc.mid"))
    rename(house, TableIdentifier.parse("nyc.mid"), RIDES, run="n2")
    then = house.head()
    drop_table(house.context, RIDES, new_run_id="d")
    assert house.add("free", A, file="r1", table=RIDES).status == "published"
    house.undo("free")
    restore_table(house.context, RIDES, Ref(name="main", hash=then.hash, kind="detached"), new_run_id="back")
    assert house.rows("nyc.rides") == [*A, *B]
    assert again(house, "r1", "r2") == ["skipped"] * 4


def test_nothing_is_reverted_or_restored_across_a_rename(house: House) -> None:
    house.add("r1", A)
    then = Ref(name="main", hash=house.head().hash, kind="detached")
    rename(house)
    renamed = house.head()
    house.add("r2", B, table=RIDES)
    house.add("other", D, table=TRIPS)
    with pytest.raises(NotRevertableError, match=r"run n has since renamed nyc\.trips to nyc\.rides"):
        house.undo("r1")
    with pytest.raises(InputError, match=r"run n has since renamed nyc\.trips to nyc\.rides") as caught:
        restore_table(house.context, TRIPS, then, new_run_id="y")
    assert caught.value.hint == (f"Choose a state since then: lakegate table restore nyc.rides --at {renamed.hash}")
    with pytest.raises(InputError, match="a rename can't be reverted") as caught:
        house.undo("n")
    assert caught.value.hint == "To rename it back: lakegate table rename nyc.rides nyc.trips"
    house.undo("r2")
    assert (house.rows("nyc.rides"), house.rows()) == (A, D)


def test_what_was_under_way_goes_to_a_table_of_the_old_name(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    house.add("r1", A)
    with when_reached(monkeypatch, "before-publish", lambda: rename(house)):
        # It begins again, as one that starts now would: there is no table of that name.
        assert house.add("r2", B).status == "published"
    assert (house.rows(), house.rows("nyc.rides")) == (B, A)
    assert house.add("r2-again", B, file="r2", table=RIDES).status == "published"


def test_a_file_of_a_table_that_gets_the_name_meanwhile_is_published_once(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run would create the table: nothing else shows that this one has its rows already."""
    house.add("r1", A, file="f")
    with when_reached(monkeypatch, "before-publish", lambda: rename(house)):
        assert house.add("r2", A, file="f", table=RIDES).status == "skipped"
    assert house.rows("nyc.rides") == A


def test_a_kept_branch_that_creates_a_table_is_not_published_to_one_that_got_the_name(house: House) -> None:
    house.add("r1", A, file="f")
    kept = house.add("r2", A, file="f", table=RIDES, checks=("in_range(id, min=2)",))
    rename(house)
    with pytest.raises(ConflictError, match=r"Run n renamed nyc.trips to nyc.rides during this run"):
        publish_branch(house.context, kept.branch, configured=lambda _: (), acceptance=accepted("It's right.", "ada"))
    assert house.rows("nyc.rides") == A


def test_a_file_is_published_once_while_its_table_gets_another_name_and_its_own_again(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.add("r0", B)

    def meanwhile() -> None:
        rename(house)
        assert house.add("other", A, file="f", table=RIDES).status == "published"
        rename(house, RIDES, TRIPS, run="n2")

    with when_reached(monkeypatch, "before-publish", meanwhile):
        assert house.add("r1", A, file="f").status == "skipped"
    assert house.rows() == [*A, *B]


def test_names_that_are_taken_or_unknown_are_refused(house: House) -> None:
    house.add("r1", A)
    house.add("r2", B, table=RIDES)
    with pytest.raises(AlreadyExistsError, match=r"table nyc\.rides exists already"):
        rename(house)
    with pytest.raises(NotFoundError):
        rename(house, TableIdentifier.parse("nyc.no"), TableIdentifier.parse("nyc.new"))
    with pytest.raises(ConfigurationError, match="__quarantine"):
        rename(house, new=TableIdentifier.parse("nyc.x__quarantine"))
    # A table takes the place of one that was dropped.
    drop_table(house.context, RIDES, new_run_id="d")
    rename(house)
    assert house.rows("nyc.rides") == A
    assert house.add("r2-again", B, file="r2", table=RIDES).status == "published"
    assert house.rows("nyc.rides") == [*A, *B]


def test_checks_against_history_and_late_tables_know_the_batches_of_the_old_name(house: House) -> None:
    check = "row_count(percent=10)"
    for number in range(6):
        house.add(f"r{number}", A, checks=(check, "row_count(max=1)"))
    rename(house)
    now = datetime.now(UTC)
    assert find_late(house.journal, {"nyc.rides": "1d"}, now) == ()
    assert [one.run_id for one in find_late(house.journal, {"nyc.trips": "1d"}, now)] == [None]
    odd = house.add("odd", A * 3, table=RIDES, checks=(check, "row_count(max=1)"))
    results = {one.check: (one.verdict, one.passed_run_id) for one in odd.reports[0].results}
    assert results == {check: ("fail", "r5"), "row_count(max=1)": ("fail", "r5")}
    # A new table that has a name of old has a history of its own.
    new = house.add("new", A * 3, table=TRIPS, checks=(check,))
    assert [one.verdict for one in new.reports[0].results] == ["skipped"]
