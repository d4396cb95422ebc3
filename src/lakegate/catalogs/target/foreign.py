"""What others do to the target: noticed when lakegate reads ``main``, and logged as one commit."""

from __future__ import annotations

from collections.abc import Callable, Collection

from lakegate.catalogs.rules import Key
from lakegate.catalogs.target import intents
from lakegate.catalogs.target.log import Log
from lakegate.catalogs.target.publishing import OTHERS
from lakegate.catalogs.target.targets import Target
from lakegate.catalogs.target.updates import snapshots_of
from lakegate.errors import LakegateError
from lakegate.iceberg.metadata import Document
from lakegate.journal.database import Database
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import MAIN, TablePointer
from lakegate.model.run import RUN_ID_PROPERTY

MESSAGE = "changed outside lakegate"


class ForeignChanges:
    """Compares the target's tables with the log.

    Args:
        logged: Returns what the log has of a table at a commit.
        settle: Settles what dead processes left; returns the keys of what isn't settled.
        reopen: Returns whether a change of keys is one of lakegate's own that had no answer, and must be settled.
    """

    def __init__(
        self,
        database: Database,
        log: Log,
        target: Target,
        logged: Callable[[TableIdentifier, str], TablePointer | None],
        settle: Callable[[], frozenset[Key]],
        reopen: Callable[[Collection[Key]], bool],
    ) -> None:
        self._database = database
        self._log = log
        self._target = target
        self._logged = logged
        self._settle = settle
        self._reopen = reopen

    def notice(self, tables: Collection[TableIdentifier]) -> None:
        """Log what others did to ``tables`` since lakegate last looked, as one commit."""
        noticed = False
        while not noticed:
            pending = self._settle()
            head = self._log.ref(MAIN).hash
            known = {table: self._logged(table, head) for table in tables if table.parts not in pending}
            now = self._target.tables(list(known)) if known else {}
            moved = {table: now[table] for table, was in known.items() if _place(was) != _place(now[table])}
            if moved and self._reopen([table.parts for table in moved]):
                continue
            noticed = not moved or self._append(head, {table: (known[table], at) for table, at in moved.items()})

    def _append(self, head: str, moved: dict[TableIdentifier, tuple[TablePointer | None, TablePointer | None]]) -> bool:
        """Log changes on top of ``head``; return ``False`` if somebody is about to, or has been faster."""
        changes = {table.parts: now for table, (_, now) in moved.items()}
        runs = {run for was, now in moved.values() for run in self._runs(was, now)}
        properties = {RUN_ID_PROPERTY: runs.pop()} if len(runs) == 1 else {}
        draft = self._log.draft(head, changes, MESSAGE, properties, author=OTHERS)
        with self._database.writing() as tx:
            intents.take_turn(tx)
            if not intents.keys_of(intents.pending(tx)).isdisjoint(changes):
                return False
            return self._log.append(tx, MAIN, draft)

    def _runs(self, was: TablePointer | None, now: TablePointer | None) -> set[str]:
        """Return the runs of lakegate in the snapshots that a table got, such as one that had no answer in time."""
        if now is None:
            return set()
        old = {} if was is None else snapshots_of(self._document(was))
        new = (one for number, one in snapshots_of(self._document(now)).items() if number not in old)
        return {run for one in new if (run := (one.get("summary") or {}).get(RUN_ID_PROPERTY))}

    def _document(self, pointer: TablePointer) -> Document:
        try:
            return self._target.document(pointer)
        except LakegateError:  # the target may delete old metadata files
            return {}


def _place(pointer: TablePointer | None) -> str | None:
    return None if pointer is None else pointer.metadata_location
