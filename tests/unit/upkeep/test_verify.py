"""Verify a lake: each kind of damage is found and named, and the fix in the finding repairs it."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table
from sqlalchemy import text

from lakegate.context import Context
from lakegate.errors import ConfigurationError, EngineError, NotFoundError, SourceError
from lakegate.iceberg.editor import IcebergTableEditor
from lakegate.iceberg.files import LocalFileStore, TableFiles, local_path
from lakegate.iceberg.manifests import (
    read_list,
)
from lakegate.iceberg.reader import IcebergTableReader
from lakegate.journal.journal import Journal
from lakegate.ledger.sync import sync
from lakegate.model.batch import SourceFile
from lakegate.model.maintenance import VerifyFinding, VerifyReport
from lakegate.model.refs import CommitRequest, Ref, TablePointer
from lakegate.model.run import RUN_ID_PROPERTY, Run
from lakegate.ports import Engine
from lakegate.progress import SilentNarrator
from lakegate.testing import MemoryCatalog
from lakegate.upkeep.verify import verify
from lakegate.wap.rebuild import rebuild
from lakegate.wap.revert import restore_table, revert
from lakegate.wap.table_changes import drop_table
from support.iceberg_tables import (
    NAME,
    IcebergTables,
    delete_by_equality,
    delete_by_vectors,
    iceberg_tables,
    pointer_to,
    vector_blob,
)
from support.ledger_support import properties
from support.memory_journal import MemoryDatabase


class Lake:
    """A lake of one table that PyIceberg writes, published by runs to a catalog in memory.

    Args:
        tables: The catalog of PyIceberg.
        root: The warehouse.
        states: The table after each run, if they have been written before.
    """

    def __init__(self, tables: IcebergTables, root: str, states: Sequence[TablePointer] = ()) -> None:
        self.catalog = MemoryCatalog()
        self.database = MemoryDatabase()
        self.journal = Journal(self.database)
        self.root = root
        self.table: Table = tables.at(states[-1]) if states else tables.create()
        namespace = CommitRequest(branch="main", base=self.head.hash, message="ns", namespaces=(("nyc",),))
        self.catalog.commit(namespace)
        if states:
            self.commits = [self.put(self.about(number), state) for number, state in enumerate(states, 1)]
        else:
            self.commits = [self.publish(number) for number in range(1, 4)]
        sync(self.context, "main")

    @property
    def head(self) -> Ref:
        return self.catalog.get_ref("main")

    @property
    def context(self) -> Context:
        return Context(
            catalog=self.catalog,
            reader=IcebergTableReader(),
            editor=IcebergTableEditor(),
            engine=lambda: cast("Engine", None),
            journal=self.journal,
            narrator=SilentNarrator(),
            warehouse=self.root,
            changed_files=lambda _: (),
        )

    def publish(self, number: int, *, by_run: bool = True) -> str:
        """Append a row and publish it, by default as run ``rN`` of the source file ``fN``; return the commit."""
        run = {RUN_ID_PROPERTY: f"r{number}"} if by_run else {}
        rows = pa.table({"id": [number], "region": ["n"]}, schema=self.table.schema().as_arrow())
        self.table.append(rows, snapshot_properties=run)
        return self.put(self.about(number) if by_run else {})

    def about(self, number: int) -> dict[str, str]:
        """Return what a run's commit says of it."""
        return properties(f"r{number}", str(NAME), files=[self.file(number)])

    @staticmethod
    def file(number: int) -> SourceFile:
        version = f"sha256:{number}"
        return SourceFile(uri=f"file:///in/{number}", size_bytes=1, version=version, rows=1)

    def put(self, properties: dict[str, str], state: TablePointer | None = None) -> str:
        was = self.catalog.get_table(NAME, self.head)
        content_id = None if was is None else was.content_id
        pointer = (state or pointer_to(self.table)).model_copy(update={"content_id": content_id})
        request = CommitRequest(branch="main", base=self.head.hash, message="m", puts=(pointer,), properties=properties)
        return self.catalog.commit(request).hash

    def verify(self, **changed: Any) -> VerifyReport:
        given: dict[str, Any] = {"grace": timedelta(days=1), "now": datetime.now(UTC), **changed}
        return verify(self.context, files=LocalFileStore(self.root), **given)

    def damage_journal(self, statement: str) -> None:
        with self.database.writing() as tx:
            tx.execute(text(statement))

    def data_file(self, number: int) -> Path:
        """Return the data file of the run ``rN``."""
        snapshot = self.table.metadata.snapshots[number - 1]
        added = IcebergTableReader().added_files(pointer_to(self.table), [snapshot.snapshot_id]).files
        return local_path(added[0].path)

    def manifest_list(self) -> Path:
        snapshot = self.table.current_snapshot()
        assert snapshot is not None
        return local_path(snapshot.manifest_list)

    def edit_metadata(self, change: Callable[[dict[str, Any]], None]) -> None:
        path = local_path(self.table.metadata_location)
        document = json.loads(path.read_text())
        change(document)
        path.write_text(json.dumps(document))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Sequence[TablePointer]]:
    """The lake's folder, a copy to restore it from, and the table after each run: writing it takes 0.1 s."""
    folder = tmp_path_factory.mktemp("verified")
    with iceberg_tables(folder / "lake") as tables:
        lake = Lake(tables, (folder / "lake").as_uri())
        found = (lake.catalog.get_table(NAME, lake.catalog.get_ref(commit)) for commit in lake.commits)
        states = [state for state in found if state is not None]
    (folder / "lake").rename(folder / "copy")
    return folder / "lake", folder / "copy", states


