"""The read model that all pages share: access to the lake, opened on first use, and pages of results and problems."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cache, lru_cache
from typing import Any, Generic, Literal, TypeVar

from lakegate.components import Components
from lakegate.config import Settings
from lakegate.errors import CatalogUnavailableError, InputError, LakegateError, NotFoundError, RetryableError
from lakegate.journal.journal import Journal
from lakegate.lake import Lake
from lakegate.model.base import Value
from lakegate.model.checks import CheckResult
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import MAIN, Ref, TablePointer
from lakegate.model.schema import is_masked
from lakegate.model.tables import Snapshot, TableMetadata
from lakegate.points import is_hash_prefix, resolve
from lakegate.ports import Catalog, CommitIndex, TableReader

Part = Literal["catalog", "journal", "table", "engine"]
MAX_PAGE_SIZE = 1_000
"""Maximum number of results on a page. A larger ``limit`` is capped."""


class Problem(Value):
    """A part of the lake that couldn't be read. The page shows everything else.

    Attributes:
        part: What couldn't be read: the ``catalog``, the ``journal``, a ``table``'s files or the ``engine``.
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


Item = TypeVar("Item")


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


class Command(Value):
    """A command to run next, and its purpose."""

    purpose: str
    command: str


def page_size(limit: int) -> int:
    """Return the page size to use: ``limit``, from 1 to 1,000."""
    return max(1, min(limit, MAX_PAGE_SIZE))


def searchable(text: str) -> str:
    r"""Return typed text in a form that databases accept. Characters that no name can hold then match nothing.

    Example:
        >>> searchable("trips"), searchable("a\0\udcff") == "a\N{REPLACEMENT CHARACTER}?"
        ('trips', True)
    """
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()


def offset_of(cursor: str | None) -> int:
    """Return how many results precede the page that starts at ``cursor``.

    Example:
        >>> offset_of(None), offset_of("50")
        (0, 50)
    """
    if cursor is None:
        return 0
    if not cursor.isdecimal() or not cursor.isascii():
        raise invalid_cursor(cursor)
    return int(cursor[:12])


def invalid_cursor(cursor: str) -> InputError:
    """Return the error for text that isn't a cursor."""
    return InputError(f"'{cursor[:80]}' isn't the start of a page.", hint="Start at the first page.")


def paginate(items: Sequence[Item], cursor: str | None, limit: int) -> tuple[tuple[Item, ...], str | None]:
    """Return the page of ``items`` that starts at ``cursor``, and the cursor of the next one.

    Example:
        >>> paginate("abcde", "2", 2), paginate("abcde", "4", 2)
        ((('c', 'd'), '4'), (('e',), None))
    """
    start, size = offset_of(cursor), page_size(limit)
    return tuple(items[start : start + size]), str(start + size) if start + size < len(items) else None


def worst_first(results: Iterable[CheckLine]) -> tuple[CheckLine, ...]:
    """Return failed checks first, then failed warnings, then the rest; each group keeps its order."""
    return tuple(sorted(results, key=lambda one: (one.verdict != "fail", one.severity == "warn")))


_CATALOG_TIMEOUT_S = 5.0
"""Seconds to wait for the catalog. Kept short: the visitor sees an empty page meanwhile."""
_RETRY_AFTER_S = 10.0
"""Seconds before retrying a catalog or journal that was unavailable. Without it, each part of a page would wait."""
_REFS_TTL_S = 2.0
"""Seconds to cache the list of branches, which several parts of a page need."""
_PARALLEL_READS = 8
_CACHE_SIZE = 2_000
_TREND = 20
_Key = TypeVar("_Key")
_Found = TypeVar("_Found")


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


