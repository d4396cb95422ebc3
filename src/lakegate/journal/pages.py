"""The dashboard's queries to the journal: runs, checks and files, a page at a time.

Each query finds its rows by an index and returns a bounded number of them, however many runs there are. Unless a query
returns whole runs, it doesn't read their documents, which may have megabytes of examples and files.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias, get_args
from urllib.parse import quote, unquote

from pydantic_core import from_json
from sqlalchemy import ColumnElement, Row, Select, and_, bindparam, func, not_, or_, select

from lakegate.journal import runs
from lakegate.journal.database import Database, JournalTransaction
from lakegate.journal.files import PUBLISHED
from lakegate.journal.schema import CHECK_RESULTS, CLAIMS, RUN_TABLES, RUNS, STANDING, as_text
from lakegate.ledger.event import family
from lakegate.model.base import Value
from lakegate.model.quarantine import SUFFIX, is_quarantine
from lakegate.model.run import BRINGS_DATA, CheckRecord, FileRecord, Run, RunKind, RunLine
from lakegate.model.states import RunStatus

_LINE_COLUMNS = [column for column in RUNS.c if column.name not in ("document", "branch_kept")]
_LINE_NAMES = [column.name for column in _LINE_COLUMNS]
_STATUSES, _KINDS = frozenset(get_args(RunStatus)), frozenset(get_args(RunKind))
_LARGEST_PAGE = 1 << 62
"""Largest page: SQLite's integers end soon after."""
_AT_ONCE = 250
_LATEST_PUBLISHES = 50

PageCursor: TypeAlias = tuple[datetime, str]
"""A run's place in the order of runs: its start time and its id."""
_MOST_RUNS_SEARCHED = 20_000


class RunFilter(Value):
    """Which runs to find.

    Attributes:
        orchestrator: Only runs that this orchestrator started, such as ``prefect``.
        file: Only runs with a source file whose URI contains this text, as it is or percent-encoded, in any case.
        or_id: Also runs whose id starts with the text in ``file``.
        run_id: Only runs whose id starts with this.
    """

    table: str | None = None
    status: str | None = None
    kind: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    orchestrator: str | None = None
    file: str | None = None
    or_id: bool = False
    run_id: str | None = None


