"""The read model that all pages share: access to the lake, opened on first use, and pages of results and problems."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cache, lru_cache
from typing import Generic, Literal, TypeVar

from lakegate.components import Components
from lakegate.config import Settings
from lakegate.errors import CatalogUnavailableError, InputError, LakegateError, NotFoundError
from lakegate.journal.journal import Journal
from lakegate.lake import Lake
from lakegate.model.base import Value
from lakegate.model.checks import CheckResult
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.quarantine import RELEASED_BY
from lakegate.model.refs import MAIN, Ref, TablePointer
from lakegate.model.tables import Snapshot, TableMetadata
from lakegate.points import resolve
from lakegate.ports import Catalog, TableReader

Part = Literal["catalog", "journal", "table"]
_MOST_ON_A_PAGE = 1_000
"""Maximum number of results on a page. A larger ``limit`` is capped."""
_CATALOG_TIMEOUT_S = 5.0
"""Seconds to wait for the catalog. Kept short: the visitor sees an empty page meanwhile."""
_PARALLEL_READS = 8
_TREND = 20
_Key = TypeVar("_Key")
_Found = TypeVar("_Found")
Item = TypeVar("Item")


class Problem(Value):
    """A part of the lake that couldn't be read. The page shows everything else.

    Attributes:
        part: What couldn't be read: the ``catalog``, the ``journal`` or a ``table``'s files.
        code: The error's code, such as ``catalog-unavailable``.
    """

    part: Part
    code: str
    message: str
    hint: str | None = None

    @classmethod
    def of(cls, part: Part, error: LakegateError) -> Problem:
        """Return ``error`` as a problem."""
        return cls(part=part, code=error.code, message=error.message, hint=error.hint)


class ResultPage(Value, Generic[Item]):
    """One page of many results.

    Attributes:
        next: Cursor of the next page; ``None`` on the last one.
        total: Number of results on all pages, if it's known without reading them.
    """

    items: tuple[Item, ...] = ()
    next: str | None = None
    total: int | None = None
    problems: tuple[Problem, ...] = ()


class CheckLine(CheckResult):
    """One check's result in one run. Its only row values are the examples that the settings allow.

    Attributes:
        hidden_examples: Number of failing rows that the journal has but the settings hide.
    """

    table: str
    hidden_examples: int = 0

    @classmethod
    def of(cls, table: str, result: CheckResult, *, examples: int = 0, masked: Sequence[str] = ()) -> CheckLine:
        """Return ``result`` with at most ``examples`` rows."""
        shown = result.shown(rows=examples, masked=masked)
        hidden = len(result.examples) - len(shown.examples)
        return cls(table=table, hidden_examples=hidden, **dict(shown))


class TableFacts(Value):
    """A table's size, from its metadata. What's unknown is ``None``, such as a number of rows that delete files hide.

    Attributes:
        rows_at_most: Rows in data files, including deleted ones.
        trend: Rows after each of the newest snapshots, oldest first.
    """

    rows: int | None = None
    rows_at_most: int | None = None
    data_files: int | None = None
    size_bytes: int | None = None
    trend: tuple[int | None, ...] = ()


def page_size(limit: int) -> int:
    """Return the page size to use: ``limit``, from 1 to 1,000."""
    return max(1, min(limit, _MOST_ON_A_PAGE))


def searchable(text: str) -> str:
    r"""Return typed text in a form that databases accept. Characters that no name can hold then match nothing.

    Example:
        >>> searchable("trips"), searchable("a\0\udcff") == "a\N{REPLACEMENT CHARACTER}?"
        ('trips', True)
    """
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()


def invalid_cursor(cursor: str) -> InputError:
    """Return the error for text that isn't a cursor."""
    return InputError(f"'{cursor[:80]}' isn't the start of a page.", hint="Start at the first page.")


def paginate(items: Sequence[Item], cursor: str | None, limit: int) -> tuple[tuple[Item, ...], str | None]:
    """Return the page of ``items`` that starts at ``cursor``, and the cursor of the next one.

    Example:
        >>> paginate("abcde", "2", 2), paginate("abcde", "4", 2)
        ((('c', 'd'), '4'), (('e',), None))
    """
    if cursor is not None and not (cursor.isdecimal() and cursor.isascii()):
        raise invalid_cursor(cursor)
    start, size = int((cursor or "0")[:12]), page_size(limit)
    return tuple(items[start : start + size]), str(start + size) if start + size < len(items) else None


