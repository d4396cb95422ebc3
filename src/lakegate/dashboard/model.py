"""What all pages read: the lake's parts, opened when they are first needed; pages of results, problems, examples."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Generic, Literal, TypeVar

from lakegate.components import Components
from lakegate.config import Settings
from lakegate.errors import CatalogUnavailableError, InputError, LakegateError, NotFoundError, RetryableError
from lakegate.journal.journal import Journal
from lakegate.lake import Lake
from lakegate.model.base import Value
from lakegate.model.checks import CheckResult
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import Ref, TablePointer
from lakegate.model.schema import is_masked
from lakegate.model.tables import Snapshot, TableMetadata
from lakegate.points import is_hash_prefix, resolve
from lakegate.ports import Catalog, CommitIndex, TableReader

Part = Literal["catalog", "journal", "table", "engine"]
MOST_ON_A_PAGE = 1_000
"""Results that one page may have: what is asked for beyond that is cut."""


class Problem(Value):
    """A part of the lake that couldn't be read; what doesn't need it is shown.

    Attributes:
        part: What couldn't be read: the ``catalog``, the ``journal``, a ``table``'s files or the ``engine``.
        subject: The table, branch or run it's about, if it's about one.
        code: The error's code, such as ``catalog-unavailable``.
    """

    part: Part
    subject: str | None = None
    code: str
    message: str
    hint: str | None = None

    @classmethod
    def of(cls, part: Part, error: LakegateError, subject: str | None = None) -> Problem:
        """Return the problem that ``error`` is."""
        return cls(part=part, subject=subject, code=error.code, message=error.message, hint=error.hint)


Item = TypeVar("Item")


class Page(Value, Generic[Item]):
    """Some of many results.

    Attributes:
        next: Cursor of the page that follows; ``None`` on the last one.
        total: Number of all results, where it's known without reading them.
    """

    items: tuple[Item, ...] = ()
    next: str | None = None
    total: int | None = None
    problems: tuple[Problem, ...] = ()


class CheckLine(CheckResult):
    """What one check found in one run, with examples as far as the settings allow, and no other values of rows.

    Attributes:
        hidden_examples: Number of failing rows that the journal has and the settings hide.
    """

    table: str
    hidden_examples: int = 0

    @classmethod
    def of(cls, table: str, result: CheckResult, *, examples: int = 0, masked: Sequence[str] = ()) -> CheckLine:
        """Return the line of ``result`` with up to ``examples`` rows."""
        shown = result.shown(rows=examples, masked=masked)
        hidden = len(result.examples) - len(shown.examples)
        return cls(table=table, hidden_examples=hidden, **dict(shown))


class Command(Value):
    """A command to type next, and what it's for."""

    purpose: str
    command: str


def page_size(limit: int) -> int:
    """Return how many results a page has that is asked for ``limit``."""
    return max(1, min(limit, MOST_ON_A_PAGE))


def searchable(text: str) -> str:
    r"""Return a text that somebody typed so that a database takes it: what no name can hold matches nothing.

    Example:
        >>> searchable("trips"), searchable("a\0\udcff") == "a\N{REPLACEMENT CHARACTER}?"
        ('trips', True)
    """
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()


def offset_of(cursor: str | None) -> int:
    """Return the number of results before a page whose cursor counts them.

    Example:
        >>> offset_of(None), offset_of("50")
        (0, 50)
    """
    if cursor is None:
        return 0
    if not cursor.isdecimal() or not cursor.isascii():
        raise no_cursor(cursor)
    return int(cursor[:12])


def no_cursor(cursor: str) -> InputError:
    """Return the error for a text that isn't a cursor."""
    return InputError(f"'{cursor[:80]}' isn't the start of a page.", hint="Start at the first page.")


def cut(items: Sequence[Item], cursor: str | None, limit: int) -> tuple[tuple[Item, ...], str | None]:
    """Return the page of ``items`` that starts at ``cursor``, and the cursor of the next one.

    Example:
        >>> cut("abcde", "2", 2), cut("abcde", "4", 2)
        ((('c', 'd'), '4'), (('e',), None))
    """
    start, size = offset_of(cursor), page_size(limit)
    return tuple(items[start : start + size]), str(start + size) if start + size < len(items) else None