@pytest.fixture
def root(written: tuple[Path, Path, Sequence[TablePointer]]) -> Iterator[Path]:
    folder, pristine, _ = written
    shutil.copytree(pristine, folder)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def iceberg(root: Path) -> Iterator[IcebergTables]:
    with iceberg_tables(root) as opened:
        yield opened


@pytest.fixture
def lake(iceberg: IcebergTables, root: Path, written: tuple[Path, Path, Sequence[TablePointer]]) -> Lake:
    return Lake(iceberg, root.as_uri(), written[2])


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def test_a_sound_lake_has_no_findings(lake: Lake) -> None:
    report = lake.verify(deep=True)
    assert report.passed, report.findings
    on_disk = [path for path in local_path(lake.root).rglob("*") if path.is_file()]
    # The first metadata file, of the table before its first publish, is in no commit.
    assert (report.tables, report.states, report.commits, report.runs) == (1, 3, 4, 3)
    assert (report.files, report.deep) == (len(on_disk) - 1, True)
    assert report.size_bytes < sum(path.stat().st_size for path in on_disk)
    delete_row(lake, VECTOR)
    report = lake.verify(deep=True)
    assert report.passed, report.findings


def test_sound_equality_deletes_are_no_finding(lake: Lake) -> None:
    delete_equal(lake, [1])
    report = lake.verify(deep=True)
    assert report.passed, report.findings


def manifest(lake: Lake) -> Path:
    return local_path(read_list(lake.manifest_list().read_bytes()).manifests[0].file.manifest_path)


def miscount(document: dict[str, Any]) -> None:
    document["snapshots"][-1]["summary"]["total-records"] = "7"


def rewrite(path: Path) -> None:
    """Give a data file another number of rows, and the size it had."""
    size, rows = path.stat().st_size, pq.read_table(path)
    pq.write_table(pa.concat_tables([rows, rows]), path, write_statistics=False, store_schema=False)
    content = path.read_bytes()
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    path.write_bytes(content[:footer] + bytes(size - len(content)) + content[footer:])


def delete_row(lake: Lake, blob: bytes, rows: int = 1, times: int = 1, **changed: Any) -> None:
    """Delete the row of the third run by deletion vectors."""
    target = f"file://{lake.data_file(3)}"
    delete_by_vectors(lake.table, [(target, blob, rows)] * times, **changed)


def delete_equal(lake: Lake, keys: Sequence[int]) -> Path:
    """Delete the row of the third run by its id, in a file that is said to delete by columns with these field ids."""
    return delete_by_equality(lake.table, pa.table({"id": [3]}, schema=pa.schema([ID])), keys)


