"""A target's life around a publish: what gc deletes and forgets, what verify finds, and two journals on one target."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import ForbiddenError
from pyiceberg.table import CommitTableResponse, Table

from lakegate.catalogs.target import OverlayCatalog, TargetCatalog
from lakegate.catalogs.target.pruning import prune
from lakegate.catalogs.target.pyiceberg_target import PyIcebergTarget
from lakegate.catalogs.target.sql_swap import SqlSwapTarget
from lakegate.context import Context
from lakegate.errors import ConfigurationError, NotFoundError, NotReplayableError, OutcomeUnknownError
from lakegate.iceberg.editor import IcebergTableEditor
from lakegate.iceberg.files import LocalFileStore, TableFiles, local_path
from lakegate.iceberg.reader import IcebergTableReader
from lakegate.journal.database import SqliteDatabase
from lakegate.journal.journal import Journal
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.maintenance import GcReport, VerifyFinding
from lakegate.model.refs import MAIN, CommitRequest, Ref, TablePointer
from lakegate.model.run import Run
from lakegate.model.tables import StoredFile
from lakegate.ports import Engine
from lakegate.progress import SilentNarrator
from lakegate.testing.target import Killed, Staged, World
from lakegate.upkeep.gc import gc
from lakegate.upkeep.verify import verify
from lakegate.wap.rebuild import rebuild
from lakegate.wap.retention import StagedFilesGoneError, require_files

LATER = timedelta(days=10)
KEEP = timedelta(days=3)
_HOW_TO = Path(__file__).parents[3] / "docs" / "how-to" / "use-the-catalog-you-have.md"
TRIPS = TableIdentifier.parse("ns.trips")


class ReadOnly(SqlCatalog):
    """A catalog that takes so many commits."""

    commits_left = 1_000

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        self.commits_left -= 1
        if self.commits_left < 0:
            raise ForbiddenError("read only")
        return super().commit_table(table, requirements, updates)


class SpelledStore(LocalFileStore):
    """A store that knows its own spelling only, as those of objects do."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self._spelling = root

    def list(self, prefix: str) -> Iterator[StoredFile]:
        return super().list(prefix) if prefix.startswith(self._spelling) else iter(())


@dataclass
class Lake:
    """A lake on a SQL catalog, and other files beside it."""

    folder: Path
    catalog: ReadOnly
    is_swap: bool = True
    journal: Journal = field(init=False)

    def __post_init__(self) -> None:
        kind = SqlSwapTarget if self.is_swap else PyIcebergTarget
        self.database = SqliteDatabase(self.folder / "journal.db")
        self.journal = Journal(self.database)
        self.world = World(self.database, kind(self.catalog, TableFiles(), "the catalog"), self.catalog, TableFiles())
        self.world.publish(self.world.staged("first", {"trips": [1]}))

    @property
    def root(self) -> str:
        return str(self.catalog.properties["warehouse"])

    @property
    def context(self) -> Context:
        return Context(
            catalog=self.world.lake,
            reader=IcebergTableReader(TableFiles()),
            editor=IcebergTableEditor(TableFiles()),
            engine=lambda: cast("Engine", None),
            journal=self.journal,
            narrator=SilentNarrator(),
            warehouse=self.root,
            changed_files=lambda _: (),
        )

    def gc(self, now: datetime, *, dry_run: bool = False) -> GcReport:
        files = SpelledStore(self.root)
        return gc(self.context, files=files, keep_rejected=KEEP, grace=KEEP, now=now, dry_run=dry_run, history=KEEP)

    def files(self) -> set[Path]:
        return {path for path in local_path(self.root).rglob("*") if path.is_file()}

    def discard(self, staged: Staged) -> None:
        name = f"wap/{self.world.namespace}/{staged.run}"
        self.world.lake.delete_ref(self.world.lake.get_ref(name))

    def findings(self) -> Sequence[VerifyFinding]:
        now = datetime.now(UTC)
        return verify(self.context, files=LocalFileStore(self.root), grace=KEEP, now=now, history=KEEP).findings


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[ReadOnly]:
    made = ReadOnly("lake", uri=f"sqlite:///{tmp_path / 'catalog.db'}", warehouse=(tmp_path / "lake").as_uri())
    yield made
    made.close()


