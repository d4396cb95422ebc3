"""What the target had when lakegate first looked at a table or namespace.

It holds for all commits in which the key wasn't changed, those before included. So nothing is imported up front, and a
table that nobody asks for costs nothing.
"""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import select

from lakegate.catalogs.rules import Content, Key
from lakegate.catalogs.target.log import Changes, from_json, to_json
from lakegate.catalogs.target.schema import FIRST_SEEN
from lakegate.catalogs.target.targets import Target
from lakegate.errors import IdentifierError
from lakegate.journal.database import Database
from lakegate.model.identifiers import TableIdentifier


class FirstSeen:
    """The target's contents at first sight, remembered in the database for all processes."""

    def __init__(self, database: Database, target: Target) -> None:
        self._database = database
        self._target = target

    def of(self, keys: Collection[Key]) -> Changes:
        """Return what each of ``keys`` was, looking at those that nobody has looked at."""
        known = self._known(keys)
        new = [key for key in dict.fromkeys(keys) if key not in known]
        return {**known, **self._remember(self._look(new))} if new else known

    def all(self) -> Changes:
        """Return what all keys of the target were."""
        listed = [*self._target.list_namespaces(), *(table.parts for table in self._target.list_tables())]
        return {**self._known(None), **self.of(listed)}

    def _known(self, keys: Collection[Key] | None) -> Changes:
        wanted = select(FIRST_SEEN.c.content)
        with self._database.reading() as tx:
            if keys is not None:
                wanted = wanted.where(FIRST_SEEN.c.name.in_(tx.values([".".join(key) for key in keys])))
            return {key: content for text in tx.scalars(wanted) for key, content in from_json(text).items()}

    def _look(self, keys: Collection[Key]) -> Changes:
        tables = {key: table for key in keys if (table := _as_table(key)) is not None}
        pointers = self._target.tables(list(tables.values())) if tables else {}
        found: dict[Key, Content | None] = {key: pointers[table] for key, table in tables.items()}
        for key in keys:
            if found.get(key) is None:
                found[key] = key if self._target.has_namespace(key) else None
        return found

    def _remember(self, looked: Changes) -> Changes:
        """Keep what was seen; if another process was first, what it saw counts."""
        rows = [(".".join(key), to_json({key: content})) for key, content in looked.items()]
        with self._database.writing() as tx:
            tx.insert(FIRST_SEEN, rows, key="name", change="name = excluded.name")
        return self._known(looked)


def _as_table(key: Key) -> TableIdentifier | None:
    try:
        return TableIdentifier(namespace=key[:-1], name=key[-1])
    except IdentifierError:  # a namespace at the top, for instance
        return None