class JournalPages:
    """Reads a journal a page at a time.

    Raises:
        RetryableError: From every method, if the database is locked for too long or unreachable.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    # Runs

    def runs(
        self, wanted: RunFilter, *, limit: int, after: PageCursor | None = None, whole: bool = True
    ) -> tuple[Sequence[Run], PageCursor | None]:
        """Return runs, newest first, and the place to continue after; ``None`` if there are no more.

        Args:
            wanted: Which runs. With ``file``, at most 20,000 runs are searched, so an empty page may not be the last.
            limit: Largest number of runs.
            after: Place of the run before the first one.
            whole: Whether to include examples and the original requests.
        """
        query, started, number = _select_runs(wanted, runs.SHOWN)
        if after is not None:
            query = query.where(_after_cursor(started, number, after))
        with self._database.reading() as tx:
            end: PageCursor | None = None
            if wanted.file:
                end = _cursor_after(tx, wanted, after, _MOST_RUNS_SEARCHED)
                fits = _may_have_file(tx, wanted.file)
                query = query.where(or_(fits, runs.has_prefix(wanted.file)) if wanted.or_id else fits)
                if end is not None:
                    # Without the second condition, the next page repeats runs that started at the same time.
                    query = query.where(started >= as_text(end[0]), not_(_after_cursor(started, number, end)))
            found = runs.read(
                tx, query.order_by(started.desc(), number.desc()).limit(min(limit, _LARGEST_PAGE) + 1), whole=whole
            )
            if len(found) > limit:
                found = found[:limit]
                end = found[-1].started_at, found[-1].run_id
            if wanted.file:
                claimed = _with_claim(tx, [run.run_id for run in found if run.request is None], wanted.file)
                named = {run.run_id for run in found if wanted.or_id and run.run_id.startswith(wanted.file)}
                found = [run for run in found if run.run_id in claimed | named or _has_file(run, wanted.file)]
        return found, end

    def each(self, wanted: RunFilter, *, whole: bool = True, at_once: int = _AT_ONCE) -> Iterator[Run]:
        """Yield runs, newest first, read a page at a time as needed; see :meth:`runs`."""
        place: PageCursor | None = None
        while True:
            found, place = self.runs(wanted, limit=at_once, after=place, whole=whole)
            yield from found
            if place is None:
                return

    def published_to(self, table: str) -> Iterator[tuple[Run, str]]:
        """Yield the runs that stand in a table, newest first, each with the name that the table had then."""
        shown = select(STANDING.c.entry_id, STANDING.c.called, *runs.SHOWN)
        query = shown.join(RUNS, RUNS.c.run_id == STANDING.c.run_id).where(STANDING.c.table_name == family(table))
        query = query.order_by(STANDING.c.entry_id.desc()).limit(_AT_ONCE)
        before = _LARGEST_PAGE
        while True:
            with self._database.reading() as tx:
                entries = tx.execute(query.where(STANDING.c.entry_id < before)).all()
            for entry in entries:
                name = f"{entry.called}{SUFFIX}" if is_quarantine(table) else str(entry.called)
                run = runs.read_row(entry, whole=False)
                if name in run.tables:
                    yield run, name
            if len(entries) < _AT_ONCE:
                return
            before = entries[-1].entry_id

    def with_prefix(self, prefix: str, *, limit: int) -> Sequence[str]:
        """Return ids of runs that start with ``prefix``, newest first."""
        ids = RUNS.c.run_id
        query = select(ids).where(runs.has_prefix(prefix)).order_by(ids.desc()).limit(limit)
        with self._database.reading() as tx:
            return [str(one) for one in tx.scalars(query)]

    def lines(self, run_ids: Collection[str]) -> Mapping[str, RunLine]:
        """Return the runs of these ids that exist, by id."""
        with self._database.reading() as tx:
            found = tx.execute(select(*_LINE_COLUMNS).where(RUNS.c.run_id.in_(tx.values(run_ids))))
            return {row.run_id: _line(row) for row in found}

    def runs_of(self, run_ids: Collection[str], *, whole: bool = True) -> Mapping[str, Run]:
        """Return the runs of these ids that exist, by id; see :meth:`runs` for ``whole``."""
        with self._database.reading() as tx:
            found = runs.read(tx, select(*runs.SHOWN).where(RUNS.c.run_id.in_(tx.values(run_ids))), whole=whole)
            return {run.run_id: run for run in found}

    def newest(self, status: str, *, limit: int) -> Sequence[RunLine]:
        """Return runs with this status, newest first."""
        query = select(*_LINE_COLUMNS).where(RUNS.c.status == status).order_by(RUNS.c.started_at.desc())
        with self._database.reading() as tx:
            return [_line(row) for row in tx.execute(query.limit(limit))]

    def by_branch(self, branches: Collection[str]) -> Mapping[str, RunLine]:
        """Return the newest run that wrote to each of these branches, by branch."""
        with self._database.reading() as tx:
            query = select(*_LINE_COLUMNS).where(RUNS.c.branch.in_(tx.values(branches)))
            found = tx.execute(query.order_by(RUNS.c.started_at, RUNS.c.run_id))
            return {row.branch: _line(row) for row in found}

    def superseded(self, run_ids: Collection[str]) -> Mapping[str, str]:
        """Return which of these runs are rejected ingests that were tried again, each with the newest later attempt.

        A run was if a later one published each of its files, or was rejected with it and is one of these, too.
        """
        columns = (RUNS.c.run_id, RUNS.c.started_at, RUNS.c.document)
        query = select(*columns).where(RUNS.c.status == "rejected").order_by(RUNS.c.started_at, RUNS.c.run_id)
        published = select(CLAIMS.c.table_name, CLAIMS.c.path, RUNS.c.started_at, RUNS.c.run_id)
        published = published.join(RUNS, RUNS.c.run_id == CLAIMS.c.run_id).where(CLAIMS.c.state == PUBLISHED)
        with self._database.reading() as tx:
            found = tx.execute(query.where(RUNS.c.run_id.in_(tx.values(run_ids))))
            files = {(row.started_at, row.run_id): _files_of(row.document) for row in found}
            attempts = {file: attempt for attempt, of_run in files.items() for file in of_run}
            for row in tx.execute(published.where(CLAIMS.c.path.in_(tx.values({uri for _, uri in attempts})))):
                key, attempt = (row.table_name, row.path), (row.started_at, row.run_id)
                attempts[key] = max(attempt, attempts.get(key, attempt))
        newest = {run: [attempts[file] for file in of_run] for run, of_run in files.items() if of_run}
        return {run[1]: max(later)[1] for run, later in newest.items() if min(later) > run}

    # Tables

    def tables(self, *, limit: int) -> Sequence[str]:
        """Return the names of tables that runs wrote to, in order."""
        # Step from one name to the next in the index: DISTINCT would read all of its entries.
        name = RUN_TABLES.c.table_name
        names = select(func.min(name).label("name")).cte("names", recursive=True)
        following = select(func.min(name)).where(name > names.c.name).scalar_subquery()
        names = names.union_all(select(following).where(names.c.name.is_not(None)))
        with self._database.reading() as tx:
            found = tx.scalars(select(names.c.name).where(names.c.name.is_not(None)).limit(limit))
            return sorted(found)

    def tables_of(self, run_ids: Collection[str]) -> Mapping[str, Sequence[str]]:
        """Return the tables of each of these runs."""
        found: dict[str, list[str]] = defaultdict(list)
        with self._database.reading() as tx:
            query = select(RUN_TABLES.c.run_id, RUN_TABLES.c.table_name)
            for row in tx.execute(query.where(RUN_TABLES.c.run_id.in_(tx.values(run_ids)))):
                found[row.run_id].append(row.table_name)
        return found

    def newest_of(self, tables: Sequence[str], *, limit: int) -> Mapping[str, Sequence[RunLine]]:
        """Return the newest runs of each table, newest first."""
        query = _of_table(limit)
        with self._database.reading() as tx:
            return {table: [_line(row) for row in tx.execute(query, {"table": table})] for table in tables}

    def last_publishes(self, tables: Sequence[str]) -> Mapping[str, RunLine]:
        """Return the run that last published data to each table and stands there, if there is one."""
        query = select(*_LINE_COLUMNS).join(STANDING, STANDING.c.run_id == RUNS.c.run_id)
        query = query.where(STANDING.c.table_name == bindparam("table"), RUNS.c.kind.in_(BRINGS_DATA))
        query = query.order_by(STANDING.c.entry_id.desc()).limit(_LATEST_PUBLISHES)
        with self._database.reading() as tx:
            # They're in the order of their commits; one that a restore brought back may have ended long ago.
            found = {
                table: max(map(_line, tx.execute(query, {"table": family(table)})), key=_ended_at, default=None)
                for table in tables
            }
        return {table: line for table, line in found.items() if line is not None}

    # Checks

    def checks(self, table: str, run_ids: Collection[str]) -> Sequence[CheckRecord]:
        """Return what the checks of these runs found in a table."""
        of = CHECK_RESULTS.c
        with self._database.reading() as tx:
            query = select(CHECK_RESULTS).where(of.run_id.in_(tx.values(run_ids)), of.table_name == table)
            return [_check(row) for row in tx.execute(query.order_by(of.run_id, of.position))]

    # Files

    def files(self, *, limit: int, before: int | None = None) -> Sequence[FileRecord]:
        """Return source files that were published or are being ingested, newest first.

        Args:
            limit: Largest number of files.
            before: Number of the file before the first one.
        """
        query = select(CLAIMS).order_by(CLAIMS.c.claim_id.desc()).limit(limit)
        if before is not None:
            query = query.where(CLAIMS.c.claim_id < before)
        with self._database.reading() as tx:
            return [_file(row) for row in tx.execute(query)]


def _ended_at(run: RunLine) -> datetime:
    return run.finished_at or run.started_at


def _select_runs(wanted: RunFilter, shown: Sequence[Any]) -> tuple[Select[Any], Any, Any]:
    """Return the query for the columns ``shown`` of the wanted runs, and the two columns that order them."""
    started: Any = RUNS.c.started_at
    number: Any = RUNS.c.run_id
    query: Select[Any] = select(*shown).select_from(RUNS)
    if wanted.table is not None:
        started, number = RUN_TABLES.c.started_at, RUN_TABLES.c.run_id
        query = query.join(RUN_TABLES, RUN_TABLES.c.run_id == RUNS.c.run_id)
        query = query.where(RUN_TABLES.c.table_name == wanted.table)
    return query.where(*_conditions(wanted, started)), started, number


def _cursor_after(
    tx: JournalTransaction, wanted: RunFilter, after: PageCursor | None, number: int
) -> PageCursor | None:
    """Return the place of the run that comes ``number`` runs after the place ``after``, whatever its files."""
    query, started, run_id = _select_runs(wanted, (RUNS.c.started_at, RUNS.c.run_id))
    if after is not None:
        query = query.where(_after_cursor(started, run_id, after))
    row = tx.execute(query.order_by(started.desc(), run_id.desc()).offset(number).limit(1)).one_or_none()
    return None if row is None else (datetime.fromisoformat(row.started_at), str(row.run_id))


def _may_have_file(tx: JournalTransaction, text: str) -> ColumnElement[bool]:
    """Return the condition for runs that may have such a file; their documents may contain the text elsewhere."""
    # A rebuilt journal knows the files of older runs only as claims.
    claimed = select(CLAIMS.c.claim_id).where(CLAIMS.c.run_id == RUNS.c.run_id)
    spellings = _spellings(text)
    in_documents = {json.dumps(one, ensure_ascii=False)[1:-1] for one in spellings}
    return or_(
        *(_contains(tx, RUNS.c.document, one) for one in sorted(in_documents)),
        claimed.where(or_(*(_contains(tx, CLAIMS.c.path, one) for one in spellings))).exists(),
    )


def _files_of(document: str) -> Sequence[tuple[str, str]]:
    """Return the table and the URI of each source file of an ingest; none if its document can't be read."""
    try:
        request = from_json(document, cache_strings="keys")["request"]
        return [(request["table"], file["uri"]) for file in request["batch"]["files"]]
    except (ValueError, LookupError, TypeError):
        return ()