@pytest.fixture(params=[True, False], ids=["swap", "pyiceberg"])
def lake(request: pytest.FixtureRequest, tmp_path: Path, catalog: ReadOnly) -> Iterator[Lake]:
    made = Lake(tmp_path, catalog, request.param)
    yield made
    made.database.close()


def later() -> datetime:
    return datetime.now(UTC) + LATER


# What gc deletes


def test_gc_deletes_what_was_staged_and_discarded_and_nothing_else(lake: Lake) -> None:
    lake.world.append_as_others("trips", 10)
    strangers = local_path(lake.root) / lake.world.namespace / "theirs" / "data" / "orphan.parquet"
    strangers.parent.mkdir(parents=True)
    strangers.write_bytes(b"x")
    kept = lake.files()
    lake.discard(lake.world.staged("r", {"trips": [2], "new": [3]}))
    staged = lake.files() - kept
    assert len(staged) > 4
    assert lake.gc(datetime.now(UTC)).files == 0
    told = lake.gc(later(), dry_run=True)
    assert lake.files() == kept | staged
    report = lake.gc(later())
    left = {path.name for path in lake.files() - kept}
    assert lake.files() >= kept
    assert all(name.endswith(".metadata.json") for name in left), left  # drafts that were on no branch
    assert told.files == report.files >= 8
    assert lake.world.ids("trips") == [1, 10]
    assert lake.gc(later()).files == 0


def test_gc_keeps_what_was_published_whoever_expires_it(lake: Lake) -> None:
    first = lake.world.staged("a", {"trips": [2]})
    second = lake.world.staged("b", {"trips": [3]})
    lake.world.publish(first)
    lake.world.publish(lake.world.rebased(second))
    for staged in (first, second):
        lake.discard(staged)
    lake.world.append_as_others("trips", 10)
    table = lake.catalog.load_table((lake.world.namespace, "trips"))
    table.maintenance.expire_snapshots().by_id(first.puts[0].snapshot_id).commit()
    lake.gc(later())
    assert lake.world.ids("trips") == [1, 2, 3, 10]
    assert [one.kind for one in lake.findings() if one.kind != "foreign-commit"] == []


def test_gc_keeps_branches_and_what_they_began_from(lake: Lake) -> None:
    staged = lake.world.staged("r", {"trips": [2]})
    for number in range(3, 5):
        lake.world.publish(lake.world.staged(f"r{number}", {"trips": [number]}))
    lake.gc(later())
    lake.world.publish(lake.world.rebased(staged))
    assert lake.world.ids("trips") == [1, 2, 3, 4]


# What it forgets


def test_commits_stay_and_states_that_nobody_goes_back_to_are_forgotten(tmp_path: Path) -> None:
    database = SqliteDatabase(tmp_path / "journal.db")
    overlay = OverlayCatalog(database)
    head = overlay.get_ref(MAIN)
    head = overlay.commit(CommitRequest(branch=MAIN, base=head.hash, message="0", namespaces=(("ns",),)))
    for number in range(1, 200):
        head = _put(overlay, head, number)
    commits = list(overlay.history(MAIN, operations=True))
    assert [commit.message for commit in commits] == [str(number) for number in range(199, -1, -1)]
    tag = overlay.create_tag("kept", Ref.detached(commits[-100].hash))
    branch = overlay.create_branch("old", Ref.detached(commits[-80].hash))
    _put(overlay, branch, 500)
    gone = _put(overlay, overlay.create_branch("gone", head), 600)
    overlay.delete_ref(gone)
    with database.writing() as tx:
        prune(tx, later())
    again = OverlayCatalog(database)
    assert list(again.history(MAIN, operations=True)) == commits
    assert _location(again, again.get_ref(MAIN)) == "199"
    assert _location(again, tag) == "99"
    assert _location(again, again.get_ref("old")) == "500"
    assert _location(again, branch) == "79"
    with pytest.raises(NotFoundError, match=r"isn't kept any more: it's older than gc\.keep"):
        again.get_table(TRIPS, Ref.detached(commits[-130].hash))
    with pytest.raises(NotFoundError, match="doesn't exist"):
        again.get_ref(gone.hash)
    assert _location(again, _put(again, again.get_ref(MAIN), 700)) == "700"
    database.close()


