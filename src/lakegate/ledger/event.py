"""What a commit says: the properties that lakegate writes into commits and reads back."""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from lakegate.errors import NewerFormatError
from lakegate.model.batch import SourceFile
from lakegate.model.quarantine import SUFFIX, is_quarantine
from lakegate.model.refs import Commit
from lakegate.model.run import RUN_ID_PROPERTY, HistoryEvent, Run

BRANCH_PROPERTY = "lakegate.branch"
AUDIT_PROPERTY = "lakegate.audit"
ACCEPTED_PROPERTY = "lakegate.accepted"
"""Why somebody published a branch that failed its audit; ``lakegate.accepted-by`` says who."""
ACCEPTED_BY_PROPERTY = "lakegate.accepted-by"
TABLES_PROPERTY = "lakegate.tables"
FILES_PROPERTY = "lakegate.files"
READS_PROPERTY = "lakegate.reads"
KEYS_PROPERTY = "lakegate.keys"
"""The tables in which a run checked that its keys were new, so that no rows may be restored to them."""
REVERTS_PROPERTY = "lakegate.reverts"
MODE_PROPERTY = "lakegate.mode"
"""The write mode of an ingest, if it did more than append."""
SCHEMA_PROPERTY = "lakegate.schema"
"""Columns that an ingest added or widened, as text for people."""
REVIVES_PROPERTY = "lakegate.revives"
"""Source files whose rows a revert or restore brings back: table, URI, version and run of each."""
KIND_PROPERTY = "lakegate.kind"
"""``revert`` or ``restore``, on the commit of one; other commits lack it."""

RENAMES_PROPERTY = "lakegate.renames"
"""Renamed tables: the old name of each, followed by the new one."""

_KINDS: Mapping[str, Literal["reverted", "restored"]] = {"revert": "reverted", "restore": "restored"}

COMPACTION_PROPERTY = "lakegate.compaction"
"""The commit in which Iceberg compacted the run's table; it names no run itself."""

FORMAT = 1
"""Format of the properties that name source files. Who doesn't know a commit's format publishes nothing."""
_REVIVED_WIDTH = 4

_ZIPPED = "zlib:"
_LONGEST_PLAIN = 2_000


def run_properties(
    run: Run, *, audit: str, reads: Sequence[str], keys: Sequence[str], reverts: Sequence[str]
) -> dict[str, str]:
    """Return the properties of a commit that publishes ``run``."""
    changes = (f"{one.table}: {change}" for one in run.staged for change in one.schema_changes)
    properties = {
        RUN_ID_PROPERTY: run.run_id,
        BRANCH_PROPERTY: run.branch,
        TABLES_PROPERTY: " ".join(run.tables),
        AUDIT_PROPERTY: audit,
        READS_PROPERTY: " ".join(reads),
        KEYS_PROPERTY: " ".join(keys),
        ACCEPTED_PROPERTY: "" if run.accepted is None else run.accepted.reason,
        ACCEPTED_BY_PROPERTY: "" if run.accepted is None else run.accepted.actor,
        SCHEMA_PROPERTY: "; ".join(changes),
        MODE_PROPERTY: mode_of(run) or "",
        FILES_PROPERTY: "" if run.request is None else encode_files(run.request.own_files),
        REVERTS_PROPERTY: packed(" ".join(reverts)),  # a truncate reverts every run of its table
    }
    return {key: value for key, value in properties.items() if value}


def mode_of(run: Run) -> str | None:
    """Return the run's write mode, if it did more than append."""
    return None if run.request is None or run.request.mode.appends else run.request.mode.name


def run_of(commit: Commit) -> str | None:
    """Return the run that made ``commit``; ``None`` if lakegate didn't make it."""
    return commit.properties.get(RUN_ID_PROPERTY)


def kind_of(commit: Commit) -> str | None:
    """Return ``revert`` or ``restore`` for the commit of one, else ``None``."""
    return commit.properties.get(KIND_PROPERTY)


def reverts_in(commit: Commit) -> tuple[str, ...]:
    """Return the runs that ``commit`` reverted, or whose files it replaced."""
    try:
        return tuple(unpacked(commit.properties.get(REVERTS_PROPERTY, "")).split())
    except (ValueError, zlib.error) as error:
        raise _unreadable(commit, REVERTS_PROPERTY, error) from None


def renames_in(commit: Commit) -> tuple[tuple[str, str], ...]:
    """Return the old and the new name of each table that ``commit`` renamed."""
    names = commit.properties.get(RENAMES_PROPERTY, "").split()
    return tuple(zip(names[::2], names[1::2], strict=False))


