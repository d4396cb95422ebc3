"""The plan and the report of a backfill: its chunks, and each one's outcome."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeAlias, cast

from lakegate.errors import InputError
from lakegate.loading.periods import UNITS, Period, Template, TimeRange, Unit, is_template
from lakegate.loading.routes import location
from lakegate.model.base import Value
from lakegate.model.batch import Claim, KnownFile
from lakegate.model.run import RunError

if TYPE_CHECKING:
    from lakegate.sources.discovery import FoundFile

DatedBy = Literal["path", "modified"]
"""Where a file's time comes from: a date in its path, or its modification time."""
Chunking: TypeAlias = Unit | Literal["file"] | int
"""Chunk size: a period of time, one file, or a number of files."""
FileState = Literal["new", "published", "changed", "busy"]
"""A file's state in the table. ``changed``: the same path was published earlier with other content."""

_SIZED = re.compile(r"([1-9][0-9]{0,5})(?: +files?)?", re.ASCII)
_DATE_HINT = (
    "Mark the date in the path, as in 'trips/%Y/%m/green_%Y-%m-%d*.parquet', or use modification times: --by modified."
)
_CHUNK_UNITS: tuple[Unit, ...] = ("hour", "day", "month", "year")


class BackfillFile(Value):
    """A file in the range.

    Attributes:
        period: The period its data covers, as text: ``2024-01-31``.
        run_id: The run that published it or is working on it.
    """

    uri: str
    size_bytes: int
    period: str
    state: FileState = "new"
    run_id: str | None = None


class BackfillChunk(Value):
    """Files to ingest in one run.

    Attributes:
        name: Its period, or the name of its only file.
        table: ``namespace.table``.
        files: All its files, including those already published.
        whole: Whether to ingest all of them if one isn't published, because the mode removes rows that the run lacks.
    """

    name: str
    table: str
    files: tuple[BackfillFile, ...]
    whole: bool = False

    @property
    def to_do(self) -> tuple[BackfillFile, ...]:
        """Files to ingest: those whose current version isn't published yet, or all if the chunk is :attr:`whole`."""
        left = tuple(file for file in self.files if file.state != "published")
        return self.files if self.whole and left else left

    @property
    def size_bytes(self) -> int:
        """Total size of the files in :attr:`to_do`."""
        return sum(file.size_bytes for file in self.to_do)


class BackfillPlan(Value):
    """The chunks of a backfill.

    Attributes:
        table: ``namespace.table``.
        since: Start of the range; ``None`` if it's open.
        until: End of the range, exclusive; ``None`` if it's open.
        creates: Whether the table doesn't exist yet.
        chunks: Oldest first.
        beyond: Number of files whose period extends past the range. They're ingested whole.
        in_order: Whether chunks run one at a time, because each may change rows of earlier ones.
    """

    table: str
    since: datetime | None
    until: datetime | None
    creates: bool
    chunks: tuple[BackfillChunk, ...]
    beyond: int = 0
    in_order: bool = False

    @property
    def to_do(self) -> tuple[BackfillChunk, ...]:
        """Chunks that aren't fully published."""
        return tuple(chunk for chunk in self.chunks if chunk.to_do)


class DatedFile(NamedTuple):
    """A file and the period its data covers."""

    period: Period
    file: FoundFile


def parse_chunking(text: str) -> Chunking:
    """Parse a chunk size: ``hour``, ``day``, ``month``, ``year``, ``file``, or a number of files.

    Example:
        >>> parse_chunking("day"), parse_chunking("50 files")
        ('day', 50)
    """
    sized = _SIZED.fullmatch(text)
    if sized is not None:
        return int(sized[1])
    if text in (*_CHUNK_UNITS, "file"):
        return cast("Chunking", text)
    raise InputError(
        f"Invalid chunk size '{text}'.", hint=f"Use {', '.join(_CHUNK_UNITS)}, file, or a number of files."
    )


def find_files(
    listed: Callable[[Sequence[str]], Iterable[FoundFile]], paths: Sequence[str], wanted: TimeRange, *, by: DatedBy
) -> Sequence[DatedFile]:
    """Return the files that overlap a range, oldest first.

    Args:
        listed: Lists the files at given paths, as :meth:`lakegate.api.files.Files.list` does.
        paths: Files, folders and globs, with date fields (:class:`~lakegate.loading.periods.Template`) or, by
            modification time, without.

    Raises:
        InputError: If there are none, or a file's time is unknown.
    """
    found: dict[str, DatedFile] = {}
    for path in paths:
        template = Template(path) if is_template(path) else None
        if template is None and by == "path":
            raise InputError(f"'{path}' doesn't say where the date of its files is.", hint=_DATE_HINT, path=path)
        is_empty = True
        for file in listed((path,) if template is None else template.globs(wanted if by == "path" else TimeRange())):
            is_empty = False
            period = _period(file, None if by == "modified" else template)
            if wanted.overlaps(period):
                found.setdefault(file.uri, DatedFile(period, file))
        if is_empty and template is None:
            raise InputError(f"No files found at '{path}'.", hint="Check the path.", path=path)
    if not found:
        raise InputError(
            f"No files in the range at {', '.join(paths)}.",
            hint="Check the path, and --from and --to.",
            paths=list(paths),
        )
    return sorted(found.values(), key=lambda one: (one.period.start, one.file.uri))


