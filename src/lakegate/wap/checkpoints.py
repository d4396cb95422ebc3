"""Checkpoints of ``main``'s history, so that nobody has to read it from its beginning (docs/decisions/0093).

A checkpoint is two files in the warehouse, and a commit on the branch that names them by their SHA-256:

- what all commits up to one say about runs, which a journal is made of;
- every file that these commits need, which ``gc`` needn't find again.

So nobody who may write files, but may not commit to ``main``, can make one or change one; and a history that doesn't
hold the commit doesn't have the checkpoint. One whose files are missing, damaged or from a newer lakegate counts for
nothing: whoever reads the history continues with the one before, or to the beginning.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
import zlib
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from pydantic import ValidationError

from lakegate.errors import ConflictError, LakegateError
from lakegate.model.base import Value
from lakegate.model.journal import PastCommit
from lakegate.model.refs import Commit, CommitRequest
from lakegate.model.tables import StoredFile
from lakegate.wap.context import Context

CHECKPOINT_PROPERTY = "lakegate.checkpoint"
FOLDER = ".lakegate-history"
"""Of the files, below the warehouse's root."""
EVERY = 1_000
"""Commits after which ``gc`` makes another one."""
_FORMAT = 1
_FILES_KEPT = 6
_ATTEMPTS = 5
_DIGEST_BYTES = 16
_SHA256 = re.compile(r"[0-9a-f]{64}")
_LINE_BEGINS = b'{"hash":"'


class Checkpoint(Value):
    """What a commit's property says of a checkpoint.

    Attributes:
        format: Of the files. A lakegate that reads more out of commits, or less, has another one.
        past: The SHA-256 of the file that holds a :class:`Past`.
        needed: Of the one that holds a :class:`Needed`, if there is one.
    """

    format: Literal[1]
    commit: str
    past: str
    needed: str | None = None


@dataclass(frozen=True, slots=True)
class Past:
    """What commits say, as lines of a file: as values, they'd take ten times the memory.

    Attributes:
        lines: A :class:`~lakegate.model.journal.PastCommit` each, oldest first.
        foreign: Folders of views and the like that they put.
    """

    lines: Sequence[bytes]
    foreign: tuple[str, ...] = ()


def line_of(commit: PastCommit) -> bytes:
    """Return a commit as a line of :class:`Past`."""
    return commit.model_dump_json(exclude_defaults=True).encode()


def past_commit(line: bytes) -> PastCommit:
    """Return the commit in a line of :class:`Past`."""
    return PastCommit.model_validate_json(line)


def hash_of(line: bytes) -> str:
    """Return the hash of the commit in a line of :class:`Past`, which begins with it."""
    return line[len(_LINE_BEGINS) : line.index(b'"', len(_LINE_BEGINS))].decode()


class Needed(Value):
    """The files that commits need, and where tables were.

    Attributes:
        root: The warehouse's canonical path, which the others begin with: under another one they match nothing.
        digests: Of the files' canonical paths (:func:`digest`), one after the other, in base64.
        folders: Folders of each table, by its name.
        names: Names that each table had, by its content id.
    """

    root: str
    digests: str
    folders: Mapping[str, tuple[str, ...]]
    names: Mapping[str, tuple[str, ...]]

    def all_digests(self) -> frozenset[bytes]:
        """Return the digests."""
        joined = base64.b64decode(self.digests, validate=True)
        return frozenset(joined[at : at + _DIGEST_BYTES] for at in range(0, len(joined), _DIGEST_BYTES))


def joined(digests: frozenset[bytes]) -> str:
    """Return the digests as :attr:`Needed.digests` has them."""
    return base64.b64encode(b"".join(sorted(digests))).decode("ascii")


def digest(path: str) -> bytes:
    """Return a short key for a path: two that share one are as unlikely as two files that share a UUID."""
    return hashlib.blake2b(path.encode(), digest_size=_DIGEST_BYTES).digest()


def checkpoint_in(commit: Commit) -> Checkpoint | None:
    """Return the checkpoint that ``commit`` names; ``None`` also for one that this lakegate can't read."""
    if CHECKPOINT_PROPERTY not in commit.properties:
        return None
    with suppress(ValidationError):
        found = Checkpoint.model_validate_json(commit.properties[CHECKPOINT_PROPERTY])
        if all(_SHA256.fullmatch(one) for one in (found.past, found.needed or found.past)):
            return found
    return None


def load_past(context: Context, checkpoint: Checkpoint) -> Past | None:
    """Return what the commits up to the checkpoint's say; ``None`` if that isn't known."""
    content = _load(context, checkpoint.past)
    try:
        first, *lines = (content or b"").splitlines()
        past = Past(lines, tuple(map(str, json.loads(first))))
        newest = deque((past_commit(line).hash for line in lines), maxlen=1)
    except (ValueError, TypeError):
        return None
    return past if list(newest) == [checkpoint.commit] else None


def load_needed(context: Context, checkpoint: Checkpoint) -> Needed | None:
    """Return the files that the commits up to the checkpoint's need; ``None`` if that isn't known."""
    content = None if checkpoint.needed is None else _load(context, checkpoint.needed)
    with suppress(ValidationError):
        return None if content is None else Needed.model_validate_json(content)
    return None


def _load(context: Context, sha256: str) -> bytes | None:
    if context.files is None:
        return None
    try:
        content = context.files().read(_location(context, sha256))
        if hashlib.sha256(content).hexdigest() == sha256:
            return gzip.decompress(content)
    except (LakegateError, OSError, EOFError, zlib.error):
        pass
    return None


def save(context: Context, branch: str, past: Past, needed: Needed | None) -> Checkpoint | None:
    """Make a checkpoint of the commits of ``past``, which are in the history of ``branch``.

    Returns:
        The checkpoint; ``None`` when ``branch`` kept moving, or there is nowhere to put it.

    Raises:
        LakegateError: When a file can't be written, or the catalog takes no commit.
    """
    if context.files is None:
        return None
    files = context.files()

    def put(text: bytes) -> str:
        content = gzip.compress(text)
        sha256 = hashlib.sha256(content).hexdigest()
        files.write(_location(context, sha256), content)
        return sha256

    made = Checkpoint(
        format=_FORMAT,
        commit=hash_of(past.lines[-1]),
        past=put(b"\n".join([json.dumps(past.foreign).encode(), *past.lines])),
        needed=None if needed is None else put(needed.model_dump_json().encode()),
    )
    for _ in range(_ATTEMPTS):
        request = CommitRequest(
            branch=branch,
            base=context.catalog.get_ref(branch).hash,
            message=f"Checkpoint of {len(past.lines):,} commits",
            at_head=True,
            properties={CHECKPOINT_PROPERTY: json.dumps(made.model_dump(), separators=(",", ":"))},
        )
        with suppress(ConflictError):
            context.catalog.commit(request)
            return made
    return None


def outdated(files: list[StoredFile], before: datetime) -> list[StoredFile]:
    """Return those of the checkpoints' files that can go: all but the newest, and what may be about to be named."""
    newest_first = sorted(files, key=lambda file: file.modified_at, reverse=True)
    return [file for file in newest_first[_FILES_KEPT:] if file.modified_at < before]


def _location(context: Context, sha256: str) -> str:
    return f"{context.warehouse.rstrip('/')}/{FOLDER}/{sha256}.gz"
