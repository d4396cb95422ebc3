"""What ``Lake`` adds to the packages it calls, on a catalog and journal in memory."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from lakegate.config import Settings
from lakegate.contracts.store import Contracts
from lakegate.errors import (
    ConfigurationError,
    InputError,
    LakegateError,
    QueryError,
    StorageUnavailableError,
)
from lakegate.intake import Sources
from lakegate.journal.schema import FORMAT
from lakegate.lake import Lake
from lakegate.model.batch import CsvOptions, SourceFile
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.maintenance import GcReport
from lakegate.model.refs import CommitRequest, Ref, TablePointer
from lakegate.model.request import IngestOptions
from lakegate.model.run import Run, RunKind
from lakegate.model.states import RunStatus
from lakegate.model.tables import TableMetadata
from lakegate.progress import SilentNarrator
from lakegate.sources.files import from_uri, stat_file, to_uri
from lakegate.wap.ingest import ingest
from support.fakes import FakeLakehouse
from support.flow_support import ordered
from support.journals import Actor
from support.lakes import components_of
from support.memory_store import MemoryStore

TABLE = "nyc.trips"
START = datetime(2026, 1, 31, 7, tzinfo=UTC)


def open_lake(house: FakeLakehouse, **settings: Any) -> Lake:
    components: Any = SimpleNamespace(
        require_own_warehouse=lambda: None,
        settings=Settings.model_validate(settings),
        home=Path("/project"),
        journal=house.journal,
        catalog=house.catalog,
        context=house.context,
        reader=house,
        files=object(),
        narrator=SilentNarrator(),
    )
    return Lake(components)


def run(number: int, kind: RunKind = "ingest", **changes: Any) -> Run:
    fields: dict[str, Any] = {
        "run_id": f"20260131T07000{number}-00000000",
        "kind": kind,
        "tables": ("nyc.trips",),
        "branch": f"wap/{number}",
        "status": "published",
        "started_at": START + timedelta(hours=number),
    }
    return Run.model_validate(fields | changes)


def commit(house: FakeLakehouse, message: str) -> str:
    base = house.catalog.get_ref("main").hash
    return house.catalog.commit(CommitRequest(branch="main", base=base, message=message, namespaces=((message,),))).hash


def test_a_branch_dropped_meanwhile_does_not_hide_the_rows_of_the_others(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = open_lake(house)
    ingest(house.context, ordered(house))
    for name in ("a", "b"):
        house.catalog.create_branch(name, house.catalog.get_ref("main"))
    refs = house.catalog.list_refs()
    house.catalog.delete_ref(house.catalog.get_ref("a"))
    get_table = house.catalog.get_table

    def asked(table: TableIdentifier, ref: Ref) -> TablePointer | None:
        house.catalog.get_ref(ref.name)
        return get_table(table, ref)

    monkeypatch.setattr(house.catalog, "list_refs", lambda: refs)
    monkeypatch.setattr(house.catalog, "get_table", asked)
    assert [(ref.name, rows) for ref, rows in lake.branches.row_counts(TABLE)] == [("main", 2), ("b", 2)]


def test_a_commit_is_not_deleted_as_a_branch(house: FakeLakehouse) -> None:
    made = commit(house, "one")
    house.catalog.create_tag("v1", house.catalog.get_ref("main"))
    for name in (made, made[:8], "v1"):
        with pytest.raises(InputError, match=r"'.*' is a (tag|commit), not a branch"):
            open_lake(house).branches.delete(name)


def test_a_short_prefix_does_not_choose_a_run_to_change(house: FakeLakehouse) -> None:
    lake = open_lake(house)
    only = house.journal.save(run(1, finished_at=START))
    assert lake.run("2026") == lake.run("20260131T0700") == only
    for act in (lake.revert, lambda name: lake.recover([name])):
        with pytest.raises(InputError, match="'2026' is too short to choose a run") as caught:
            act("2026")
        assert "20260131T0700" in (caught.value.hint or "")
    assert lake.recover(["20260131T0700"]) == (only,)


def test_runs_are_filtered_by_kind_and_time(house: FakeLakehouse) -> None:
    kinds: tuple[RunKind, ...] = ("ingest", "revert", "ingest")
    for number, kind in enumerate(kinds):
        house.journal.save(run(number, kind=kind))
    lake = open_lake(house)
    assert [one.branch for one in lake.runs(kind="ingest")] == ["wap/2", "wap/0"]
    since = START + timedelta(hours=1)
    assert [one.branch for one in lake.runs(since=since)] == ["wap/2", "wap/1"]
    assert lake.runs(since=since.replace(tzinfo=None)) == lake.runs(since=since)


def test_the_status_of_a_journal(house: FakeLakehouse) -> None:
    lake = open_lake(house)
    empty = lake.maintenance.journal_status()
    assert (empty.location, empty.version) == (str(Path("/project/.lakegate/journal.db")), str(FORMAT))
    assert (empty.runs, empty.files, empty.newest, empty.synced) == ({}, 0, None, None)
    house.journal.save(run(1))
    house.journal.begin(run(2, status="planned"))
    head = lake.maintenance.rebuild_journal().head
    full = open_lake(house, journal={"url": "postgresql://me@db/lake"}).maintenance.journal_status()
    assert (full.location, full.synced) == ("postgresql://me@db/lake", head.hash)
    assert (full.runs, full.abandoned, full.newest) == ({"published": 1, "planned": 1}, (), run(2).run_id)


def test_a_table_that_cannot_be_read_is_left_out_only_if_asked_to(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, found = open_lake(house), dict[str, LakegateError]()
    ingest(house.context, ordered(house, [{"id": 1}], run="r-1", checks=()))
    assert [str(one.table) for one in lake.tables()] == [TABLE]
    damaged, denied, away = InputError("It's damaged."), ConfigurationError("Denied."), StorageUnavailableError("Away.")
    errors: list[LakegateError] = [damaged, damaged, denied, away]

    def fails(_: TablePointer) -> TableMetadata:
        raise errors.pop(0)

    monkeypatch.setattr(house, "metadata", fails)
    with pytest.raises(InputError, match="damaged"):
        lake.tables()
    assert (lake.tables(on_unreadable=found.__setitem__), found) == ([], {TABLE: damaged})
    for raised in (ConfigurationError, StorageUnavailableError):  # they say nothing about this table
        with pytest.raises(raised):
            lake.tables(on_unreadable=found.__setitem__)


@pytest.mark.parametrize(
    ("given", "keep", "grace"),
    [
        ({}, timedelta(days=7), timedelta(days=3)),
        ({"keep_rejected": timedelta(0)}, timedelta(0), timedelta(days=3)),
        ({"keep_rejected": "2h", "grace": timedelta(minutes=5)}, timedelta(hours=2), timedelta(minutes=5)),
    ],
)
def test_gc_takes_durations_or_the_settings(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch, given: Any, keep: timedelta, grace: timedelta
) -> None:
    asked: dict[str, Any] = {}

    def fake_gc(_context: object, **options: Any) -> GcReport:
        asked.update(options)
        return GcReport(dry_run=options["dry_run"])

    monkeypatch.setattr("lakegate.api.maintenance.gc", fake_gc)
    monkeypatch.setattr("lakegate.api.maintenance.warehouse_time", lambda _context, _files: START)
    assert open_lake(house).maintenance.gc(dry_run=True, **given).dry_run
    assert (asked["keep_rejected"], asked["grace"], asked["history"]) == (keep, grace, timedelta(days=3))
    open_lake(house, gc={"keep": "90d"}).maintenance.gc()
    assert (asked["history"], asked["dry_run"], asked["now"]) == (timedelta(days=90), False, START)
    open_lake(house, catalog={"type": "iceberg", "properties": {"uri": "http://here"}}).maintenance.gc(dry_run=True)
    assert asked["keep_rejected"] == timedelta(days=2)
    longest = {"gc": {"keep": "999999d"}, "journal": {"keep_detail": "999999d"}}
    open_lake(house, ingest={"keep_rejected": "999999d"}, **longest).maintenance.gc()
    for name in ("keep_rejected", "grace", "history", "keep_detail"):
        assert (START - asked[name]).year > 1000, "there is no such time, but nothing is older either"


def claim(house: FakeLakehouse, path: Path, run: Run) -> Actor:
    """Let a run be ingesting a file in its current version."""
    found = stat_file(str(path))
    assert found is not None
    file = SourceFile(uri=to_uri(path), size_bytes=1, version=found.content_version(), rows=1)
    actor = Actor(house.journal)
    actor.begin(run)
    actor.claim(run.run_id, TABLE, [file])
    return actor


def run_of(run_id: str, status: RunStatus = "planned") -> Run:
    return run(1, run_id=run_id, status=status)


def test_each_file_is_new_published_changed_or_busy(house: FakeLakehouse, tmp_path: Path) -> None:
    lake = open_lake(house)
    paths = {name: tmp_path / name for name in ("new", "published", "touched", "changed", "vanished", "busy")}
    for name, path in paths.items():
        path.write_text(name, encoding="utf-8")
    lake.files.known(TABLE, [])  # an empty journal would read the history first
    for name in ("published", "touched", "changed", "vanished"):
        claim(house, paths[name], run_of(f"r-{name}")).end(run_of(f"r-{name}", status="published"))
    claim(house, paths["busy"], run_of("r-busy"))
    paths["touched"].touch()
    paths["changed"].write_text("other", encoding="utf-8")
    paths["vanished"].unlink()

    known = lake.files.known(TABLE, [to_uri(path) for path in paths.values()])
    assert {one.run_id for one in known.published} == {"r-published", "r-touched"}
    assert [one.run_id for one in known.changed] == ["r-changed"]
    assert [one.run_id for one in known.busy] == ["r-busy"]
    assert {file.uri for file in known.free} == {to_uri(paths["new"]), to_uri(paths["vanished"])}
    assert lake.files.known("nyc.others", [to_uri(paths["published"])]).published == ()


def lake_in(folder: Path, house: FakeLakehouse) -> Any:
    lake: Any = open_lake(house)
    components_of(lake).home = folder
    return lake


def test_files_are_copied_elsewhere_in_a_project_where_nothing_can_be_written(
    house: FakeLakehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakegate.private_files.os.access", lambda *_: False)  # as in a function's code on AWS Lambda
    source = tmp_path / "a.json"
    source.write_text('[{"id": 1}]', encoding="utf-8")
    project = tmp_path / "project"
    project.mkdir()
    lake = lake_in(project, house)
    (file,) = lake.intake.discover([str(source)], None, CsvOptions(), "r-1").files
    assert file.copy_uri is not None
    copy = Path(from_uri(file.copy_uri))
    assert (copy.is_file(), list(project.iterdir())) == (True, [])
    assert copy.parent.stat().st_mode & 0o077 == 0
    lake.intake.drop_copies("r-1")
    assert not copy.exists()


@pytest.mark.parametrize("is_writable", [True, False])
def test_copies_in_a_temporary_folder_are_dropped_when_they_are_uploaded(
    house: FakeLakehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_writable: bool
) -> None:
    """The run may be suspended then, and resumed by another function, while this one's disk gets full."""
    monkeypatch.setattr("lakegate.private_files.os.access", lambda *_: is_writable)
    store = MemoryStore()
    monkeypatch.setattr("lakegate.sources.copies.open_store", lambda *_: store)
    (tmp_path / "a.json").write_text('[{"id": 1}]', encoding="utf-8")
    project = tmp_path / "project"
    project.mkdir()
    lake = lake_in(project, house)
    vars(components_of(lake)).update(warehouse="s3://lake/w", shares_files=False)
    batch = lake.intake.discover([str(tmp_path / "a.json")], None, CsvOptions(), "r-1")
    copy = Path(from_uri(batch.files[0].copy_uri or ""))
    content = copy.read_bytes()
    uploaded = lake.intake.upload_if_needed(batch, "r-1")
    assert (store.objects, copy.exists()) == ({uploaded.files[0].copy_uri: content}, is_writable)


