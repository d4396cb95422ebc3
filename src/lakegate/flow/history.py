"""What lakegate writes into commits, and reads back from the target's history: the truth about what is published.

The journal holds a copy, so that a source file need not be looked for in thousands of commits. :func:`sync` keeps it
up to date, commit by commit; a journal that was lost is made anew from the same properties.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Iterable, Sequence

from lakegate.flow.rooms import Rooms
from lakegate.model.batch import SourceFile
from lakegate.model.journal import HistoryEvent
from lakegate.model.refs import Commit, Ref
from lakegate.model.run import RUN_ID_PROPERTY

BRANCH_PROPERTY = "lakegate.branch"
AUDIT_PROPERTY = "lakegate.audit"
TABLES_PROPERTY = "lakegate.tables"
FILES_PROPERTY = "lakegate.files"
READS_PROPERTY = "lakegate.reads"
REVERTS_PROPERTY = "lakegate.reverts"
REVIVES_PROPERTY = "lakegate.revives"
KIND_PROPERTY = "lakegate.kind"
"""What made a commit that undoes: ``revert`` or ``restore``; others lack it."""

_ZIPPED = "zlib:"
_LONGEST_PLAIN = 2_000


def encode_files(files: Iterable[SourceFile]) -> str:
    """Return source files as a commit property: JSON pairs of URI and version, packed when they are many.

    Example:
        >>> encode_files([SourceFile(uri="file:///a", size_bytes=1, version="v1", rows=1)])
        '[["file:///a","v1"]]'
    """
    return _encode((file.uri, file.version) for file in files)


def encode_revived(files: Iterable[tuple[str, str, str, str]]) -> str:
    """Return table, URI, version and run of source files that come back as a commit property."""
    return _encode(files)


def _encode(lines: Iterable[Sequence[str]]) -> str:
    text = json.dumps([list(line) for line in lines], separators=(",", ":"))
    if len(text) <= _LONGEST_PLAIN:
        return text
    return _ZIPPED + base64.b64encode(zlib.compress(text.encode(), level=9)).decode("ascii")


def decode_files(text: str) -> tuple[tuple[str, str], ...]:
    """Return URI and version of each file that :func:`encode_files` wrote; nothing when it wrote something else.

    Example:
        >>> decode_files('[["file:///a","v1"]]'), decode_files("?")
        ((('file:///a', 'v1'),), ())
    """
    return tuple((line[0], line[1]) for line in _decode(text, 2))


def decode_revived(text: str) -> tuple[tuple[str, str, str, str], ...]:
    """Return what :func:`encode_revived` was given; nothing when something else wrote ``text``."""
    return tuple((line[0], line[1], line[2], line[3]) for line in _decode(text, 4))


def _decode(text: str, width: int) -> list[list[str]]:
    try:
        if text.startswith(_ZIPPED):
            text = zlib.decompress(base64.b64decode(text.removeprefix(_ZIPPED))).decode()
        lines = [[str(value) for value in line] for line in json.loads(text or "[]")]
    except (ValueError, TypeError, zlib.error, binascii.Error):
        return []
    return lines if all(len(line) == width for line in lines) else []


def event_of(commit: Commit) -> HistoryEvent | None:
    """Return what ``commit`` says of runs; ``None`` when it is not lakegate's."""
    properties = commit.properties
    run_id = properties.get(RUN_ID_PROPERTY)
    if run_id is None:
        return None
    return HistoryEvent(
        commit=commit.hash,
        run_id=run_id,
        time=commit.time,
        tables=tuple(properties.get(TABLES_PROPERTY, "").split()),
        files=decode_files(properties.get(FILES_PROPERTY, "")),
        reverts=tuple(properties.get(REVERTS_PROPERTY, "").split()),
        revives=decode_revived(properties.get(REVIVES_PROPERTY, "")),
    )


def sync(rooms: Rooms, target: str) -> Ref:
    """Read the commits of ``target`` that the journal has not seen yet, and return the head it knows now.

    A journal that knows nothing yet, or knows a commit that the target has left behind, learns the whole history.
    """
    head = rooms.catalog.get_ref(target)
    known = rooms.journal.synced(target)
    if known == head.hash:
        return head
    commits = list(rooms.catalog.history(head.hash, until=known))
    # A branch that was reset has left behind the commit we knew: what it holds now is all there is.
    lost = known is not None and _parent(commits) != known
    rooms.journal.record(target, _events(commits), head.hash, rebuild=lost or known is None)
    return head


def _parent(commits: Sequence[Commit]) -> str | None:
    return commits[-1].parent if commits else None


def _events(newest_first: Sequence[Commit]) -> list[HistoryEvent]:
    events = (event_of(commit) for commit in reversed(newest_first))
    return [event for event in events if event is not None]
