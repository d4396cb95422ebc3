"""What a commit says: one property that names its run, and what it adds to and removes from what is published."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Literal

from pydantic import Field, ValidationError

from lakegate.errors import NewerFormatError
from lakegate.model.base import Value
from lakegate.model.quarantine import SUFFIX, is_quarantine
from lakegate.model.refs import Commit
from lakegate.model.run import RUN_ID_PROPERTY, Acceptance, Run, RunKind, Slice

PROPERTY = "lakegate"
"""Key of what a commit says. The run id stands beside it under :data:`~lakegate.model.run.RUN_ID_PROPERTY`, too: a
catalog finds a run's commit by comparing one property, and can't look into JSON, let alone into compressed text."""
FORMAT: Literal[1] = 1
"""Format of the property. Who doesn't know a commit's format publishes nothing."""
_ZIPPED = "zlib:"
_LONGEST_PLAIN = 2_000

File = tuple[str, str]
"""A source file in a commit: its URI and its version."""
Entry = tuple[str, str]
"""A run that stands in a table: the table's name and the run's id."""


UNDOES: frozenset[RunKind] = frozenset(("revert", "restore"))
"""Kinds of runs that undo others. A drop is a restore, too."""


class TableEffect(Value):
    """What a commit changes about what is published to one table.

    Attributes:
        add: The runs whose rows stand in the table from now on, each with its source files.
        remove: The runs whose rows don't any more.
    """

    add: dict[str, tuple[File, ...]] = Field(default_factory=dict)
    remove: tuple[str, ...] = ()


class Event(Value):
    """What a commit says.

    Attributes:
        run: The run that made it.
        tables: Its tables, by their names after the commit, and its effect on each.
        moved: Old and new name of each table that it renamed. Quarantine tables go with theirs.
        branch: The run's branch.
        audit: A summary of its audit, as text for people.
        accepted: Who published it although its audit failed, and why.
        reads: Tables that its outcome depends on.
        keys: Tables in which it checked that its keys were new, so that no rows may be restored to them.
        mode: The write mode of an ingest, if it did more than append.
        columns: Changes to columns, as text for people.
        slice: What it published of a stream.
        compaction: The commit in which Iceberg compacted the run's table; it names no run itself.
    """

    run: str
    kind: RunKind
    tables: dict[str, TableEffect] = Field(default_factory=dict)
    moved: tuple[tuple[str, str], ...] = ()
    branch: str = ""
    audit: str = ""
    accepted: Acceptance | None = None
    reads: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    mode: str = ""
    columns: str = ""
    slice: Slice | None = None
    compaction: str = ""

    @property
    def files(self) -> tuple[File, ...]:
        """The source files that the run published. They're the same for each of its tables that has any."""
        return next((own for one in self.tables.values() if (own := one.add.get(self.run))), ())

    @property
    def reverts(self) -> tuple[str, ...]:
        """The runs whose rows it removed from one of its tables."""
        return tuple(dict.fromkeys(run for one in self.tables.values() for run in one.remove))

    @property
    def removed(self) -> Iterator[Entry]:
        """What it removes from what is published."""
        for name, effect in self.tables.items():
            yield from ((family(name), run) for run in effect.remove)

    @property
    def added(self) -> Iterator[tuple[Entry, tuple[File, ...]]]:
        """What it adds to what is published, each with its source files, in order."""
        for name, effect in self.tables.items():
            yield from (((family(name), run), files) for run, files in effect.add.items())


class PastCommit(Value):
    """What the journal needs to know of a commit.

    Attributes:
        time: When it was made.
        event: What it says; ``None`` if lakegate didn't make it.
    """

    hash: str
    time: datetime
    event: Event | None = None


def family(table: str) -> str:
    """Return the name of the table that a quarantine table belongs to; any other name as it is.

    In the ledger, both are one: a run that is reverted in one of them is in both.

    Example:
        >>> family("nyc.trips__quarantine"), family("nyc.trips")
        ('nyc.trips', 'nyc.trips')
    """
    return table.removesuffix(SUFFIX)