def make_chunks(
    table: str, files: Sequence[DatedFile], chunking: Chunking, known: Claim, *, whole: bool
) -> tuple[BackfillChunk, ...]:
    """Return the chunks of ``files``; ``known`` says which of them the table already has.

    Args:
        whole: See :attr:`BackfillChunk.whole`.
    """
    claims: Mapping[FileState, Sequence[KnownFile]] = {
        "published": known.published,
        "changed": known.changed,
        "busy": known.busy,
    }
    states = {one.file.uri: (state, one.run_id) for state, ones in claims.items() for one in ones}

    def planned(one: DatedFile) -> BackfillFile:
        state, run_id = states.get(one.file.uri, ("new", None))
        uri, size_bytes = one.file.uri, one.file.size_bytes
        return BackfillFile(uri=uri, size_bytes=size_bytes, period=str(one.period), state=state, run_id=run_id)

    return tuple(
        BackfillChunk(name=name, table=table, files=tuple(map(planned, members)), whole=whole)
        for name, members in _grouped(files, chunking)
    )


def finest_unit(files: Iterable[DatedFile]) -> Unit:
    """Return the default chunk size: the finest unit of the files' dates, but no finer than an hour."""
    return UNITS[min(max(UNITS.index(one.period.unit) for one in files), UNITS.index("hour"))]


def _period(file: FoundFile, template: Template | None) -> Period:
    if template is None:
        return Period.of(file.modified_at, "second")
    path = location(file.uri)
    period = template.read(path)
    if period is None:
        raise InputError(f"'{path}' has no date where '{template.text}' has one.", hint=_DATE_HINT, file=path)
    return period


def _grouped(files: Sequence[DatedFile], chunking: Chunking) -> Iterator[tuple[str, Sequence[DatedFile]]]:
    if isinstance(chunking, int):
        for start in range(0, len(files), chunking):
            members = files[start : start + chunking]
            first, last = str(members[0].period), str(members[-1].period)
            yield first if first == last else f"{first} to {last}", members
    elif chunking == "file":
        for one in files:
            yield location(one.file.uri).rpartition("/")[2], (one,)
    else:
        groups: defaultdict[str, list[DatedFile]] = defaultdict(list)
        for one in files:
            groups[str(one.period.widened(chunking))].append(one)
        yield from groups.items()


Outcome = Literal["published", "already", "empty", "rejected", "failed", "later", "waiting"]
"""``already``: published before. ``empty``: has no rows. ``later``: a retry may help. ``waiting``: not started."""


class ChunkResult(Value):
    """The outcome of a chunk.

    Attributes:
        given: Number of files to ingest.
        files: Number of files published.
        size_bytes: Total size of the files to ingest.
        left: Number of files skipped because other runs hold them and haven't published them yet.
        branch: The branch of a rejected chunk, if it was kept.
    """

    chunk: str
    outcome: Outcome
    run_id: str | None = None
    given: int = 0
    files: int = 0
    rows: int = 0
    size_bytes: int = 0
    left: int = 0
    seconds: float = 0.0
    branch: str | None = None
    failed_checks: tuple[str, ...] = ()
    error: RunError | None = None


class BackfillReport(Value):
    """What a backfill did.

    Attributes:
        results: One for each chunk, in the plan's order.
        given_up: Whether a second interrupt left chunks running.
    """

    table: str
    results: tuple[ChunkResult, ...]
    seconds: float
    interrupted: bool = False
    given_up: bool = False

    @property
    def again(self) -> bool:
        """Whether running the backfill again may publish more."""
        return any(one.outcome in ("later", "waiting") or one.left for one in self.results)

    def with_outcome(self, *outcomes: Outcome) -> tuple[ChunkResult, ...]:
        """Return the results with one of these outcomes."""
        return tuple(one for one in self.results if one.outcome in outcomes)


class BackfillObserver(Protocol):
    """Shows the progress of a backfill. Called by one thread at a time."""

    def began(self, chunk: BackfillChunk) -> None:
        """Show that this thread has started a chunk."""

    def ended(self, result: ChunkResult) -> None:
        """Show that this thread has finished a chunk."""

    def stopping(self, under_way: int) -> None:
        """Show that the backfill was interrupted and waits for ``under_way`` running chunks."""