class ReadModel:
    """Read access to one lake's journal, catalog and table metadata. Thread-safe.

    It caches what can't change: the tables at a commit, and the contents of metadata files and manifests.

    Args:
        catalog: Returns the catalog. Called again after the catalog was unavailable.
    """

    def __init__(
        self,
        *,
        catalog: Callable[[], Catalog],
        reader: Callable[[], TableReader],
        journal: Callable[[], Journal],
        settings: Settings,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.settings = settings
        self.now = clock
        self._open_catalog = catalog
        self._catalog: Catalog | None = None
        self._open_reader = cache(reader)
        self._open_journal = cache(journal)
        self._lock = threading.RLock()
        self.tables: Callable[[Ref], Mapping[str, TablePointer]] = lru_cache(maxsize=16)(self._list_tables)
        self.metadata: Callable[[TablePointer], TableMetadata] = lru_cache(maxsize=256)(self._read_metadata)
        self.facts: Callable[[TablePointer], TableFacts] = lru_cache(maxsize=20_000)(self._read_facts)
        self.count_waiting: Callable[[TablePointer], int] = lru_cache(maxsize=2_000)(self._count_waiting)
        self._pointer = lru_cache(maxsize=20_000)(self._get_pointer)

    @property
    def catalog(self) -> Catalog:
        """The catalog."""
        with self._lock:
            if self._catalog is None:
                self._catalog = self._open_catalog()
            return self._catalog

    @property
    def reader(self) -> TableReader:
        """The reader of table metadata."""
        with self._lock:
            return self._open_reader()

    @property
    def journal(self) -> Journal:
        """The journal."""
        with self._lock:
            return self._open_journal()

    @contextmanager
    def reading(self, part: Part, problems: list[Problem]) -> Iterator[None]:
        """Add errors of the body to ``problems``, each once, so that the page can show the rest."""
        try:
            yield
        except LakegateError as error:
            away: Part = "catalog" if isinstance(error, CatalogUnavailableError) else part
            self.failed(error)
            if (problem := Problem.of(away, error)) not in problems:
                problems.append(problem)

    def failed(self, error: LakegateError) -> None:
        """Connect to the catalog anew the next time, if it was unavailable: it may come back at another address."""
        if isinstance(error, CatalogUnavailableError):
            with self._lock:
                self._catalog = None

    def branches(self) -> tuple[Ref, ...]:
        """Return all branches except ``main``, by name."""
        refs = (ref for ref in self.catalog.list_refs() if ref.kind == "branch" and ref.name != MAIN)
        return tuple(sorted(refs, key=lambda ref: ref.name))

    def table(self, table: TableIdentifier, ref: Ref) -> TablePointer:
        """Return a table at a commit."""
        found = self._pointer(table, ref.hash)
        if found is None:
            raise NotFoundError(
                f"Table {table} doesn't exist on {ref.name}.",
                hint=f"lakegate table list --ref {ref.name}",
                table=str(table),
                ref=ref.name,
            )
        return found

    def require_on_main(self, commit: str) -> None:
        """Raise ``InputError`` or ``NotFoundError`` unless a commit is in the history of ``main``."""
        index = None
        with suppress(LakegateError):
            commits = self.journal.commits
            index = commits if commits.head(MAIN) == self.catalog.get_ref(MAIN).hash else None
        resolve(self.catalog, MAIN, commit, index=index)

    def read_each(self, keys: Sequence[_Key], read: Callable[[_Key], _Found]) -> list[_Found | LakegateError]:
        """Call ``read`` for each key in parallel. A key that fails yields its :class:`LakegateError` instead."""

        def attempt(key: _Key) -> _Found | LakegateError:
            try:
                return read(key)
            except LakegateError as error:
                self.failed(error)
                return error

        if len(keys) <= 1:
            return [attempt(key) for key in keys]
        with ThreadPoolExecutor(min(_PARALLEL_READS, len(keys)), thread_name_prefix="lakegate-dashboard") as pool:
            return list(pool.map(attempt, keys))

    def _list_tables(self, ref: Ref) -> Mapping[str, TablePointer]:
        return {str(pointer.table): pointer for pointer in self.catalog.list_tables(ref)}

    def _get_pointer(self, table: TableIdentifier, commit: str) -> TablePointer | None:
        return self.catalog.get_table(table, Ref(name=commit, hash=commit, kind="detached"))

    def _read_metadata(self, pointer: TablePointer) -> TableMetadata:
        return self.reader.metadata(pointer)

    def _read_facts(self, pointer: TablePointer) -> TableFacts:
        found = self.reader.metadata(pointer)
        lineage = lineage_of(self.reader.snapshots(pointer), pointer.snapshot_id)
        return TableFacts(
            rows=found.rows,
            rows_at_most=found.rows_at_most,
            data_files=found.data_files,
            size_bytes=found.size_bytes,
            trend=tuple(map(rows_after, lineage[-_TREND:])),
        )

    def _count_waiting(self, pointer: TablePointer) -> int:
        """Return how many rows of a quarantine table wait, from file metrics. A file without the metric waits whole."""
        total = 0
        for file in self.reader.files(pointer):
            metric = file.columns.get(RELEASED_BY)
            total += file.rows if metric is None or metric.null_count is None else metric.null_count
        return total


def lineage_of(snapshots: Iterable[Snapshot], current: int) -> list[Snapshot]:
    """Return the current snapshot and its known ancestors, oldest first. Rolled-back snapshots aren't among them."""
    by_id = {snapshot.snapshot_id: snapshot for snapshot in snapshots}
    lineage: list[Snapshot] = []
    snapshot_id: int | None = current
    while snapshot_id is not None and (snapshot := by_id.pop(snapshot_id, None)) is not None:
        lineage.append(snapshot)
        snapshot_id = snapshot.parent_id
    return lineage[::-1]


def rows_after(snapshot: Snapshot) -> int | None:
    """Return how many rows a table has at ``snapshot``; ``None`` if its summary doesn't say for sure."""
    total, deletes = (snapshot.summary.get(key) for key in ("total-records", "total-delete-files"))
    return int(total) if total is not None and total.isdecimal() and deletes == "0" else None


def open_read_model(lake: Lake) -> ReadModel:
    """Return the read model of a lake, which must stay open. It connects on first use, and starts no server."""
    components: Components = lake._components  # noqa: SLF001 - not worth a place in the public API
    # Contracts can set how fresh a table must be, too.
    notify = lake.settings.notify.model_copy(update={"late": dict(lake.alerts.expected_publishes())})
    return ReadModel(
        catalog=lambda: components.find_catalog(timeout_s=_CATALOG_TIMEOUT_S),
        reader=lambda: components.reader,
        journal=lambda: components.journal_for_pages,
        settings=lake.settings.model_copy(update={"notify": notify}),
    )