class ReadModel:
    """Read access to one lake's journal, catalog and table metadata. Thread-safe.

    It caches what can't change: the tables at a commit, and the contents of metadata files.

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
        self._opened_catalog: Catalog | None = None
        self._open_reader = cache(reader)
        self._open_journal = cache(journal)
        self._unavailable: dict[Part, tuple[float, LakegateError]] = {}
        self._refs: tuple[float, tuple[Ref, ...]] | None = None
        self._lock = threading.RLock()
        self._tables_at = lru_cache(maxsize=16)(self._list_tables)
        self._pointer = lru_cache(maxsize=20_000)(self._get_pointer)
        self._metadata = lru_cache(maxsize=256)(self._read_metadata)
        self._facts = lru_cache(maxsize=20_000)(self._read_facts)
        self._caches: dict[str, OrderedDict[Hashable, Any]] = defaultdict(OrderedDict)

    @property
    def catalog(self) -> Catalog:
        """The catalog. Keeps raising :class:`~lakegate.errors.CatalogUnavailableError` for a while after an outage."""
        self._require_available("catalog")
        with self._lock:
            if self._opened_catalog is None:
                self._opened_catalog = self._open_catalog()
            return self._opened_catalog

    @property
    def reader(self) -> TableReader:
        """The reader of table metadata."""
        with self._lock:
            return self._open_reader()

    @property
    def journal(self) -> Journal:
        """The journal. Its methods raise their own errors."""
        self._require_available("journal")
        with self._lock:
            return self._open_journal()

    @contextmanager
    def reading(self, part: Part, problems: list[Problem]) -> Iterator[None]:
        """Add errors of the body to ``problems``, each once, so that the page can show the rest."""
        try:
            yield
        except LakegateError as error:
            away: Part = "catalog" if isinstance(error, CatalogUnavailableError) else part
            self.mark_unavailable(away, error)
            problem = Problem.of(away, error)
            if problem not in problems:
                problems.append(problem)

    def mark_unavailable(self, part: Part, error: LakegateError) -> None:
        """Remember that ``part`` is unavailable, if ``error`` says so, so that nothing waits for it again soon."""
        if part in ("catalog", "journal") and isinstance(error, RetryableError):
            with self._lock:
                known = self._unavailable.get(part)
                if known is None or known[1] is not error:
                    self._unavailable[part] = (time.monotonic() + _RETRY_AFTER_S, error)
                if part == "catalog":
                    self._opened_catalog = None

    def refresh(self) -> None:
        """Retry what was unavailable, and list the branches again. Called after a visitor acted."""
        with self._lock:
            self._unavailable.clear()
            self._refs = None

    def is_masked(self, column: str) -> bool:
        """Return whether the settings hide the values of a column, or of a column that contains it."""
        return is_masked(self.settings.masked, column)

    def refs(self) -> tuple[Ref, ...]:
        """Return all branches and tags by name, at most two seconds old."""
        with self._lock:
            known = self._refs
        if known is not None and known[0] > time.monotonic():
            return known[1]
        found = tuple(sorted(self.catalog.list_refs(), key=lambda ref: ref.name))
        with self._lock:
            self._refs = (time.monotonic() + _REFS_TTL_S, found)
        return found

    def branches(self) -> tuple[Ref, ...]:
        """Return all branches except ``main``, by name. Raises the same errors as :meth:`refs`."""
        return tuple(ref for ref in self.refs() if ref.kind == "branch" and ref.name != MAIN)

    def tables(self, ref: Ref) -> Mapping[str, TablePointer]:
        """Return all tables at a commit, by name. Raises the same errors as :meth:`refs`."""
        return self._tables_at(ref)

    def table(self, table: TableIdentifier, ref: Ref) -> TablePointer:
        """Return a table at a commit."""
        found = self._pointer(table, ref.hash, ref.name)
        if found is None:
            raise NotFoundError(
                f"Table {table} doesn't exist on {ref.name}.",
                hint=f"lakegate table list --ref {ref.name}",
                table=str(table),
                ref=ref.name,
            )
        return found

    def metadata(self, pointer: TablePointer) -> TableMetadata:
        """Return the contents of a metadata file. Raises the reader's errors."""
        return self._metadata(pointer)

    def facts(self, pointer: TablePointer) -> TableFacts:
        """Return a table's size, from its metadata file. Raises the reader's errors."""
        return self._facts(pointer)

    def cached(self, kind: str, key: Hashable, make: Callable[[], _Found], *, most: int | None = None) -> _Found:
        """Return the cached value of ``key``; call ``make`` for it the first time. For values that never change.

        Args:
            kind: What the value is. Each kind has a cache of its own.
        """
        with self._lock:
            cache = self._caches[kind]
            if key in cache:
                cache.move_to_end(key)
                found: _Found = cache[key]
                return found
        made = make()
        with self._lock:
            cache[key] = made
            if len(cache) > (most or _CACHE_SIZE):
                cache.popitem(last=False)
        return made

    def resolve(self, ref: str, at: str | datetime | None = None) -> Ref:
        """Return the commit to read: the head of ``ref``, or its state at a commit or time.

        Raises:
            InputError: ``at`` is neither a time, nor a tag, nor a commit.
            NotFoundError: The ref or the commit doesn't exist.
        """
        return resolve(self.catalog, ref, at or None, index=self._commits() if at or is_hash_prefix(ref) else None)

    def _commits(self) -> CommitIndex | None:
        """Return the journal's index of ``main``'s commits, if it knows all of them."""
        with suppress(LakegateError):
            commits = self.journal.commits
            if commits.head(MAIN) == self.catalog.get_ref(MAIN).hash:
                return commits
        return None

    def read_each(self, keys: Sequence[_Key], read: Callable[[_Key], _Found]) -> list[_Found | LakegateError]:
        """Call ``read`` for each key in parallel. A key that fails yields its :class:`LakegateError` instead."""

        def attempt(key: _Key) -> _Found | LakegateError:
            try:
                return read(key)
            except LakegateError as error:
                if isinstance(error, CatalogUnavailableError):
                    self.mark_unavailable("catalog", error)
                return error

        if len(keys) <= 1:
            return [attempt(key) for key in keys]
        with ThreadPoolExecutor(min(_PARALLEL_READS, len(keys)), thread_name_prefix="lakegate-dashboard") as pool:
            return list(pool.map(attempt, keys))

    def _require_available(self, part: Part) -> None:
        with self._lock:
            until, error = self._unavailable.get(part, (0.0, None))
            if error is not None and until > time.monotonic():
                raise error
            self._unavailable.pop(part, None)

    def _list_tables(self, ref: Ref) -> Mapping[str, TablePointer]:
        return {str(pointer.table): pointer for pointer in self.catalog.list_tables(ref)}

    def _get_pointer(self, table: TableIdentifier, commit: str, name: str) -> TablePointer | None:
        del name  # part of the cache key only: errors name it
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