def _has_file(run: Run, text: str) -> bool:
    uris = (*(run.request.batch.uris if run.request is not None else ()), *(one.file.uri for one in run.skipped_files))
    return any(is_in_uri(text, uri) for uri in uris)


def _with_claim(tx: JournalTransaction, run_ids: Collection[str], text: str) -> frozenset[str]:
    """Return the runs that published or are ingesting a file whose URI contains ``text``."""
    if not run_ids:
        return frozenset()
    named = or_(*(_contains(tx, CLAIMS.c.path, one) for one in _spellings(text)))
    return frozenset(tx.scalars(select(CLAIMS.c.run_id).where(CLAIMS.c.run_id.in_(tx.values(run_ids)), named)))


def is_in_uri(text: str, uri: str) -> bool:
    """Return whether ``text`` is part of a URI, as it is or as a plain path, in any case.

    Example:
        >>> is_in_uri("a B", "file:///in/a%20b.csv"), is_in_uri("a b", "s3://lake/a%20b.csv")
        (True, False)
    """
    wanted = text.lower()
    return wanted in uri.lower() or (uri.startswith("file:") and wanted in unquote(uri, errors="replace").lower())


def _contains(tx: JournalTransaction, column: Any, text: str) -> ColumnElement[bool]:
    # SQLite's LIKE ignores case itself, and takes twice as long with lower().
    is_sqlite = tx.connection.dialect.name == "sqlite"
    found: ColumnElement[bool] = (column.contains if is_sqlite else column.icontains)(text, autoescape=True)
    return found