def effects_on(
    tables: Iterable[str], run: str, files: tuple[File, ...] = (), removes: Sequence[str] = ()
) -> dict[str, TableEffect]:
    """Return the effects of a commit by which a run publishes ``files`` to all ``tables``.

    Args:
        removes: The runs that it removes from all of them.
    """
    # Source files are published to their table, whatever rows of them are quarantined.
    return {
        table: TableEffect(add={run: () if is_quarantine(table) else files}, remove=tuple(removes)) for table in tables
    }


def mode_of(run: Run) -> str | None:
    """Return the run's write mode, if it did more than append."""
    return None if run.request is None or run.request.mode.appends else run.request.mode.name


def run_of(commit: Commit) -> str | None:
    """Return the run that made ``commit``; ``None`` if lakegate didn't make it."""
    return commit.properties.get(RUN_ID_PROPERTY)


def event_of(commit: Commit) -> Event | None:
    """Return what ``commit`` says; ``None`` if lakegate didn't make it.

    Raises:
        NewerFormatError: When it's in an unknown format.
    """
    run_id, text = run_of(commit), commit.properties.get(PROPERTY)
    if run_id is None:
        return None
    if text is None:  # it was made on a run's branch, and somebody else took it to the target
        return Event(run=run_id, kind="branch", tables={str(one.table): TableEffect() for one in commit.puts})
    problem, tables = "it can't be parsed", ""
    try:
        said = json.loads(unpacked(text))
        number = said.pop("v")
        if number == FORMAT:
            return Event.model_validate(said)
        problem, tables = f"format {number}, known is {FORMAT}", ", ".join(said.get("tables", ()))
    except (ValueError, TypeError, LookupError, AttributeError, zlib.error, ValidationError):
        pass
    raise NewerFormatError(
        f"Commit {commit.hash[:12]} of run {run_id} says what it published to {tables or 'unknown tables'} in a format "
        f"that this version of lakegate can't read ({PROPERTY}: {problem}). It was written by a newer lakegate.",
        hint=f"Upgrade: pip install --upgrade lakegate. To see the commit: lakegate log {commit.hash} --limit 1",
        commit=commit.hash,
        table=tables or None,
        run_id=run_id,
        property=PROPERTY,
    )


def unreadable_in(commit: Commit) -> str | None:
    """Return why this release can't read what ``commit`` says; ``None`` if it can."""
    try:
        event_of(commit)
    except NewerFormatError as error:
        return error.message
    return None


def past_commit(commit: Commit) -> PastCommit:
    """Return what the journal needs to know of ``commit``. Raises the same errors as :func:`event_of`."""
    return PastCommit(hash=commit.hash, time=commit.time, event=event_of(commit))


def as_properties(event: Event) -> dict[str, str]:
    """Return the properties of a commit that says this.

    Example:
        >>> event = Event(run="r1", kind="ingest", tables={"a.b": TableEffect(add={"r1": (("file:///x", "v1"),)})})
        >>> as_properties(event)["lakegate"]
        '{"v":1,"run":"r1","kind":"ingest","tables":{"a.b":{"add":{"r1":[["file:///x","v1"]]}}}}'
    """
    said = {"v": FORMAT, **event.model_dump(mode="json", exclude_defaults=True)}
    return {RUN_ID_PROPERTY: event.run, PROPERTY: packed(json.dumps(said, separators=(",", ":")))}


def packed(text: str) -> str:
    """Return text as a commit property, compressed if it's long."""
    if len(text) <= _LONGEST_PLAIN:
        return text
    return _ZIPPED + base64.b64encode(zlib.compress(text.encode(), level=9)).decode("ascii")


def unpacked(text: str) -> str:
    """Return the text from a property that :func:`packed` made.

    Raises:
        ValueError, zlib.error: When it isn't such a property.
    """
    if not text.startswith(_ZIPPED):
        return text
    return zlib.decompress(base64.b64decode(text.removeprefix(_ZIPPED), validate=True)).decode()
