"""Checkpoints of ``main``'s history, so that nobody has to read all of it (docs/decisions/0093).

A checkpoint is two files in the warehouse, and a commit on the branch that names them by their SHA-256:

- what all commits up to a certain one say about runs, from which a journal can be rebuilt;
- every file that these commits need, so that ``gc`` needn't find them again.

The commit protects it: somebody who can write files but not commit to ``main`` can't create or change a checkpoint. If
a checkpoint's files are missing, damaged or from a newer lakegate, readers of the history use the one before, or read
all commits.
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
from lakegate.model.refs import Commit, CommitRequest
from lakegate.model.run import PastCommit
from lakegate.model.tables import StoredFile
from lakegate.wap.context import Context

CHECKPOINT_PROPERTY = "lakegate.checkpoint"
FOLDER = ".lakegate-history"
"""The folder of the files, below the warehouse's root."""
COMMITS_PER_CHECKPOINT = 1_000
"""Commits after which ``gc`` makes another checkpoint."""
_FORMAT = 1
_FILES_KEPT = 6
_ATTEMPTS = 5
_DIGEST_BYTES = 16
_SHA256 = re.compile(r"[0-9a-f]{64}")
_LINE_BEGINS = b'{"hash":"'


class Checkpoint(Value):
    """A checkpoint, as a commit's property names it.

    Attributes:
        format: Format of the files. A release that reads more or less out of commits uses another number.
        commit: The last commit in the checkpoint.
        past: SHA-256 of the file that holds a :class:`CheckpointCommits`.
        needed: SHA-256 of the file that holds a :class:`Needed`, if there is one.
    """

    format: Literal[1]
    commit: str
    past: str
    needed: str | None = None


@dataclass(frozen=True, slots=True)
class CheckpointCommits:
    """Commits as lines of a file: as objects, they'd take ten times the memory.

    Attributes:
        lines: One :class:`~lakegate.model.run.PastCommit` per line, oldest first.
        foreign: Folders of views and other content that these commits put.
    """

    lines: Sequence[bytes]
    foreign: tuple[str, ...] = ()


def to_line(commit: PastCommit) -> bytes:
    """Return a commit as a line of :class:`CheckpointCommits`."""
    return commit.model_dump_json(exclude_defaults=True).encode()


def hash_in_line(line: bytes) -> str:
    """Return the hash of the commit in a line of :class:`CheckpointCommits`. The line starts with it."""
    return line[len(_LINE_BEGINS) : line.index(b'"', len(_LINE_BEGINS))].decode()


class Needed(Value):
    """The files that commits need, and the folders of their tables.

    Attributes:
        root: The warehouse's canonical path, with which the files' paths start. Another root matches none of them.
        digests: Digests of the files' canonical paths (:func:`digest`), concatenated, in base64.
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


def encode_digests(digests: frozenset[bytes]) -> str:
    """Return the digests as :attr:`Needed.digests` has them."""
    return base64.b64encode(b"".join(sorted(digests))).decode("ascii")


def digest(path: str) -> bytes:
    """Return a short key for a path. A collision is as unlikely as that of two UUIDs."""
    return hashlib.blake2b(path.encode(), digest_size=_DIGEST_BYTES).digest()


def checkpoint_in(commit: Commit) -> Checkpoint | None:
    """Return the checkpoint that ``commit`` names; ``None`` if there's none, or this release can't read it."""
    if CHECKPOINT_PROPERTY not in commit.properties:
        return None
    with suppress(ValidationError):
        found = Checkpoint.model_validate_json(commit.properties[CHECKPOINT_PROPERTY])
        if all(_SHA256.fullmatch(one) for one in (found.past, found.needed or found.past)):
            return found
    return None


def load_commits(context: Context, checkpoint: Checkpoint) -> CheckpointCommits | None:
    """Return the commits in a checkpoint; ``None`` if its file can't be used."""
    content = _load(context, checkpoint.past)
    try:
        first, *lines = (content or b"").splitlines()
        past = CheckpointCommits(lines, tuple(map(str, json.loads(first))))
        newest = deque((PastCommit.model_validate_json(line).hash for line in lines), maxlen=1)
    except (ValueError, TypeError):
        return None
    return past if list(newest) == [checkpoint.commit] else None


def load_needed(context: Context, checkpoint: Checkpoint) -> Needed | None:
    """Return the files that a checkpoint's commits need; ``None`` if they aren't known."""
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


def save_checkpoint(context: Context, branch: str, past: CheckpointCommits, needed: Needed | None) -> Checkpoint | None:
    """Make a checkpoint of the commits in ``past``, which are in the history of ``branch``.

    Returns:
        The checkpoint; ``None`` if ``branch`` kept moving, or there's nowhere to write the files.

    Raises:
        LakegateError: When a file can't be written, or the catalog refuses the commit.
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
        commit=hash_in_line(past.lines[-1]),
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
    """Return the checkpoint files to delete: not the newest ones, and not those that a commit may soon name."""
    newest_first = sorted(files, key=lambda file: file.modified_at, reverse=True)
    return [file for file in newest_first[_FILES_KEPT:] if file.modified_at < before]


def _location(context: Context, sha256: str) -> str:
    return f"{context.warehouse.rstrip('/')}/{FOLDER}/{sha256}.gz"