@pytest.mark.parametrize("is_new", [True, False])
def test_a_diff_shows_what_a_branch_changes_from_its_base_whatever_main_did_since(
    house: FakeLakehouse, *, is_new: bool
) -> None:
    lake, branch = open_lake(house), f"wap/{TABLE}_r2"
    if not is_new:  # otherwise, the branch starts from the root of the history
        ingest(house.context, ordered(house, [{"id": 1}], checks=()))
    base = house.catalog.get_ref("main")
    rejected = ingest(house.context, ordered(house, [{"id": 2}], run="r2", checks=("row_count(min=5)",), branch=branch))
    ingest(house.context, ordered(house, [{"id": 3}], run="r3", checks=()))
    (found,) = (one for one in lake.diff("main", branch) if one.kind == "table")
    assert (found.base, found.left, found.right) == (base.hash, rejected.staged[0].before, rejected.staged[0].pointer)
    assert found.change == ("added" if is_new else "changed")
    (both,) = lake.diff("main", branch, two_way=True)
    assert both.left == house.catalog.get_table(TableIdentifier.parse(TABLE), house.catalog.get_ref("main"))
    assert lake.diff(base.hash, "main") == lake.diff(base.hash, "main", two_way=True)
    assert lake.diff("main", base.hash) == []


def test_a_key_that_the_table_lacks_is_refused_even_for_added_rows(house: FakeLakehouse) -> None:
    before = house.catalog.get_ref("main").hash
    lake = open_lake(house)
    ingest(house.context, ordered(house, [{"id": 1}], checks=()))
    with pytest.raises(InputError, match=r"nyc.trips on main has no column 'idd'") as caught:
        lake.diff_rows(TABLE, before, "main", key=["idd"])
    assert caught.value.hint == "Its columns: id."


