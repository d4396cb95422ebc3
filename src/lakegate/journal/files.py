"""Source files: which files a run may claim, their claims, and the checkpoints of files that ``watch`` found."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import Column, Row, bindparam, delete, select, update

from lakegate.journal.database import JournalTransaction
from lakegate.journal.schema import CLAIMS, FILE_CHECKPOINTS, as_text, storable
from lakegate.model.batch import Claim, KnownFile, SourceFile
from lakegate.model.request import OnSameContent
from lakegate.model.run import FileCheckpoint

State = Literal["claimed", "published"]
CLAIMED: State = "claimed"
PUBLISHED: State = "published"
CLAIM_COLUMNS = ("table_name", "path", "version", "size_bytes", "rows", "state", "run_id", "identity")
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


@dataclass(frozen=True, slots=True)
class KnownVersions:
    """All known versions of some files.

    Attributes:
        by_path: All versions of each path, oldest first.
        by_content: All files, at any path, with each version that identifies the content.
    """

    by_path: Mapping[str, Sequence[KnownVersion]]
    by_content: Mapping[str, Sequence[KnownVersion]]


@dataclass(slots=True)
class _ClaimDecision:
    """Decides which of a batch's files a run may claim, and which runs have the others."""

    run_id: str
    known: KnownVersions
    take_changed: bool
    on_same_content: OnSameContent
    ours: list[SourceFile] = field(default_factory=list)
    takeable: list[SourceFile] = field(default_factory=list)
    published: list[KnownFile] = field(default_factory=list)
    busy: list[KnownFile] = field(default_factory=list)
    changed: list[KnownFile] = field(default_factory=list)
    same_content: list[KnownFile] = field(default_factory=list)
    went_back: list[KnownFile] = field(default_factory=list)
    contents: dict[str, KnownVersion] = field(default_factory=dict)

    def add(self, file: SourceFile) -> None:
        """Decide about a file, and add it to the matching list."""
        versions = self.known.by_path.get(file.uri, ())
        same = next((one for one in versions if one.file.version == file.version), None)
        busy = next((one for one in versions if one.state == CLAIMED and one.run_id != self.run_id), None)
        published = next((one for one in reversed(versions) if one.state == PUBLISHED), None)
        elsewhere = list(self._elsewhere(file))
        link = _first(one for one in elsewhere if file.is_same_file(one.file))
        twin = self._twin(file, elsewhere)
        if same is not None and same.state == PUBLISHED:
            self.published.append(same.known_as(file))
            if published is not None and published is not same:
                self.went_back.append(published.known_file)
        elif link is not None and link.state == PUBLISHED:
            self.published.append(KnownFile(file=file, run_id=link.run_id, same_file_as=link.file.uri))
        elif same is not None and same.run_id == self.run_id:
            self._take(file, self.ours, twin)
        elif busy is not None:
            self.busy.append((same or busy).known_as(file))
        elif link is not None:
            self.busy.append(KnownFile(file=file, run_id=link.run_id, same_file_as=link.file.uri))
        elif published is not None and not self.take_changed:
            self.changed.append(published.known_file)
        elif twin is None or self.on_same_content == "append":
            self._take(file, self.takeable, twin)
        else:
            undecided = twin.state == CLAIMED and twin.run_id != self.run_id
            to = self.busy if undecided else self.published if self.on_same_content == "skip" else self.same_content
            to.append(KnownFile(file=file, run_id=twin.run_id, same_content_as=twin.file.uri))

    def _take(self, file: SourceFile, to: list[SourceFile], twin: KnownVersion | None) -> None:
        to.append(file)
        if twin is not None:
            self.same_content.append(KnownFile(file=file, run_id=twin.run_id, same_content_as=twin.file.uri))

    def _elsewhere(self, file: SourceFile) -> Iterator[KnownVersion]:
        """Yield files with the same content at other paths, except those that the run itself has claimed."""
        if file.names_content:
            for one in self.known.by_content.get(file.version, ()):
                own = one.state == CLAIMED and one.run_id == self.run_id
                if one.file.uri != file.uri and one.file.names_content and not own:
                    yield one

    def _twin(self, file: SourceFile, elsewhere: Iterable[KnownVersion]) -> KnownVersion | None:
        """Return another file with the same bytes: a known one, or an earlier one in the batch.

        Files without rows are all the same, and add no row twice.
        """
        if not file.names_content or not file.rows:
            return None
        earlier = self.contents.setdefault(file.version, KnownVersion(file, self.run_id, CLAIMED))
        known = _first(one for one in elsewhere if not file.is_same_file(one.file))
        return known or (earlier if earlier.file.uri != file.uri else None)


def decide(
    run_id: str,
    files: Sequence[SourceFile],
    known: KnownVersions,
    *,
    take_changed: bool,
    take_free: bool,
    on_same_content: OnSameContent = "append",
) -> tuple[Claim, Sequence[SourceFile]]:
    """Return the answer to a claim, and the files to record as claimed."""
    found = _ClaimDecision(run_id, known, take_changed, on_same_content)
    for file in {(file.uri, file.version): file for file in files}.values():
        found.add(file)
    held_back = bool(found.busy) and not take_free
    taken = () if held_back else tuple(found.takeable)
    claim = Claim(
        claimed=(*found.ours, *taken),
        published=tuple(found.published),
        busy=tuple(found.busy),
        changed=tuple(found.changed),
        same_content=tuple(found.same_content),
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
        for one in known.by_path.get(path, ())
        if one.state == PUBLISHED and (path, one.file.version) not in these
    ]


def _first(versions: Iterable[KnownVersion]) -> KnownVersion | None:
    """Return the first published one, or else the first one."""
    return min(versions, key=lambda one: one.state != PUBLISHED, default=None)


def lock_name(table: str) -> str:
    """Return the name of the lock for writing a table's claims."""
    return f"claims {table}"


def record_claims(tx: JournalTransaction, run_id: str, table: str, files: Sequence[SourceFile]) -> None:
    """Record that the run has claimed ``files``."""
    rows = [(table, one.uri, one.version, one.size_bytes, one.rows, CLAIMED, run_id, one.identity) for one in files]
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
    """Return all known versions of the files' paths, and all known files with their contents."""
    paths = {file.uri for file in files}
    contents = {file.version for file in files if file.names_content}
    by_path: dict[str, list[KnownVersion]] = defaultdict(list)
    for one in _known_by(tx, table, CLAIMS.c.path, paths):
        by_path[one.file.uri].append(one)
    by_content: dict[str, list[KnownVersion]] = defaultdict(list)
    for one in _known_by(tx, table, CLAIMS.c.version, contents):
        by_content[one.file.version].append(one)
    return KnownVersions(by_path, by_content)


def _known_by(
    tx: JournalTransaction, table: str, column: Column[str], values: Collection[str]
) -> Iterator[KnownVersion]:
    """Yield the versions of a table's files that have one of ``values`` in ``column``, oldest first."""
    if not values:
        return
    query = select(CLAIMS).where(CLAIMS.c.table_name == table, column.in_(tx.values(values)))
    for row in tx.execute(query.order_by(CLAIMS.c.claim_id)):
        file = SourceFile(
            uri=row.path, version=row.version, size_bytes=row.size_bytes, rows=row.rows, identity=row.identity
        )
        yield KnownVersion(file=file, run_id=row.run_id, state=row.state)


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
