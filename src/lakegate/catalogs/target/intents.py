"""Intents: what a process is about to publish to the target, written down before it touches it.

An intent locks what it writes and what it relies on, for other processes of lakegate. Its process holds a named lock in
the database meanwhile. A database lets go of the lock when the process dies, and whoever comes next finishes or undoes
what it began. If nothing of it is found in the target, it's given up, but kept until its run is published: a request
without an answer may still arrive.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import insert, select, update

from lakegate.catalogs.rules import Key
from lakegate.catalogs.target.schema import INTENTS
from lakegate.catalogs.target.targets import Step
from lakegate.journal.database import JournalTransaction
from lakegate.model.base import Value
from lakegate.model.run import RUN_ID_PROPERTY


class Intent(Value):
    """What is about to be published.

    Attributes:
        steps: The changes of tables, in the order in which they're made.
        namespaces: Namespaces to create first.
        relied_on: Keys that must stay as they are.
        alone: Whether no other commit may come before it.
        is_late: Whether it was given up before a part of it was found in the target.
    """

    intent_id: str
    steps: tuple[Step, ...]
    namespaces: tuple[Key, ...]
    relied_on: tuple[Key, ...]
    alone: bool
    message: str
    properties: dict[str, str]
    is_late: bool = False

    @property
    def run_id(self) -> str | None:
        """The run that publishes, if it's one's."""
        return self.properties.get(RUN_ID_PROPERTY)

    @property
    def written(self) -> frozenset[Key]:
        """The keys that change."""
        pointers = (pointer for step in self.steps for pointer in (step.base, step.staged) if pointer is not None)
        return frozenset([*self.namespaces, *(pointer.table.parts for pointer in pointers)])

    @property
    def lock(self) -> str:
        """The name of the lock that its process holds. There are no more of them than tables."""
        return f"publish to {self.steps[0].table if self.steps else 'main'}"

    @property
    def subject(self) -> str:
        """What it changes, in words."""
        return ", ".join(sorted(".".join(key) for key in self.written)) or "main"

    def excludes(self, other: Intent) -> bool:
        """Return whether one of the two must wait for the other."""
        ours, theirs = self.written, other.written
        reads, their_reads = frozenset(self.relied_on), frozenset(other.relied_on)
        return self.alone or other.alone or bool(ours & (theirs | their_reads) or reads & theirs)


def take_turn(tx: JournalTransaction) -> None:
    """Let no other transaction look at intents until this one ends, so that it may write one."""
    tx.lock("overlay intents")


def pending(tx: JournalTransaction) -> Sequence[Intent]:
    """Return all intents that aren't settled."""
    return _read(tx, given_up=False)


def given_up(tx: JournalTransaction) -> Sequence[Intent]:
    """Return all intents that were given up."""
    return _read(tx, given_up=True)


def is_pending(tx: JournalTransaction, intent: Intent) -> bool:
    """Return whether an intent isn't settled."""
    return any(one.intent_id == intent.intent_id for one in pending(tx))


def _read(tx: JournalTransaction, *, given_up: bool) -> Sequence[Intent]:
    found = select(INTENTS.c.document).where(INTENTS.c.given_up == given_up).order_by(INTENTS.c.intent_id)
    return [Intent.model_validate_json(text) for text in tx.scalars(found)]


def keys_of(intents: Iterable[Intent]) -> frozenset[Key]:
    """Return all keys that intents change."""
    return frozenset(key for intent in intents for key in intent.written)


def add(tx: JournalTransaction, intent: Intent) -> None:
    """Write an intent down."""
    tx.execute(insert(INTENTS).values(_row(intent)))


def give_up(tx: JournalTransaction, intent: Intent) -> None:
    """Let others change what an intent changes. One that was late already has nothing more to come."""
    if intent.is_late:
        forget(tx, [intent])
    else:
        tx.execute(update(INTENTS).where(INTENTS.c.intent_id == intent.intent_id).values(given_up=True))


def reopen(tx: JournalTransaction, intent: Intent) -> None:
    """Make an intent that was given up one to settle."""
    row = _row(intent.model_copy(update={"is_late": True}))
    tx.execute(update(INTENTS).where(INTENTS.c.intent_id == intent.intent_id).values(row))


def remove(tx: JournalTransaction, intent: Intent) -> None:
    """Remove an intent, if it's there, and what its run gave up before."""
    earlier = [one for one in given_up(tx) if one.run_id is not None and one.run_id == intent.run_id]
    forget(tx, [intent, *earlier])


def _row(intent: Intent) -> dict[str, object]:
    return {"intent_id": intent.intent_id, "document": intent.model_dump_json(), "given_up": False}


def forget(tx: JournalTransaction, intents: Iterable[Intent]) -> None:
    """Delete intents."""
    tx.delete(INTENTS.c.intent_id, [one.intent_id for one in intents])
