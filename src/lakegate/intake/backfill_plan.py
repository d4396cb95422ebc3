"""What a backfill would do: the files of a range of time in chunks, oldest first, and what is published of them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, cast

from lakegate.errors import InputError
from lakegate.intake.dating import date_in
from lakegate.intake.periods import UNITS, Period, TimeRange, Unit
from lakegate.intake.places import location
from lakegate.intake.templates import Template, is_template
from lakegate.model.base import Value
from lakegate.model.journal import Claim
from lakegate.model.run import KnownFile

if TYPE_CHECKING:
    from lakegate.sources.listing import FoundFile

DatedBy = Literal["path", "modified"]
"""What tells which time a file is about: a date in its path, or the time of its last change."""
Chunking: TypeAlias = Unit | Literal["file"] | int
"""What goes into one chunk: the files of a span of time, one file, or so many files."""
FileState = Literal["new", "published", "changed", "busy"]
"""How a file stands to the table; ``changed``: its path was published with other content."""

Listing: TypeAlias = "Callable[[Sequence[str]], Iterator[FoundFile]]"

_SIZED = re.compile(r"([1-9][0-9]{0,5})(?: +files?)?", re.ASCII)
_CHUNK_UNITS: tuple[Unit, ...] = ("hour", "day", "month", "year")


class BackfillFile(Value):
    """A file of the range.

    Attributes:
        period: The time that it is about, as text: ``2024-01-31``.
        run_id: The run that published it, or is at it.
    """

    uri: str
    size_bytes: int
    period: str
    state: FileState = "new"
    run_id: str | None = None


class BackfillChunk(Value):
    """Files that are ingested in one run.

    Attributes:
        name: What tells it from the others: its span of time, or its file's name.
        table: ``namespace.table``.
        files: Those that are published already included.
    """

    name: str
    table: str
    files: tuple[BackfillFile, ...]

    @property
    def to_do(self) -> tuple[BackfillFile, ...]:
        """The files that are not published in the version that they have now."""
        return tuple(file for file in self.files if file.state != "published")

    @property
    def size_bytes(self) -> int:
        """Length in bytes of the files that are to do."""
        return sum(file.size_bytes for file in self.to_do)


class BackfillPlan(Value):
    """What a backfill would do.

    Attributes:
        table: ``namespace.table``.
        since: Beginning of the range; ``None`` when it is open.
        until: End of the range, itself not in it; likewise.
        creates: Whether the table does not exist yet.
        chunks: Oldest first.
        beyond: Number of files that reach beyond the range: they are ingested whole.
    """

    table: str
    since: datetime | None
    until: datetime | None
    creates: bool
    chunks: tuple[BackfillChunk, ...]
    beyond: int = 0

    @property
    def to_do(self) -> tuple[BackfillChunk, ...]:
        """The chunks that are not published in whole."""
        return tuple(chunk for chunk in self.chunks if chunk.to_do)


class DatedFile(NamedTuple):
    """A file, and the time that it is about."""

    period: Period
    file: FoundFile


def parse_chunking(text: str) -> Chunking:
    """Read what goes into one chunk: ``hour``, ``day``, ``month``, ``year``, ``file``, or a number of files.

    Raises:
        InputError: When it is something else.

    Example:
        >>> parse_chunking("day"), parse_chunking("50 files")
        ('day', 50)
    """
    sized = _SIZED.fullmatch(text)
    if sized is not None:
        return int(sized[1])
    if text in (*_CHUNK_UNITS, "file"):
        return cast("Chunking", text)
    raise InputError(f"'{text}' is no chunk.", hint=f"Say {', '.join(_CHUNK_UNITS)}, file, or a number of files.")


def find_files(
    listed: Listing, paths: Sequence[str], wanted: TimeRange, *, by: DatedBy = "path"
) -> Sequence[DatedFile]:
    """Return the files of a range, oldest first. A file that is partly in it is in.

    Args:
        listed: Lists the files that paths name; :meth:`lakegate.lake.Lake.list_files`.
        paths: Files, folders, globs, and such with a date's fields (:class:`~lakegate.intake.templates.Template`).
        wanted: The range.
        by: What tells which time a file is about.

    Raises:
        InputError: When no file is there, or it cannot be told what time one is about.
    """
    found: dict[str, DatedFile] = {}
    undated: list[str] = []
    for path in paths:
        template = Template(path) if is_template(path) else None
        for file in _found(listed, path, template, wanted if by == "path" else TimeRange()):
            period = _period(file, template, by)
            if period is None:
                undated.append(location(file.uri))
            elif wanted.overlaps(period):
                found.setdefault(file.uri, DatedFile(period, file))
    if undated:
        raise _undated(undated)
    if not found:
        raise InputError(
            f"No file of the range is at {', '.join(paths)}.",
            hint="Check the path, and --from and --to.",
            paths=list(paths),
        )
    return sorted(found.values(), key=lambda one: (one.period.start, one.file.uri))


def make_plan(
    table: str, files: Sequence[DatedFile], wanted: TimeRange, chunking: Chunking, known: Claim, *, creates: bool
) -> BackfillPlan:
    """Return the plan for ``files``, of which ``known`` tells how they stand to the table."""
    states = _states(known)
    chunks = tuple(
        BackfillChunk(name=name, table=table, files=tuple(_planned(one, states) for one in members))
        for name, members in _grouped(files, chunking)
    )
    beyond = sum(not wanted.covers(one.period) for one in files)
    return BackfillPlan(
        table=table, since=wanted.start, until=wanted.end, creates=creates, chunks=chunks, beyond=beyond
    )


def finest_unit(files: Iterable[DatedFile]) -> Unit:
    """Return the finest unit in which the files tell their time, an hour at most: one chunk's, by default."""
    return UNITS[min(max(UNITS.index(one.period.unit) for one in files), UNITS.index("hour"))]


def _found(listed: Listing, path: str, template: Template | None, wanted: TimeRange) -> Iterator[FoundFile]:
    if template is not None:
        yield from listed(template.globs(wanted))
        return
    nothing = True
    for file in listed([path]):
        nothing = False
        yield file
    if nothing:
        raise InputError(f"No file is at '{path}'.", hint="Check the path.", path=path)


def _period(file: FoundFile, template: Template | None, by: DatedBy) -> Period | None:
    if by == "modified":
        return Period.of(file.modified_at, "second")
    path = location(file.uri)
    return date_in(path) if template is None else template.read(path)


def _undated(paths: Sequence[str]) -> InputError:
    more = f" (and {len(paths) - 1:,} more)" if len(paths) > 1 else ""
    return InputError(
        f"It cannot be told what time '{paths[0]}'{more} is about: its path holds no date, or more than one.",
        hint="Say where the date stands: 'trips/%Y/%m/green_%Y-%m-%d*.parquet'; or go by the time of last change: "
        "--by modified.",
        file=paths[0],
        files=list(paths[:100]),
    )


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


def _states(known: Claim) -> Mapping[str, tuple[FileState, str]]:
    told: Mapping[FileState, Sequence[KnownFile]] = {
        "published": known.published,
        "changed": known.changed,
        "busy": known.busy,
    }
    return {one.file.uri: (state, one.run_id) for state, ones in told.items() for one in ones}


def _planned(one: DatedFile, states: Mapping[str, tuple[FileState, str]]) -> BackfillFile:
    state, run_id = states.get(one.file.uri, ("new", None))
    return BackfillFile(
        uri=one.file.uri, size_bytes=one.file.size_bytes, period=str(one.period), state=state, run_id=run_id
    )