ID = pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})
VECTOR = vector_blob([0])
DAMAGES: Sequence[tuple[str, Callable[[Lake], object], str]] = [
    ("missing-file", lambda lake: lake.data_file(2).unlink(), "lakegate revert r2"),
    ("wrong-size", lambda lake: cut(lake.data_file(3)), "lakegate revert r3"),
    ("missing-file", lambda lake: manifest(lake).unlink(), "table restore nyc.trips --at {1}"),
    ("missing-file", lambda lake: lake.manifest_list().unlink(), "table restore nyc.trips --at {1}"),
    ("unreadable-file", lambda lake: manifest(lake).write_bytes(b"?"), "table restore nyc.trips --at {1}"),
    (
        "missing-file",
        lambda lake: local_path(lake.table.metadata_location).unlink(),
        "table restore nyc.trips --at {1}",
    ),
    ("unreadable-file", lambda lake: local_path(lake.table.metadata_location).write_text("{}"), "--at {1}"),
    ("wrong-count", lambda lake: lake.edit_metadata(miscount), "table restore nyc.trips --at {1}"),
    ("wrong-rows", lambda lake: rewrite(lake.data_file(2)), "lakegate revert r2"),
    ("missing-file", lambda lake: delete_equal(lake, [1]).unlink(), "table restore nyc.trips --at {1}"),
]


@pytest.mark.parametrize(("kind", "damage", "fix"), DAMAGES, ids=[f"{n}-{one[0]}" for n, one in enumerate(DAMAGES)])
def test_damaged_files_are_found(lake: Lake, kind: str, damage: Callable[[Lake], object], fix: str) -> None:
    damage(lake)
    found = lake.verify(deep=True).findings
    assert [one.kind for one in found] == [kind], found
    assert found[0].table == str(NAME)
    assert fix.format(*(commit[:12] for commit in lake.commits)) in found[0].fix
    take(lake, found[0].fix)
    assert not [one for one in lake.verify(deep=True).findings if "on main" in one.message]


def take(lake: Lake, advice: str) -> Run:
    """Do what a finding says."""
    restored, reverted = re.search(r"--at (\w+)", advice), re.search(r"lakegate revert (\w+)", advice)
    if reverted is not None:
        return revert(lake.context, reverted[1], new_run_id="x")
    assert restored is not None
    commit = next(one for one in lake.commits if one.startswith(restored[1]))
    return restore_table(lake.context, NAME, Ref(name=commit, hash=commit), new_run_id="x")


@pytest.mark.parametrize("tables", [(), (NAME,)])
@pytest.mark.parametrize("of", ["metadata", "list"])
@pytest.mark.parametrize(
    ("trouble", "raised"),
    [
        (ConfigurationError("No credentials."), ConfigurationError),
        (SourceError("S3 refuses."), SourceError),
        (OSError(5, "Input/output error"), EngineError),
    ],
)
def test_metadata_that_cannot_be_read_just_now_is_no_finding(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, trouble: Exception, raised: type, of: str, tables: Any
) -> None:
    refused = local_path(lake.table.metadata_location) if of == "metadata" else lake.manifest_list()
    content = TableFiles.content

    def refuse(files: TableFiles, location: str) -> bytes:
        if local_path(location) == refused:
            raise trouble
        return content(files, location)

    monkeypatch.setattr(TableFiles, "content", refuse)
    with pytest.raises(raised):
        lake.verify(tables=tables)


def test_a_table_with_damaged_metadata_can_be_dropped(lake: Lake) -> None:
    local_path(lake.table.metadata_location).unlink()
    run = drop_table(lake.context, NAME, new_run_id="x")
    assert (run.undone[0].rows, run.undone[0].dropped) == (None, True)


def test_files_that_nothing_needs_are_counted_once_they_are_old(lake: Lake) -> None:
    folder = local_path(lake.table.location()) / "data"
    for name in ("a", "b"):
        (folder / f"{name}.parquet").write_bytes(b"12345")
    assert lake.verify().passed
    (found,) = lake.verify(now=datetime.now(UTC) + timedelta(days=2)).findings
    # Besides, the metadata file of the table before its first publish.
    assert (found.kind, found.number, found.fix) == ("orphaned-files", 3, "Delete them: lakegate admin gc")
    assert lake.verify(now=datetime.now(UTC) + timedelta(days=2)).passed  # they only take room
    assert found.size_bytes is not None
    assert found.size_bytes > 10
    assert lake.verify(now=datetime.now(UTC) + timedelta(days=2), tables=[NAME]).passed
    # What can't be read may need them.
    manifest(lake).unlink()
    kinds = [one.kind for one in lake.verify(now=datetime.now(UTC) + timedelta(days=2)).findings]
    assert kinds == ["missing-file"]