def _spellings(text: str) -> Sequence[str]:
    """Return how text may be spelled in URIs: as it is, and percent-encoded.

    Example:
        >>> _spellings("in/a b"), _spellings("trips")
        (('in/a b', 'in/a%20b'), ('trips',))
    """
    return tuple(dict.fromkeys((text, quote(text, safe="/", errors="replace"))))


def _of_table(limit: int) -> Select[Any]:
    """Return a query for the newest runs of one table, its parameter ``:table``."""
    query = select(*_LINE_COLUMNS).join(RUN_TABLES, RUN_TABLES.c.run_id == RUNS.c.run_id)
    query = query.where(RUN_TABLES.c.table_name == bindparam("table"))
    return query.order_by(RUN_TABLES.c.started_at.desc(), RUN_TABLES.c.run_id.desc()).limit(limit)


def _conditions(wanted: RunFilter, started: Any) -> list[ColumnElement[bool]]:
    found = []
    if wanted.status is not None:
        found.append(RUNS.c.status == wanted.status)
    if wanted.kind is not None:
        found.append(RUNS.c.kind == wanted.kind)
    if wanted.run_id is not None:
        found.append(runs.has_prefix(wanted.run_id))
    if wanted.orchestrator is not None:
        found.append(RUNS.c.orchestrator == wanted.orchestrator)
    if wanted.since is not None:
        found.append(started >= as_text(wanted.since))
    if wanted.until is not None:
        found.append(started < as_text(wanted.until))
    return found


def _after_cursor(started: Any, number: Any, after: PageCursor) -> ColumnElement[bool]:
    time, run_id = as_text(after[0]), after[1]
    return and_(started <= time, or_(started < time, number < run_id))


def _line(row: Row[Any]) -> RunLine:
    found = dict(zip(_LINE_NAMES, row, strict=True))
    # A damaged run must not hide the others.
    if found["status"] not in _STATUSES:
        found["status"] = "failed"
    if found["kind"] not in _KINDS:
        found["kind"] = "ingest"
    return RunLine.model_validate(found)


def _check(row: Row[Any]) -> CheckRecord:
    values = row._asdict()
    del values["position"]
    return CheckRecord(table=values.pop("table_name"), check=values.pop("check_text"), **values)


def _file(row: Row[Any]) -> FileRecord:
    values = row._asdict()
    number, table, uri = values.pop("claim_id"), values.pop("table_name"), values.pop("path")
    return FileRecord(number=number, table=table, uri=uri, published=values.pop("state") == PUBLISHED, **values)