def lineage_of(snapshots: Iterable[Snapshot], current: int) -> list[Snapshot]:
    """Return the current snapshot and its known ancestors, oldest first. Rolled-back snapshots aren't among them."""
    by_id = {one.snapshot_id: one for one in snapshots}
    found: list[Snapshot] = []
    at: int | None = current
    while at is not None and (one := by_id.pop(at, None)) is not None:
        found.append(one)
        at = one.parent_id
    return found[::-1]


def rows_after(snapshot: Snapshot) -> int | None:
    """Return how many rows a table has at ``snapshot``; ``None`` if its summary doesn't say for sure."""
    total, deletes = (snapshot.summary.get(key) for key in ("total-records", "total-delete-files"))
    return int(total) if total is not None and total.isdecimal() and deletes == "0" else None


def open_read_model(lake: Lake) -> ReadModel:
    """Return the read model of a lake, which must stay open. It connects on first use, and starts no server."""
    components: Components = lake._components  # noqa: SLF001 - not worth a place in the public API
    # Contracts can set how fresh a table must be, too.
    notify = lake.settings.notify.model_copy(update={"late": dict(lake.expected_publishes())})
    return ReadModel(
        catalog=lambda: components.find_catalog(timeout_s=_CATALOG_TIMEOUT_S),
        reader=lambda: components.reader,
        journal=lambda: components.journal_for_pages,
        settings=lake.settings.model_copy(update={"notify": notify}),
    )