def with_quarantine_renames(renames: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Add the renames of quarantine tables to ``renames``, also of those that didn't exist at that moment."""
    found = dict(renames)
    own = [(f"{old}{SUFFIX}", f"{new}{SUFFIX}") for old, new in found.items() if not is_quarantine(old)]
    return tuple((dict(own) | found).items())


def tables_in(commit: Commit) -> tuple[str, ...]:
    """Return the tables that a commit of lakegate wrote to."""
    listed = tuple(commit.properties.get(TABLES_PROPERTY, "").split())
    return listed or tuple(str(pointer.table) for pointer in commit.puts)


def reads_in(commit: Commit) -> tuple[str, ...]:
    """Return the tables that the run of ``commit`` relied on."""
    return tuple(commit.properties.get(READS_PROPERTY, "").split())


def keys_in(commit: Commit) -> tuple[str, ...]:
    """Return the tables of ``commit`` whose keys its run checked as new."""
    return tuple(commit.properties.get(KEYS_PROPERTY, "").split())


def encode_files(files: Iterable[SourceFile]) -> str:
    """Return source files as a commit property: the format, then URI and version of each, compressed if it's long.

    Example:
        >>> encode_files([SourceFile(uri="file:///a", size_bytes=1, version="v1", rows=1)])
        '{"format":1,"files":[["file:///a","v1"]]}'
    """
    return _encode([(file.uri, file.version) for file in files])


def encode_revived(files: Sequence[tuple[str, str, str, str]]) -> str:
    """Return restored source files (table, URI, version, run) as a commit property."""
    return _encode(files)


def _encode(lines: Sequence[Sequence[str]]) -> str:
    what = {"format": FORMAT, "files": lines}
    return packed(json.dumps(what, separators=(",", ":")))


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


def files_in(commit: Commit) -> tuple[tuple[str, str], ...]:
    """Return URI and version of each source file that ``commit`` published."""
    return tuple((uri, version) for uri, version in _lines(commit, FILES_PROPERTY, 2))


def revived_in(commit: Commit) -> tuple[tuple[str, str, str, str], ...]:
    """Return table, URI, version and run of each source file that ``commit`` restored. Raises the same errors."""
    lines = _lines(commit, REVIVES_PROPERTY, _REVIVED_WIDTH)
    return tuple((table, uri, version, run) for table, uri, version, run in lines)


def unreadable_in(commit: Commit) -> str | None:
    """Return why this release can't read the source files that ``commit`` names; ``None`` if it can."""
    try:
        files_in(commit), revived_in(commit)
    except NewerFormatError as error:
        return error.message
    return None


def _lines(commit: Commit, key: str, width: int) -> list[list[str]]:
    text = commit.properties.get(key, "")
    try:
        return _decode(text, width) if text else []
    except (ValueError, TypeError, LookupError, zlib.error, binascii.Error) as error:
        raise _unreadable(commit, key, error) from None


def _unreadable(commit: Commit, key: str, error: Exception) -> NewerFormatError:
    reason = str(error) if isinstance(error, _UnknownFormatError) else "it can't be parsed"
    tables = commit.properties.get(TABLES_PROPERTY, "")
    return NewerFormatError(
        f"Commit {commit.hash[:12]} names the source files that it published to {tables or 'unknown tables'} in a "
        f"format that this version of lakegate can't read ({key}: {reason}). It was written by a newer lakegate.",
        hint=f"Upgrade: pip install --upgrade lakegate. To see the commit: lakegate log {commit.hash} --limit 1",
        commit=commit.hash,
        table=tables or None,
        run_id=commit.properties.get(RUN_ID_PROPERTY),
        property=key,
    )


class _UnknownFormatError(ValueError):
    """A newer lakegate wrote the property."""


def _decode(text: str, width: int) -> list[list[str]]:
    """Return the lines of a property."""
    found = json.loads(unpacked(text))
    if found["format"] != FORMAT:
        raise _UnknownFormatError(f"format {found['format']}, known is {FORMAT}")
    lines = found["files"]
    if not isinstance(lines, list) or not all(_is_line(line, width) for line in lines):
        raise ValueError("no list of files")
    return lines


def _is_line(line: object, width: int) -> bool:
    return isinstance(line, list) and len(line) == width and all(isinstance(value, str) for value in line)


def event_of(commit: Commit) -> HistoryEvent | None:
    """Return the event of the run that made ``commit``; ``None`` if lakegate didn't make it."""
    properties = commit.properties
    run_id = properties.get(RUN_ID_PROPERTY)
    if run_id is None:
        return None
    return HistoryEvent(
        commit=commit.hash,
        run_id=run_id,
        time=commit.time,
        tables=tuple(properties.get(TABLES_PROPERTY, "").split()),
        files=files_in(commit),
        reverts=reverts_in(commit),
        revives=revived_in(commit),
        kind=_KINDS.get(kind_of(commit) or "", "published"),
        renames=renames_in(commit),
    )
