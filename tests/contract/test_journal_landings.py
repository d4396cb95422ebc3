"""What every journal remembers of the files that were looked for."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

from journals import START, Shelf
from lakegate.model.journal import Landing
from lakegate.protocols import Journal

TABLE = "nyc.trips"


def landing(name: str, **values: Any) -> Landing:
    return Landing(
        **{"uri": f"file:///landing/{name}", "stamp": "10-1", "outcome": "done", "noted_at": START, **values}
    )


def test_nothing_is_known_of_files_that_did_not_land(journal: Journal) -> None:
    assert journal.landings(TABLE, []) == {}
    assert journal.landings(TABLE, ["file:///landing/a"]) == {}
    journal.note_landings(TABLE, [])
    assert journal.landings(TABLE, ["file:///landing/a"]) == {}


def test_landings_come_back_as_they_were_noted(shelf: Shelf) -> None:
    told = landing(
        "ö b",
        outcome="rejected",
        tries=3,
        run_id="r01",
        reason='It\'s "odd" \\ 🐘\n',
        noted_at=START + timedelta(microseconds=1),
    )
    shelf.open().note_landings(TABLE, [landing("a"), told])

    found = shelf.open().landings(TABLE, [told.uri, "file:///landing/none", "file:///landing/a", told.uri])
    assert found == {told.uri: told, "file:///landing/a": landing("a")}


def test_a_landing_takes_the_place_of_the_one_before(journal: Journal) -> None:
    journal.note_landings(TABLE, [landing("a", outcome="failed", reason="away", run_id="r01"), landing("b")])
    again = landing("a", stamp="11-2", noted_at=START + timedelta(hours=1))
    journal.note_landings(TABLE, [landing("a", outcome="failed", tries=2), again])
    assert journal.landings(TABLE, [again.uri, landing("b").uri]) == {again.uri: again, landing("b").uri: landing("b")}


def test_each_table_has_landings_of_its_own(journal: Journal) -> None:
    journal.note_landings(TABLE, [landing("a")])
    journal.note_landings("x.y", [landing("a", outcome="rejected")])
    (here,) = journal.landings(TABLE, [landing("a").uri]).values()
    (there,) = journal.landings("x.y", [landing("a").uri]).values()
    assert (here.outcome, there.outcome) == ("done", "rejected")


def test_a_reason_may_quote_anything(journal: Journal) -> None:
    journal.note_landings(TABLE, [landing("a", outcome="failed", reason="begins with \0PAR1")])
    (found,) = journal.landings(TABLE, [landing("a").uri]).values()
    assert found.reason in ("begins with \0PAR1", "begins with \N{REPLACEMENT CHARACTER}PAR1")


def test_twenty_five_thousand_files_at_once(journal: Journal) -> None:
    landings = [landing(f"{number}") for number in range(25_000)]
    journal.note_landings(TABLE, landings)
    found = journal.landings(TABLE, [one.uri for one in landings] + ["file:///landing/none"])
    assert len(found) == 25_000


def test_many_threads_may_note_the_same_files(journal: Journal) -> None:
    names = [f"{number}" for number in range(50)]

    def note(number: int) -> None:
        ordered = names if number % 2 else names[::-1]
        journal.note_landings(TABLE, [landing(name, tries=number) for name in ordered])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(note, range(1, 9)))
    assert len({one.tries for one in journal.landings(TABLE, [landing(name).uri for name in names]).values()}) == 1
