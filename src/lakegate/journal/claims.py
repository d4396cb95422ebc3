"""Claims on source files: what may be claimed (a pure function), and the claims in SQL."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from sqlalchemy import Connection, Row, delete, select, update

from lakegate.journal.database import Database, rows_of
from lakegate.journal.tables import CLAIMS
from lakegate.model.batch import SourceFile
from lakegate.model.journal import Claim
from lakegate.model.run import KnownFile, RunStatus

State = Literal["claimed", "published"]
CLAIMED: State = "claimed"
PUBLISHED: State = "published"
_BATCH = 10_000


@dataclass(frozen=True, slots=True)
class KnownVersion:
    """A version of a path that the journal knows: somebody has claimed it, or published it."""

    file: SourceFile
    run_id: str
    state: State

    @property
    def known_file(self) -> KnownFile:
        """The same as a value of the model."""
        return KnownFile(file=self.file, run_id=self.run_id)


@dataclass(slots=True)
class _Verdicts:
    ours: list[SourceFile] = field(default_factory=list)
    takeable: list[SourceFile] = field(default_factory=list)
    published: list[KnownFile] = field(default_factory=list)
    busy: list[KnownFile] = field(default_factory=list)
    changed: list[KnownFile] = field(default_factory=list)


def decide(
    run_id: str,
    files: Sequence[SourceFile],
    known: Mapping[str, Sequence[KnownVersion]],
    *,
    take_changed: bool,
    take_free: bool,
) -> tuple[Claim, Sequence[SourceFile]]:
    """Return the answer to a claim, and the files to write down for it.

    Args:
        run_id: Who asks.
        files: What for.
        known: The versions known of each path, oldest first.
        take_changed: See :meth:`lakegate.protocols.Journal.claim`.
        take_free: Likewise.
    """
    found = _Verdicts()
    for file in {(file.uri, file.version): file for file in files}.values():
        _judge(file, run_id, known.get(file.uri, ()), found, take_changed=take_changed)
    held_back = bool(found.busy) and not take_free
    taken = () if held_back else tuple(found.takeable)
    claim = Claim(
        claimed=(*found.ours, *taken),
        published=tuple(found.published),
        busy=tuple(found.busy),
        changed=tuple(found.changed),
        free=tuple(found.takeable) if held_back else (),
    )
    return claim, taken


def preview(files: Sequence[SourceFile], known: Mapping[str, Sequence[KnownVersion]]) -> Claim:
    """Return what a new run would be answered; what it would get is ``free``."""
    answer, taken = decide("", files, known, take_changed=False, take_free=True)
    return answer.model_copy(update={"claimed": (), "free": tuple(taken)})


def other_versions(files: Sequence[SourceFile], known: Mapping[str, Sequence[KnownVersion]]) -> Sequence[KnownFile]:
    """Return the published versions of the files' paths that are none of theirs, oldest first for each path."""
    given = {(file.uri, file.version) for file in files}
    return [
        one.known_file
        for path in dict.fromkeys(file.uri for file in files)
        for one in known.get(path, ())
        if one.state == PUBLISHED and (path, one.file.version) not in given
    ]


def _judge(
    file: SourceFile, run_id: str, versions: Sequence[KnownVersion], found: _Verdicts, *, take_changed: bool
) -> None:
    same = next((one for one in versions if one.file.version == file.version), None)
    busy = next((one for one in versions if one.state == CLAIMED and one.run_id != run_id), None)
    published = next((one for one in reversed(versions) if one.state == PUBLISHED), None)
    if same is not None and same.state == PUBLISHED:
        found.published.append(same.known_file)
    elif same is not None and same.run_id == run_id:
        found.ours.append(file)
    elif busy is not None:
        found.busy.append((same or busy).known_file)
    elif published is not None and not take_changed:
        found.changed.append(published.known_file)
    else:
        found.takeable.append(file)


def lock_name(table: str) -> str:
    """Return what writers of a table's claims lock."""
    return f"claims {table}"


def claim(
    database: Database,
    connection: Connection,
    run_id: str,
    table: str,
    files: Sequence[SourceFile],
    *,
    take_changed: bool,
    take_free: bool,
) -> Claim:
    """Claim ``files``; see :meth:`lakegate.protocols.Journal.claim`."""
    database.lock(connection, [lock_name(table)])
    known = known_versions(database, connection, table, files)
    answer, taken = decide(run_id, files, known, take_changed=take_changed, take_free=take_free)
    rows = [(table, file.uri, file.version, file.size_bytes, file.rows, CLAIMED, run_id) for file in taken]
    names = ("table_name", "path", "version", "size_bytes", "rows", "state", "run_id")
    for start in range(0, len(rows), _BATCH):
        connection.execute(rows_of(database, CLAIMS, rows[start : start + _BATCH], *names))
    return answer


def release(connection: Connection, run_id: str) -> None:
    """Give back what the run claimed and did not publish."""
    connection.execute(delete(CLAIMS).where(CLAIMS.c.run_id == run_id, CLAIMS.c.state == CLAIMED))


def settle(connection: Connection, run_id: str, status: RunStatus) -> None:
    """Turn the claims of a run that was published into published files, and give back those of any other."""
    if status != "published":
        release(connection, run_id)
        return
    ours = CLAIMS.c.run_id == run_id, CLAIMS.c.state == CLAIMED
    connection.execute(update(CLAIMS).where(*ours).values(state=PUBLISHED))


def lock_claims_of(database: Database, connection: Connection, run_id: str) -> None:
    """Lock all tables of which the run has claimed files."""
    tables = connection.scalars(select(CLAIMS.c.table_name).where(CLAIMS.c.run_id == run_id).distinct()).all()
    database.lock(connection, [lock_name(table) for table in tables])


def known_versions(
    database: Database, connection: Connection, table: str, files: Sequence[SourceFile]
) -> Mapping[str, Sequence[KnownVersion]]:
    """Return all that is known of the files' paths, oldest first."""
    paths = sorted({file.uri for file in files})
    known: dict[str, list[KnownVersion]] = defaultdict(list)
    for start in range(0, len(paths), _BATCH):
        asked = database.given([[path] for path in paths[start : start + _BATCH]], ("path", str))
        query = select(CLAIMS).where(CLAIMS.c.table_name == table, CLAIMS.c.path.in_(select(asked.c.path)))
        for row in connection.execute(query.order_by(CLAIMS.c.claim_id)):
            known[row.path].append(_known_version(row))
    return known


def _known_version(row: Row[tuple[object, ...]]) -> KnownVersion:
    file = SourceFile(uri=row.path, version=row.version, size_bytes=row.size_bytes, rows=row.rows)
    return KnownVersion(file=file, run_id=row.run_id, state=row.state)