def test_commits_that_no_run_made_are_found_until_somebody_accepts_them(lake: Lake) -> None:
    before = lake.head.hash
    commit = lake.publish(4, by_run=False)
    (found,) = lake.verify().findings
    assert (found.kind, found.commit, found.table) == ("foreign-commit", commit, str(NAME))
    assert f"table restore nyc.trips --at {before[:12]}" in found.fix
    assert lake.verify(since=lake.head).passed

    drop = CommitRequest(branch="main", base=lake.head.hash, message="drop", deletes=(NAME,))
    lake.catalog.commit(drop)
    assert [one.kind for one in lake.verify(since=Ref(name=commit, hash=commit)).findings] == ["foreign-commit"]


def run_of(lake: Lake, run_id: str, **changes: Any) -> Run:
    known = lake.journal.get("r1")
    assert known is not None
    return known.model_copy(update={"run_id": run_id, **changes})


def forget_run(lake: Lake) -> None:
    lake.damage_journal("DELETE FROM runs WHERE run_id = 'r2'")


def lose_lease(lake: Lake) -> None:
    running = {"status": "planned", "publication": None, "finished_at": None}
    token = lake.journal.begin(run_of(lake, "r9", **running))
    lake.journal.abandon("r9", token)


def lose_lease_early(lake: Lake) -> None:
    """As a transaction that was killed before it wrote to a table."""
    running = {"status": "planned", "publication": None, "finished_at": None, "tables": (), "kind": "transaction"}
    lake.journal.abandon("r9", lake.journal.begin(run_of(lake, "r9", **running)))


def lose_lease_row(lake: Lake) -> None:
    lose_lease(lake)
    lake.damage_journal("DELETE FROM leases")


JOURNALS: Sequence[tuple[list[str], Callable[[Lake], object], str]] = [
    (["lost-lease"], lose_lease, "lakegate admin recover r9"),
    (["lost-lease"], lose_lease_early, "lakegate admin recover r9"),
    (["lost-lease"], lose_lease_row, "lakegate admin recover r9"),
    (["run-without-commit"], lambda lake: lake.journal.save(run_of(lake, "r8")), "lakegate admin journal rebuild"),
    (["unknown-run"], forget_run, "lakegate admin journal rebuild"),
    (
        ["differing-run"],
        lambda lake: lake.damage_journal(
            "UPDATE runs SET status = 'failed', document = replace(document, '\"published\"', '\"failed\"') "
            "WHERE run_id = 'r2'"
        ),
        "lakegate admin journal rebuild",
    ),
    (
        ["differing-run"],
        lambda lake: lake.damage_journal(
            f"UPDATE runs SET document = replace(document, '{lake.commits[1]}', '{lake.commits[0]}') "
            "WHERE run_id = 'r2'"
        ),
        "lakegate admin journal rebuild",
    ),
    (
        ["source-files", "source-files"],
        lambda lake: lake.damage_journal("UPDATE claims SET path = 'file:///in/9' WHERE run_id = 'r2'"),
        "lakegate admin journal rebuild",
    ),
    (
        ["source-files", "source-files"],
        lambda lake: lake.damage_journal("UPDATE claims SET version = 'w' WHERE run_id = 'r2'"),
        "lakegate admin journal rebuild",
    ),
]


@pytest.mark.parametrize(
    ("kinds", "damage", "fix"), JOURNALS, ids=[f"{n}-{one[0][0]}" for n, one in enumerate(JOURNALS)]
)
def test_a_journal_that_disagrees_is_found(
    lake: Lake, kinds: list[str], damage: Callable[[Lake], object], fix: str
) -> None:
    damage(lake)
    found = lake.verify().findings
    assert [one.kind for one in found] == kinds, found
    assert all(fix in one.fix for one in found)
    if "rebuild" in fix:
        rebuild(lake.context, "main")
        assert lake.verify().passed


def test_a_journal_that_is_ahead_of_main_is_found(lake: Lake) -> None:
    lake.catalog.assign_ref(lake.head, Ref(name=lake.commits[1], hash=lake.commits[1], kind="detached"))
    found: Sequence[VerifyFinding] = lake.verify().findings
    assert [(one.kind, one.run_id) for one in found] == [("journal-ahead", None), ("run-without-commit", "r3")]
    sync(lake.context, "main")
    assert lake.verify().passed


def test_a_table_that_is_nowhere_is_refused(lake: Lake) -> None:
    with pytest.raises(NotFoundError, match=r"nyc\.trip doesn't exist"):
        lake.verify(tables=[NAME.model_copy(update={"name": "trip"})])