def _put(overlay: OverlayCatalog, head: Ref, number: int) -> Ref:
    was = overlay.get_table(TRIPS, head)
    pointer = TablePointer(
        table=TRIPS,
        content_id=None if was is None else was.content_id,
        metadata_location=str(number),
        snapshot_id=number,
        schema_id=0,
        spec_id=0,
        sort_order_id=0,
    )
    return overlay.commit(CommitRequest(branch=head.name, base=head.hash, message=str(number), puts=(pointer,)))


def _location(overlay: OverlayCatalog, ref: Ref) -> str:
    found = overlay.get_table(TRIPS, ref)
    assert found is not None
    return found.metadata_location


# Two journals


def test_a_second_journal_publishes_nothing_until_somebody_says_that_the_first_was_lost(
    tmp_path: Path, catalog: ReadOnly
) -> None:
    first = Lake(tmp_path, catalog)
    database = SqliteDatabase(tmp_path / "other.db")
    target = SqlSwapTarget(catalog, TableFiles(), "the catalog")
    world = World(database, target, catalog, TableFiles(), first.world.namespace)
    runs = set[str]()
    world.lake = TargetCatalog(database, target, knows_run=runs.__contains__)
    staged = world.staged("mine", {"trips": [2]})
    with pytest.raises(ConfigurationError, match="isn't in the journal") as refused:
        world.publish(staged)
    assert "lakegate admin journal rebuild" in (refused.value.hint or "")
    assert world.ids("trips") == [1]
    world.publish(world.staged("elsewhere", {"zones": [1]}))
    world.lake.accept_past()
    world.publish(staged)
    assert world.ids("trips") == [1, 2]
    database.close()
    first.database.close()


def test_a_rebuilt_journal_says_what_is_lost_and_publishes(lake: Lake) -> None:
    lake.world.lake = TargetCatalog(lake.database, lake.world.target, knows_run=lambda _: False)
    staged = lake.world.staged("r", {"trips": [2]})
    with pytest.raises(ConfigurationError, match="isn't in the journal"):
        lake.world.publish(staged)
    assert "branches, tags, earlier commits" in rebuild(lake.context, MAIN).lost
    lake.world.publish(staged)
    assert lake.world.ids("trips") == [1, 2]