@pytest.mark.parametrize(("written", "guess"), [("`nyc`.`trps`", "nyc.trips"), ("`trips`", "nyc.trips"), ("`x`", None)])
def test_a_similar_table_is_suggested_for_a_query(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch, written: str, guess: str | None
) -> None:
    ingest(house.context, ordered(house, [{"id": 1}], checks=()))

    def refuse(*_: object) -> None:
        raise QueryError("Refused.", hint="See all.", detail=f"The table or view {written} cannot be found.")

    lake = open_lake(house)
    monkeypatch.setattr(components_of(lake), "engine", SimpleNamespace(query=refuse), raising=False)
    with pytest.raises(QueryError) as caught:
        lake.query("SELECT 1")
    assert caught.value.hint == ("See all." if guess is None else f"Did you mean '{guess}'? See all.")


@pytest.mark.parametrize("given", ["csv", "two csvs", "dicts", "pandas"])
def test_errors_about_a_batch_quote_values_in_their_detail_only(tmp_path: Path, given: str) -> None:
    lake = open_lake(FakeLakehouse())
    vars(components_of(lake))["contracts"] = Contracts(tmp_path, Settings())
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text('pin\n"1.234,56"\n', encoding="utf-8")
    rows: dict[str, Any] = {
        "csv": tmp_path / "a.csv",
        "two csvs": tmp_path,
        "dicts": [{"pin": SimpleNamespace(said="1.234,56")}],
        "pandas": pd.DataFrame({"pin": [SimpleNamespace(said="1.234,56")]}),
    }
    csv = CsvOptions(types={"pin": "long"}) if "csv" in given else None
    with pytest.raises(InputError) as caught:
        lake.ingest(TABLE, rows[given], csv=csv)
    assert "1.234,56" in str(caught.value.detail)
    assert "1.234,56" not in str(caught.value.to_dict())


