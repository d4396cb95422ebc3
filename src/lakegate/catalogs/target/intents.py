"""Intents: what a process is about to publish to the target, written down before it touches it.

An intent locks what it writes and what it relies on, for other processes of lakegate. Its process holds a named lock in
the database meanwhile. A database lets go of the lock when the process dies, and whoever comes next finishes or undoes
what it began.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import delete, insert, select

from lakegate.catalogs.rules import Key
from lakegate.catalogs.target.schema import INTENTS
from lakegate.catalogs.target.targets import Step
from lakegate.journal.database import JournalTransaction
from lakegate.model.base import Value


class Intent(Value):
    """What is about to be published.

    Attributes:
        steps: The changes of tables, in the order in which they're made.
        namespaces: Namespaces to create first.
        relied_on: Keys that must stay as they are.
        alone: Whether no other commit may come before it.
    """

    intent_id: str
    steps: tuple[Step, ...]
    namespaces: tuple[Key, ...]
    relied_on: tuple[Key, ...]
    alone: bool
    message: str
    properties: dict[str, str]

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
    return [Intent.model_validate_json(text) for text in tx.scalars(select(INTENTS.c.document))]


def keys_of(intents: Iterable[Intent]) -> frozenset[Key]:
    """Return all keys that intents change."""
    return frozenset(key for intent in intents for key in intent.written)


def add(tx: JournalTransaction, intent: Intent) -> None:
    """Write an intent down."""
    tx.execute(insert(INTENTS).values(intent_id=intent.intent_id, document=intent.model_dump_json()))


def remove(tx: JournalTransaction, intent: Intent) -> None:
    """Remove an intent, if it's there."""
    tx.execute(delete(INTENTS).where(INTENTS.c.intent_id == intent.intent_id))