def test_tables_leave_nessie_by_the_loop_of_the_how_to(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pointers = lake.world.lake.list_tables(lake.world.lake.get_ref(MAIN))
    published = SimpleNamespace(tables=partial(map, lake.context.reader.metadata, pointers))
    moved = SqlCatalog("moved", uri=f"sqlite:///{tmp_path / 'moved.db'}", warehouse=lake.root)
    monkeypatch.setattr("lakegate.connect", partial(nullcontext, published))
    monkeypatch.setattr("pyiceberg.catalog.load_catalog", lambda _: moved)
    section = _HOW_TO.read_text(encoding="utf-8").partition("## From Nessie to a catalog\n")[2]
    exec(section.partition("```python\n")[2].partition("```")[0], {})  # noqa: S102 - as its reader would
    database = SqliteDatabase(tmp_path / "moved-journal.db")
    journal = Journal(database)
    target = SqlSwapTarget(moved, TableFiles(), "moved")
    world = World(database, target, moved, TableFiles(), lake.world.namespace)
    world.lake = TargetCatalog(database, target, knows_run=lambda run: journal.get(run) is not None)
    assert world.ids("trips") == [1]
    staged = world.staged("r", {"trips": [2]})
    with pytest.raises(ConfigurationError, match="isn't in the journal") as refused:
        world.publish(staged)
    assert "lakegate admin journal rebuild" in (refused.value.hint or "")
    rebuild(replace(lake.context, catalog=world.lake, journal=journal), MAIN)
    world.publish(staged)
    assert (world.ids("trips"), lake.world.ids("trips")) == ([1, 2], [1])
    moved.close()
    database.close()


# What verify finds


def test_verify_finds_what_others_did_to_any_table(lake: Lake) -> None:
    lake.world.append_as_others("trips", 10)
    found = [one for one in lake.findings() if one.kind == "foreign-commit" and "outside lakegate" in one.message]
    assert [(one.table, one.commit) for one in found] == [
        (f"{lake.world.namespace}.trips", lake.world.lake.get_ref(MAIN).hash)
    ]


def test_verify_finds_a_publish_that_cannot_be_settled(tmp_path: Path, catalog: ReadOnly) -> None:
    lake = Lake(tmp_path, catalog, is_swap=False)
    lake.world.publish(lake.world.staged("second", {"zones": [1]}))
    catalog.commits_left = 1
    with pytest.raises(OutcomeUnknownError):
        lake.world.publish(lake.world.staged("r", {"trips": [2], "zones": [2]}))
    found = [one for one in lake.findings() if one.kind == "unsettled-publish"]
    assert [(one.run_id, "recover" in one.fix) for one in found] == [(f"{lake.world.namespace}-r", True)]
    catalog.commits_left = 10
    assert [one for one in lake.findings() if one.kind == "unsettled-publish"] == []
    assert (lake.world.ids("trips"), lake.world.ids("zones")) == ([1, 2], [1, 2])
    lake.database.close()


def test_verify_finds_a_torn_run(tmp_path: Path, catalog: ReadOnly) -> None:
    lake = Lake(tmp_path, catalog, is_swap=False)
    lake.world.publish(lake.world.staged("second", {"zones": [1]}))
    staged = lake.world.staged("r", {"trips": [2], "zones": [2]})
    with pytest.raises(Killed):
        lake.world.publish(staged, lake.world.dying("table-published"))
    for name in ("trips", "zones"):
        lake.world.append_as_others(name, 10)
    (found,) = (one for one in lake.findings() if one.kind == "torn-publish")
    assert (found.run_id, found.table) == (f"{lake.world.namespace}-r", f"{lake.world.namespace}.trips")
    with pytest.raises(NotReplayableError, match="it has snapshot") as refused:
        lake.world.rebased(staged)
    assert "lakegate admin verify" in (refused.value.hint or "")
    lake.database.close()


def test_verify_finds_a_staged_file_that_is_gone(lake: Lake) -> None:
    staged = lake.world.staged("r", {"trips": [2]})
    _delete_data(lake, staged.puts[0])
    found = [one for one in lake.findings() if one.kind == "missing-file"]
    assert [(one.table, "branch delete" in one.fix) for one in found] == [(f"{lake.world.namespace}.trips", True)]


# What is asked for before a publish


def test_a_staged_file_that_is_gone_is_not_published_wherever_its_table_is(lake: Lake) -> None:
    staged = lake.world.staged("r", {"trips": [2]})
    (put,) = staged.puts
    before = lake.world.lake.get_table(put.table, staged.base)
    run = Run(run_id="r", tables=(str(put.table),), branch="wap/r", status="audited", started_at=later())
    _delete_data(lake, put)
    elsewhere = replace(lake.context, warehouse="file:///nowhere")
    with pytest.raises(StagedFilesGoneError, match=r"Branch wap/r isn't published: .*parquet"):
        require_files(elsewhere, run, [(before, put)])


def _delete_data(lake: Lake, pointer: TablePointer) -> None:
    paths = lake.context.reader.added_files(pointer, [pointer.snapshot_id]).files
    assert paths
    for file in paths:
        local_path(file.path).unlink()