@pytest.mark.parametrize(
    ("settings", "checks", "header", "kept"),
    [
        ({}, ["not_null(phone)"], True, True),
        ({"audit": {"mask": ["phone"]}}, [], True, False),
        ({"audit": {"mask": ["phone"]}}, [], False, False),
        ({"ui": {"masked": ["id"]}}, [], True, True),
        ({}, ["not_null(phone, examples=0)"], True, False),
    ],
)
def test_a_request_keeps_no_hidden_text_of_its_files(
    tmp_path: Path, settings: dict[str, Any], checks: list[str], header: bool, kept: bool
) -> None:
    """Until the run ends, and if it fails for good, the journal has the request as it was made."""
    lake = open_lake(FakeLakehouse(), **settings)
    vars(components_of(lake)).update(
        contracts=Contracts(tmp_path, Settings()), shares_files=True, reads_private_files=True
    )
    path = tmp_path / "a.csv"
    path.write_text(("id,phone\n" if header else "") + "1,17\n2,+49 17\n", encoding="utf-8")
    options = IngestOptions(csv=CsvOptions(header=header), checks=checks)
    request = lake.intake.request(TABLE, Sources([str(path)]), "r-1", options)
    assert ("+49 17" in request.model_dump_json()) == kept


def test_a_deleted_branch_is_restored_from_its_last_commit(house: FakeLakehouse) -> None:
    lake = open_lake(house)
    base = lake.branches.create("dev").hash
    own = house.catalog.commit(CommitRequest(branch="dev", base=base, message="own", namespaces=(("own",),))).hash
    deleted = lake.branches.delete("dev")
    with pytest.raises(InputError, match="isn't in the history of 'main'"):
        lake.branches.create("dev", at=deleted.hash)
    assert lake.branches.create("dev", deleted.hash).hash == own


@pytest.mark.parametrize("open_for", ["0s", "999999w", timedelta(seconds=-1), timedelta.max])
def test_a_branch_is_open_for_a_time_that_makes_sense(open_for: Any) -> None:
    lake = open_lake(FakeLakehouse())
    with pytest.raises(InputError, match="10 years at most"):
        lake.gate.open("night", open_for=open_for)
    assert list(lake.gate.openings()) == []


def test_who_opens_a_branch_on_s3_is_told_that_some_writers_hold_keys_of_their_own() -> None:
    told: list[str] = []
    for warehouse, role in (
        ("s3://lake/w", None),
        ("s3://lake/w", "arn:aws:iam::123456789012:role/w"),
        ("/lake", None),
    ):
        lake = open_lake(FakeLakehouse(), s3={"writer_role": role})
        components: Any = components_of(lake)
        components.warehouse = warehouse
        components.narrator = SimpleNamespace(note=told.append)
        assert lake.gate.open("night").token.startswith("lakegate1.")
    assert len(told) == 1
    assert "set s3.writer_role" in told[0]
