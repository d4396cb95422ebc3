"""The facade's part that looks: at runs, references, tables and rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice

from lakegate.errors import NotFoundError
from lakegate.lake.base import MAIN, LakeBase
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import Commit, Ref, TableDifference
from lakegate.model.run import Run
from lakegate.model.tables import TableMetadata
from lakegate.views import Query, Table


class Looking(LakeBase):
    """Looks, and changes nothing."""

    def runs(
        self,
        *,
        table: str | None = None,
        status: str | None = None,
        kind: str | None = None,
        since: datetime | None = None,
        limit: int = 50,
    ) -> Sequence[Run]:
        """Return runs, newest first.

        Args:
            table: Only runs that wrote to this table.
            status: Only runs that stand so (:data:`~lakegate.model.run.RunStatus`).
            kind: Only runs of this kind (:data:`~lakegate.model.run.RunKind`).
            since: Only runs that began at this time or later; without a time zone it is UTC.
            limit: How many, at most.
        """
        if since is not None and since.tzinfo is None:
            since = since.replace(tzinfo=UTC)
        return self._wiring.journal.runs(table=table, status=status, kind=kind, since=since, limit=limit)

    def run(self, run_id: str) -> Run:
        """Return one run by its id, or by the beginning of it.

        Raises:
            NotFoundError: When no run, or more than one, starts like this.
        """
        return self._find_run(run_id)

    def commits_before(self, run: Run, *, limit: int) -> Sequence[Commit]:
        """Return the target's commits between the base of a published run and its own commit, newest first.

        Args:
            run: The run; one that is not published has none.
            limit: How many, at most.
        """
        if run.publication is None or run.base is None:
            return []
        commits = self._wiring.catalog.history(run.publication.commit, until=run.base, operations=True)
        return list(islice(commits, 1, limit + 1))

    def branches(self) -> Sequence[Ref]:
        """Return all branches, ``main`` first."""
        refs = (ref for ref in self._wiring.catalog.list_refs() if ref.kind == "branch")
        return sorted(refs, key=lambda ref: (ref.name != MAIN, ref.name))

    def log(self, ref: str = MAIN, *, limit: int | None = None) -> Iterator[Commit]:
        """Yield the commits of ``ref``, newest first."""
        return islice(self._wiring.catalog.history(ref, operations=True), limit)

    def diff(self, left: str, right: str) -> Sequence[TableDifference]:
        """Return the tables that stand differently on two references."""
        catalog = self._wiring.catalog
        return list(catalog.diff(catalog.get_ref(left), catalog.get_ref(right)))

    def tables(self, ref: str = MAIN) -> Sequence[TableMetadata]:
        """Return all tables at ``ref``."""
        catalog = self._wiring.catalog
        pointers = sorted(catalog.list_tables(catalog.get_ref(ref)), key=lambda pointer: pointer.table.parts)
        return [self._wiring.reader.metadata(pointer) for pointer in pointers]

    def table(self, name: str, *, ref: str = MAIN, at: str | datetime | None = None) -> Table:
        """Return a table as it stands on ``ref``, or stood ``at`` a time or commit. No engine is needed.

        Raises:
            NotFoundError: When it does not exist there.
        """
        identifier = TableIdentifier.parse(name)
        resolved = self._resolve(ref, at)
        pointer = self._wiring.catalog.get_table(identifier, resolved)
        if pointer is None:
            raise NotFoundError(
                f"There is no table {name} on {ref}.",
                hint=f"lakegate table list --ref {ref}",
                table=name,
                ref=ref,
            )
        return Table(pointer, self._wiring.reader)

    def rows_per_branch(self, table: str) -> Sequence[tuple[Ref, int | None]]:
        """Return each branch that has ``table`` with its number of rows there, by metadata alone."""
        identifier = TableIdentifier.parse(table)
        found = ((ref, self._wiring.catalog.get_table(identifier, ref)) for ref in self.branches())
        return [(ref, self._wiring.reader.metadata(pointer).rows) for ref, pointer in found if pointer is not None]

    def query(self, sql: str, *, ref: str = MAIN, at: str | datetime | None = None) -> Query:
        """Run a Spark SQL query in which plain table names mean the tables on ``ref``.

        Args:
            sql: One statement that only reads.
            ref: Branch, tag or commit hash.
            at: Commit hash, or time (aware, or taken as UTC; text in ISO 8601): read what ``ref`` was then, with
                the schema of then.

        Raises:
            QueryError: When it is refused, or changes something.
        """
        from lakegate.engine.statement import require_query  # noqa: PLC0415 - loads sqlglot

        require_query(sql)
        engine = self._wiring.engine
        resolved = self._resolve(ref, at)
        if at is not None:
            resolved = resolved.model_copy(update={"kind": "detached"})
        return Query(engine.query(sql, resolved), engine.fetch)
