"""Source files: which files a run may claim, their claims, and the checkpoints of files that ``watch`` found."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import Row, bindparam, delete, select, update

from lakegate.journal.database import JournalTransaction
from lakegate.journal.schema import CLAIMS, FILE_CHECKPOINTS, as_text, storable
from lakegate.model.batch import Claim, KnownFile, SourceFile
from lakegate.model.run import FileCheckpoint

State = Literal["claimed", "published"]
CLAIMED: State = "claimed"
PUBLISHED: State = "published"
CLAIM_COLUMNS = ("table_name", "path", "version", "size_bytes", "rows", "state", "run_id")
_OWN = CLAIMS.c.run_id == bindparam("run"), CLAIMS.c.state == CLAIMED
_RELEASE = delete(CLAIMS).where(*_OWN)
_PUBLISH = update(CLAIMS).where(*_OWN).values(state=PUBLISHED)
_TABLES_OF = select(CLAIMS.c.table_name).where(CLAIMS.c.run_id == bindparam("run")).distinct()


@dataclass(frozen=True, slots=True)
class KnownVersion:
    """A version of a file that a run has claimed or published."""

    file: SourceFile
    run_id: str
    state: State

    @property
    def known_file(self) -> KnownFile:
        """The same, as a value of the model."""
        return KnownFile(file=self.file, run_id=self.run_id)

    def known_as(self, file: SourceFile) -> KnownFile:
        """The same, with the names under which ``file``, of the same path, was found."""
        return KnownFile(file=self.file.model_copy(update={"aliases": file.aliases}), run_id=self.run_id)


KnownVersions = Mapping[str, Sequence[KnownVersion]]
"""All known versions of each path, oldest first."""


@dataclass(slots=True)
class _ClaimDecision:
    """Decides which of a batch's files a run may claim, and which runs have the others."""

    run_id: str
    known: KnownVersions
    take_changed: bool
    ours: list[SourceFile] = field(default_factory=list)
    takeable: list[SourceFile] = field(default_factory=list)
    published: list[KnownFile] = field(default_factory=list)
    busy: list[KnownFile] = field(default_factory=list)
    changed: list[KnownFile] = field(default_factory=list)
    went_back: list[KnownFile] = field(default_factory=list)

    def add(self, file: SourceFile) -> None:
        """Decide about a file, and add it to the matching list."""
        versions = self.known.get(file.uri, ())
        same = next((one for one in versions if one.file.version == file.version), None)
        busy = next((one for one in versions if one.state == CLAIMED and one.run_id != self.run_id), None)
        published = next((one for one in reversed(versions) if one.state == PUBLISHED), None)
        if same is not None and same.state == PUBLISHED:
            self.published.append(same.known_as(file))
            if published is not None and published is not same:
                self.went_back.append(published.known_file)
        elif same is not None and same.run_id == self.run_id:
            self.ours.append(file)
        elif busy is not None:
            self.busy.append((same or busy).known_as(file))
        elif published is not None and not self.take_changed:
            self.changed.append(published.known_file)
        else:
            self.takeable.append(file)


def decide(
    run_id: str,
    files: Sequence[SourceFile],
    known: KnownVersions,
    *,
    take_changed: bool,
    take_free: bool,
) -> tuple[Claim, Sequence[SourceFile]]:
    """Return the answer to a claim, and the files to record as claimed."""
    found = _ClaimDecision(run_id, known, take_changed)
    for file in {(file.uri, file.version): file for file in files}.values():
        found.add(file)
    held_back = bool(found.busy) and not take_free
    taken = () if held_back else tuple(found.takeable)
    claim = Claim(
        claimed=(*found.ours, *taken),
        published=tuple(found.published),
        busy=tuple(found.busy),
        changed=tuple(found.changed),
        free=tuple(found.takeable) if held_back else (),
        went_back=tuple(found.went_back),
    )
    return claim, taken


