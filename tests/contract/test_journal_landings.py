"""What every journal remembers of the files that were looked for."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

from lakegate.model.run import FileCheckpoint
from support.journals import START, Actor, Shelf

TABLE = "nyc.trips"


def landing(name: str, **values: Any) -> FileCheckpoint:
    return FileCheckpoint(
        **{"uri": f"file:///landing/{name}", "stamp": "10-1", "outcome": "done", "noted_at": START, **values}
    )


def test_landings_come_back_as_they_were_noted(shelf: Shelf) -> None:
    told = landing(
        "ö b",
        outcome="rejected",
        tries=3,
        run_id="r01",
        reason='It\'s "odd" \\ 🐘\n',
        noted_at=START + timedelta(microseconds=1),
    )
    shelf.open().save_file_checkpoints(TABLE, [landing("a"), told])

    found = shelf.open().file_checkpoints(TABLE, [told.uri, "file:///landing/none", "file:///landing/a", told.uri])
    assert found == {told.uri: told, "file:///landing/a": landing("a")}


def test_a_landing_takes_the_place_of_the_one_before(journal: Actor) -> None:
    journal.save_file_checkpoints(TABLE, [landing("a", outcome="failed", reason="away", run_id="r01"), landing("b")])
    again = landing("a", stamp="11-2", noted_at=START + timedelta(hours=1))
    journal.save_file_checkpoints(TABLE, [landing("a", outcome="failed", tries=2), again])
    assert journal.file_checkpoints(TABLE, [again.uri, landing("b").uri]) == {
        again.uri: again,
        landing("b").uri: landing("b"),
    }


def test_each_table_has_landings_of_its_own(journal: Actor) -> None:
    journal.save_file_checkpoints(TABLE, [landing("a")])
    journal.save_file_checkpoints("x.y", [landing("a", outcome="rejected")])
    (here,) = journal.file_checkpoints(TABLE, [landing("a").uri]).values()
    (there,) = journal.file_checkpoints("x.y", [landing("a").uri]).values()
    assert (here.outcome, there.outcome) == ("done", "rejected")


def test_a_reason_may_quote_anything(journal: Actor) -> None:
    journal.save_file_checkpoints(TABLE, [landing("a", outcome="failed", reason="begins with \0PAR1")])
    (found,) = journal.file_checkpoints(TABLE, [landing("a").uri]).values()
    assert found.reason in ("begins with \0PAR1", "begins with \N{REPLACEMENT CHARACTER}PAR1")


def test_ten_thousand_files_at_once(journal: Actor) -> None:
    landings = [landing(f"{number}") for number in range(10_000)]
    journal.save_file_checkpoints(TABLE, landings)
    found = journal.file_checkpoints(TABLE, [one.uri for one in landings] + ["file:///landing/none"])
    assert len(found) == 10_000


def test_many_threads_may_note_the_same_files(journal: Actor) -> None:
    names = [f"{number}" for number in range(50)]

    def note(number: int) -> None:
        ordered = names if number % 2 else names[::-1]
        journal.save_file_checkpoints(TABLE, [landing(name, tries=number) for name in ordered])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(note, range(1, 9)))
    assert (
        len({one.tries for one in journal.file_checkpoints(TABLE, [landing(name).uri for name in names]).values()}) == 1
    )