def worst_first(results: Iterable[CheckLine]) -> tuple[CheckLine, ...]:
    """Return failed errors, failed warnings and the rest, each in the order given."""
    return tuple(sorted(results, key=lambda one: (one.verdict != "fail", one.severity == "warn")))


MAIN = "main"
_PATIENCE_S = 5.0
"""Seconds to wait for the catalog: somebody looks at a page that is empty meanwhile."""
_AWAY_S = 10.0
"""Seconds for which what didn't answer isn't asked again: else each part of a page would wait for it."""
_REFS_S = 2.0
"""Seconds for which the list of branches holds: several parts of a page need it."""
_AT_ONCE = 8
_KEPT = 2_000
_TREND = 30
_Key = TypeVar("_Key")
_Found = TypeVar("_Found")


class TableFacts(Value):
    """What a table's metadata says in numbers.

    Attributes:
        rows: Number of rows; ``None`` if delete files hide it.
        rows_at_most: Rows in data files, deleted ones among them.
        trend: The newest snapshots, oldest first: time, and rows after it (``None`` if unknown).
    """

    rows: int | None
    rows_at_most: int | None
    data_files: int | None
    size_bytes: int | None
    trend: tuple[tuple[datetime, int | None], ...] = ()


class ReadModel:
    """Journal, catalog and table metadata of one lake, for reading. Thread-safe.

    What can't change is remembered: tables at a commit, and what a metadata file says.

    Args:
        catalog: Returns the catalog. It's called again after the catalog was away.
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
        self._open: dict[str, Callable[[], object]] = {"catalog": catalog, "reader": reader, "journal": journal}
        self._opened: dict[str, object] = {}
        self._away: dict[Part, tuple[float, LakegateError]] = {}
        self._refs: tuple[float, tuple[Ref, ...]] | None = None
        self._lock = threading.RLock()
        self._tables_at = lru_cache(maxsize=16)(self._list_tables)
        self._pointer = lru_cache(maxsize=20_000)(self._get_pointer)
        self._metadata = lru_cache(maxsize=256)(self._read_metadata)
        self._facts = lru_cache(maxsize=20_000)(self._read_facts)
        self._kept: OrderedDict[Hashable, Any] = OrderedDict()

    @property
    def catalog(self) -> Catalog:
        """The catalog. Raises :class:`~lakegate.errors.CatalogUnavailableError` for a while after it was away."""
        self._require_back("catalog")
        return self._get("catalog")  # type: ignore[return-value]

    @property
    def reader(self) -> TableReader:
        """The reader of table metadata."""
        return self._get("reader")  # type: ignore[return-value]

    @property
    def journal(self) -> Journal:
        """The journal. Its methods raise their own errors."""
        self._require_back("journal")
        return self._get("journal")  # type: ignore[return-value]

    @contextmanager
    def reading(self, part: Part, problems: list[Problem], subject: str | None = None) -> Iterator[None]:
        """Add what goes wrong in the body to ``problems``, once, so that the rest of a page can be shown."""
        try:
            yield
        except LakegateError as error:
            away: Part = "catalog" if isinstance(error, CatalogUnavailableError) else part
            self.note(away, error)
            problem = Problem.of(away, error, None if away != part else subject)
            if problem not in problems:
                problems.append(problem)

    def note(self, part: Part, error: LakegateError) -> None:
        """Remember that ``part`` was away, if that's what ``error`` says, so that nobody waits for it again soon."""
        if part in ("catalog", "journal") and isinstance(error, RetryableError):
            with self._lock:
                known = self._away.get(part)
                if known is None or known[1] is not error:
                    self._away[part] = (time.monotonic() + _AWAY_S, error)
                if part == "catalog":
                    self._opened.pop("catalog", None)

    def forget(self) -> None:
        """Retry what didn't answer, and list the branches again: somebody pressed a button."""
        with self._lock:
            self._away.clear()
            self._refs = None

    def is_masked(self, column: str) -> bool:
        """Return whether the settings hide the values of a column, or of what a field is in."""
        return is_masked(self.settings.masked, column)

    def refs(self) -> tuple[Ref, ...]:
        """Return all branches and tags as they were at most two seconds ago, by name."""
        with self._lock:
            known = self._refs
        if known is not None and known[0] > time.monotonic():
            return known[1]
        found = tuple(sorted(self.catalog.list_refs(), key=lambda ref: ref.name))
        with self._lock:
            self._refs = (time.monotonic() + _REFS_S, found)
        return found

    def branches(self) -> tuple[Ref, ...]:
        """Return all branches but ``main``, by name. Raises what :meth:`refs` does."""
        return tuple(ref for ref in self.refs() if ref.kind == "branch" and ref.name != MAIN)

    def tables(self, ref: Ref) -> Mapping[str, TablePointer]:
        """Return all tables at a commit by name. Raises what :meth:`refs` does."""
        return self._tables_at(ref.hash, ref.name)

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
        """Return what a metadata file says; raises what the reader does."""
        return self._metadata(pointer)

    def facts(self, pointer: TablePointer) -> TableFacts:
        """Return what a metadata file says in numbers; raises what the reader does."""
        return self._facts(pointer)

    def remembered(self, key: Hashable, make: Callable[[], _Found]) -> _Found:
        """Return what ``make`` made for ``key`` before, or makes now: for what can't change."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                found: _Found = self._kept[key]
                return found
        made = make()
        with self._lock:
            self._kept[key] = made
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return made

    def resolve(self, ref: str, at: str | datetime | None = None) -> Ref:
        """Return the commit of ``ref`` to read at: its head, a commit, or the last one at a time.

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

    def each(self, keys: Sequence[_Key], read: Callable[[_Key], _Found]) -> list[_Found | LakegateError]:
        """Return ``read`` of each key, several at a time; one of lakegate's errors in its place if it fails."""

        def attempt(key: _Key) -> _Found | LakegateError:
            try:
                return read(key)
            except LakegateError as error:
                if isinstance(error, CatalogUnavailableError):
                    self.note("catalog", error)
                return error

        if len(keys) <= 1:
            return [attempt(key) for key in keys]
        with ThreadPoolExecutor(min(_AT_ONCE, len(keys)), thread_name_prefix="lakegate-dashboard") as pool:
            return list(pool.map(attempt, keys))

    def _get(self, name: str) -> object:
        with self._lock:
            if name not in self._opened:
                self._opened[name] = self._open[name]()
            return self._opened[name]

    def _require_back(self, part: Part) -> None:
        with self._lock:
            until, error = self._away.get(part, (0.0, None))
            if error is not None and until > time.monotonic():
                raise error
            self._away.pop(part, None)

    def _list_tables(self, commit: str, name: str) -> Mapping[str, TablePointer]:
        ref = Ref(name=name, hash=commit, kind="branch")
        return {str(pointer.table): pointer for pointer in self.catalog.list_tables(ref)}

    def _get_pointer(self, table: TableIdentifier, commit: str, name: str) -> TablePointer | None:
        del name  # only messages show it
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
            trend=tuple((one.time, rows_after(one)) for one in lineage[-_TREND:]),
        )