def preview(files: Sequence[SourceFile], known: KnownVersions) -> Claim:
    """Return the answer that a new run would get, with ``free`` instead of ``claimed`` files."""
    answer, taken = decide("", files, known, take_changed=False, take_free=True)
    return answer.model_copy(update={"claimed": (), "free": tuple(taken)})


def other_versions(files: Sequence[SourceFile], known: KnownVersions) -> Sequence[KnownFile]:
    """Return other published versions of the files' paths, oldest first for each path."""
    these = {(file.uri, file.version) for file in files}
    return [
        one.known_file
        for path in dict.fromkeys(file.uri for file in files)
        for one in known.get(path, ())
        if one.state == PUBLISHED and (path, one.file.version) not in these
    ]


def lock_name(table: str) -> str:
    """Return the name of the lock for writing a table's claims."""
    return f"claims {table}"


def record_claims(tx: JournalTransaction, run_id: str, table: str, files: Sequence[SourceFile]) -> None:
    """Record that the run has claimed ``files``."""
    rows = [(table, one.uri, one.version, one.size_bytes, one.rows, CLAIMED, run_id) for one in files]
    tx.insert(CLAIMS, rows, CLAIM_COLUMNS)


def release(tx: JournalTransaction, run_id: str) -> None:
    """Release the files that the run claimed but didn't publish."""
    tx.execute(_RELEASE, {"run": run_id})


def settle(tx: JournalTransaction, run_id: str, *, published: bool) -> None:
    """Turn the claims of a published run into published files, or release those of any other run."""
    tx.execute(_PUBLISH if published else _RELEASE, {"run": run_id})


def lock_claims_of(tx: JournalTransaction, run_id: str) -> None:
    """Lock the claims of all tables for which the run has claimed files."""
    tx.lock(*map(lock_name, tx.scalars(_TABLES_OF, {"run": run_id}).all()))


def known_versions(tx: JournalTransaction, table: str, files: Sequence[SourceFile]) -> KnownVersions:
    """Return all known versions of the files' paths."""
    versions: dict[str, list[KnownVersion]] = defaultdict(list)
    if not files:
        return versions
    query = select(CLAIMS).where(CLAIMS.c.table_name == table, CLAIMS.c.path.in_(tx.values({one.uri for one in files})))
    for row in tx.execute(query.order_by(CLAIMS.c.claim_id)):
        file = SourceFile(uri=row.path, version=row.version, size_bytes=row.size_bytes, rows=row.rows)
        versions[row.path].append(KnownVersion(file=file, run_id=row.run_id, state=row.state))
    return versions


def checkpoints(tx: JournalTransaction, table: str, uris: Sequence[str]) -> Mapping[str, FileCheckpoint]:
    """Return the files' checkpoints by URI."""
    known = FILE_CHECKPOINTS.c
    query = select(FILE_CHECKPOINTS).where(known.table_name == table, known.uri.in_(tx.values(uris)))
    return {row.uri: _checkpoint(row) for row in tx.execute(query)}


def save_checkpoints(tx: JournalTransaction, table: str, checkpoints: Sequence[FileCheckpoint]) -> None:
    """Save checkpoints; if there are two for one URI, the later one."""
    if not checkpoints:
        return
    tx.lock(f"landings {table}")
    latest = {checkpoint.uri: checkpoint for checkpoint in checkpoints}.values()
    rows = [
        # A reason may quote a file's content.
        (table, one.uri, one.stamp, one.outcome, one.tries, one.run_id, storable(one.reason), as_text(one.noted_at))
        for one in latest
    ]
    tx.insert(FILE_CHECKPOINTS, rows, key="table_name, uri")


def _checkpoint(row: Row[Any]) -> FileCheckpoint:
    values = {name: getattr(row, name) for name in ("uri", "stamp", "outcome", "tries", "run_id", "reason")}
    return FileCheckpoint(**values, noted_at=datetime.fromisoformat(row.noted_at))