def lineage_of(snapshots: Iterable[Snapshot], current: int) -> list[Snapshot]:
    """Return the current snapshot and its known ancestors, oldest first: not what was rolled back."""
    by_id = {one.snapshot_id: one for one in snapshots}
    found: list[Snapshot] = []
    at: int | None = current
    while at is not None and (one := by_id.pop(at, None)) is not None:
        found.append(one)
        at = one.parent_id
    return found[::-1]


def rows_after(snapshot: Snapshot) -> int | None:
    """Return how many rows a table has at ``snapshot``; ``None`` if its summary doesn't prove a number."""
    total, deletes = (snapshot.summary.get(key) for key in ("total-records", "total-delete-files"))
    return int(total) if total is not None and total.isdecimal() and deletes == "0" else None


def open_read_model(lake: Lake) -> ReadModel:
    """Return the read model of ``lake``. It opens connections when they are first needed, and starts no server.

    Args:
        lake: The lake. Close it when the read model isn't used any more.
    """
    components: Components = lake._components  # noqa: SLF001 - the public API has no use for them
    # Contracts may say how fresh tables must be, too.
    notify = lake.settings.notify.model_copy(update={"late": dict(lake.expected_publishes())})
    return ReadModel(
        catalog=lambda: components.find_catalog(timeout_s=_PATIENCE_S),
        reader=lambda: components.reader,
        journal=lambda: components.journal_for_pages,
        settings=lake.settings.model_copy(update={"notify": notify}),
    )
