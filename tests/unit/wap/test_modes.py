"""Batches that do more than append, on a lakehouse in memory."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import pytest

from lakegate.checks import parse_checks
from lakegate.errors import (
    CheckError,
    InputError,
    NotReplayableError,
    RetryableError,
    SchemaError,
)
from lakegate.ledger.event import run_of
from lakegate.model.batch import FileColumns
from lakegate.model.refs import Ref
from lakegate.model.request import WriteMode
from lakegate.model.run import Run
from lakegate.model.schema import Column, Schema
from lakegate.wap import failpoints
from lakegate.wap.ingest import ingest
from lakegate.wap.modes import choose_mode
from lakegate.wap.plan import plan
from lakegate.wap.rebuild import rebuild
from lakegate.wap.recover import recover
from lakegate.wap.revert import restore_table, revert
from lakegate.wap.review import accepted, publish_branch
from lakegate.wap.table_changes import drop_table
from support.fakes import FakeLakehouse
from support.flow_support import CLEAN, MORE, MOST, TRIPS, WITH_NULLS, branches, ordered, when_reached
from support.ledger_support import event_in

OVERWRITE = WriteMode(name="overwrite")
UPSERT = WriteMode(name="upsert", key=("id",))
NEWER = [{"id": 2, "passengers": 9}, {"id": 7, "passengers": 7}]
MODES = pytest.mark.parametrize(
    ("mode", "rows", "left"),
    [
        (OVERWRITE, NEWER, NEWER),
        (UPSERT, NEWER, [CLEAN[0], *NEWER]),
        (UPSERT, MORE, [*CLEAN, *MORE]),
    ],
    ids=["overwrite", "upsert", "an upsert that only inserts"],
)


def into(house: FakeLakehouse, rows: Any, run: str, **options: Any) -> Run:
    return ingest(house.context, ordered(house, rows, run=run, **options))


def by_id(house: FakeLakehouse, ref: str = "main") -> list[Any]:
    return sorted(house.rows_on(ref, "nyc.trips"), key=lambda row: row["id"])


@MODES
def test_each_mode_publishes_its_rows_once_and_takes_them_back(
    house: FakeLakehouse, mode: WriteMode, rows: Any, left: Any
) -> None:
    into(house, CLEAN, "r1")
    run = into(house, rows, "r2", mode=mode)

    assert (run.status, run.reads, by_id(house), branches(house)) == ("published", ("nyc.trips",), left, ["main"])
    assert into(house, rows, "again", file="r2", mode=mode).status == "skipped"
    commit = next(house.catalog.history("main"))
    assert commit.message.startswith(f"Publish nyc.trips ({mode.name}: ")
    assert event_in(commit).mode == mode.name

    revert(house.context, "r2", new_run_id="r3")
    assert by_id(house) == CLEAN
    assert into(house, rows, "r4", file="r2", mode=mode).status == "published"
    assert by_id(house) == left


@MODES
def test_rows_appended_between_write_and_publish_are_included(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch, mode: WriteMode, rows: Any, left: Any
) -> None:
    into(house, CLEAN, "r1")
    with when_reached(monkeypatch, "before-publish", lambda: into(house, MOST, "other")):
        run = into(house, rows, "r2", mode=mode)

    kept = [] if mode.name == "overwrite" else MOST
    assert run.status == "published"
    assert by_id(house) == sorted([*left, *kept], key=lambda row: row["id"])
    assert run.publication is not None
    assert run.publication.replayed == ()


@pytest.mark.parametrize("rebuilds", [False, True])
@pytest.mark.parametrize("mode", [OVERWRITE, UPSERT], ids=["overwrite", "upsert"])
def test_a_file_that_goes_back_to_earlier_content_is_ingested_again(
    house: FakeLakehouse, mode: WriteMode, rebuilds: bool
) -> None:
    def take(version: str) -> str:
        taken[0] += 1
        rows = [{"id": 1, "passengers": int(version)}]
        run = into(house, rows, f"r{taken[0]}", file="f", version=version, mode=mode, on_changed="append")
        if rebuilds:
            rebuild(house.context, "main")
        return run.status

    taken = [0]
    for version in ("1", "2", "1", "2", "1"):
        assert (take(version), take(version)) == ("published", "skipped")
        assert by_id(house) == [{"id": 1, "passengers": int(version)}]
    revert(house.context, "r9", new_run_id="x")
    assert by_id(house) == [{"id": 1, "passengers": 2}]
    assert (take("2"), take("1"), take("1")) == ("skipped", "published", "skipped")


@pytest.mark.parametrize("rebuilds", [False, True])
@pytest.mark.parametrize("undo", ["drop", "reverts"])
def test_what_comes_back_is_as_new_as_it_was(house: FakeLakehouse, undo: str, rebuilds: bool) -> None:
    """Else an older version of a file counted as its newest, and the newest one was taken again, over later rows."""

    def take(run: str, file: str, version: int, mode: WriteMode = UPSERT) -> str:
        rows = [{"id": 1, "passengers": version}]
        options = {"file": file, "version": str(version), "mode": mode, "on_changed": "append"}
        return into(house, rows, run, **options).status

    first = WriteMode() if undo == "reverts" else UPSERT  # what reads the table can't be left when r1 is reverted
    into(house, MORE, "r0")
    for run, file, version in (("r1", "f", 1), ("r2", "f", 2), ("r3", "g", 3)):
        take(run, file, version, first)
    before = sorted(by_id(house), key=str)
    then = house.context.catalog.get_ref("main")
    if undo == "drop":
        drop_table(house.context, TRIPS, new_run_id="x")
    else:
        revert(house.context, "r1", new_run_id="x")
        revert(house.context, "r2", new_run_id="y")
    restore_table(house.context, TRIPS, Ref(name="main", hash=then.hash, kind="detached"), new_run_id="back")
    if rebuilds:
        rebuild(house.context, "main")
    assert take("again", "f", 2) == "skipped"
    assert sorted(by_id(house), key=str) == before


def test_a_file_that_goes_back_is_skipped_where_its_rows_would_be_there_twice(house: FakeLakehouse) -> None:
    for run, version, rows in (("r1", "1", CLEAN), ("r2", "2", MORE)):
        into(house, rows, run, file="f", version=version, on_changed="append")
    assert into(house, CLEAN, "r3", file="f", version="1", on_changed="append").status == "skipped"
    with pytest.raises(InputError, match="by run r2 with other content"):
        into(house, CLEAN, "r4", file="f", version="1", mode=OVERWRITE, on_changed="refuse")
    assert by_id(house) == [*CLEAN, *MORE]


def test_only_one_of_two_runs_publishes_a_file_that_went_back(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    back = {"file": "f", "version": "1", "mode": UPSERT, "on_changed": "append"}
    into(house, CLEAN, "r1", **back)
    into(house, NEWER, "r2", **{**back, "version": "2"})
    with when_reached(monkeypatch, "before-publish", lambda: into(house, CLEAN, "other", **back)):
        assert into(house, CLEAN, "r3", **back).status == "skipped"
    assert [row["passengers"] for row in by_id(house)] == [2, 1, 7]


def test_an_overwrite_of_an_empty_table_leaves_nothing_beside_it(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It's an append by its snapshot, which would be rebased."""
    with when_reached(monkeypatch, "before-publish", lambda: into(house, MOST, "other")):
        into(house, CLEAN, "r1", mode=OVERWRITE)
    assert by_id(house) == CLEAN


def test_a_table_that_keeps_moving_ends_in_a_clear_error(house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    into(house, CLEAN, "r1")
    reach = failpoints.reach
    others = iter(range(10, 99))

    def append_first(point: str) -> None:
        if point == "before-publish":
            with monkeypatch.context() as patch:
                patch.setattr(failpoints, "reach", reach)
                number = next(others)
                into(house, [{"id": number, "passengers": 1}], f"o{number}")

    with monkeypatch.context() as patch:
        patch.setattr(failpoints, "reach", append_first)
        with pytest.raises(NotReplayableError, match="what mode upsert writes depends on its rows") as refused:
            into(house, NEWER, "r2", mode=UPSERT)
    assert (int(refused.value.exit_code), branches(house)) == (3, ["main"])
    assert "when fewer runs publish to nyc.trips" in str(refused.value.hint)
    assert {row["id"] for row in by_id(house)}.isdisjoint({7})
    assert into(house, NEWER, "r3", file="r2", mode=UPSERT).status == "published"


def test_an_upsert_that_lost_twice_holds_back_appends_while_it_is_written_again(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    into(house, CLEAN, "r1")
    main = threading.current_thread()
    appending: list[Future[Run]] = []

    def append_first(point: str) -> None:
        if point == "before-publish" and threading.current_thread() is main:
            number = 10 + len(appending)
            appending.append(pool.submit(into, house, [{"id": number, "passengers": 1}], f"o{number}"))
            # The first two appends are published before the upsert; the third one can't be.
            wait(appending[-1:], timeout=60 if number < 12 else 0.5)

    monkeypatch.setattr(failpoints, "reach", append_first)
    with ThreadPoolExecutor(4) as pool:
        run = into(house, NEWER, "r2", mode=UPSERT)
        appended = [one.result() for one in appending]

    assert (run.status, [one.status for one in appended]) == ("published", ["published"] * 3)
    assert [run_of(commit) for commit in house.catalog.history("main")] == ["o12", "r2", "o11", "o10", "r1"]


def test_a_rejected_audit_is_about_the_whole_table_and_leaves_main_alone(house: FakeLakehouse) -> None:
    into(house, WITH_NULLS, "r1", checks=())
    run = into(house, MORE, "r2", mode=WriteMode(name="upsert", key=("id",)))
    assert run.status == "published", "an upsert that only inserts is audited by its own rows"

    run = into(house, [{"id": 4, "passengers": 2}], "r3", mode=UPSERT)
    assert run.status == "rejected"
    assert [(one.failing_rows, one.total_rows) for one in run.failures] == [(1, 3)]
    assert by_id(house) == [*WITH_NULLS, *MORE]
    publish_branch(house.context, run.branch, configured=lambda _: (), acceptance=accepted("known"))
    assert by_id(house) == [WITH_NULLS[0], {"id": 4, "passengers": 2}, *MORE]


@pytest.mark.parametrize("point", ["after-branch", "after-stage", "after-audit", "before-publish", "after-publish"])
def test_a_killed_upsert_is_finished_or_undone_and_done_once(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    into(house, CLEAN, "r1")
    house.dies_at(monkeypatch, point, lambda: into(house, NEWER, "r2", mode=UPSERT))
    recover(house.context)
    again = into(house, NEWER, "r3", file="r2", mode=UPSERT)

    assert again.status == ("skipped" if point in {"before-publish", "after-publish"} else "published")
    assert (by_id(house), branches(house)) == ([CLEAN[0], *NEWER], ["main"])


def test_keys_that_repeat_or_are_null_are_refused_and_nothing_stays(house: FakeLakehouse) -> None:
    into(house, CLEAN, "r1")
    for rows in ([*MORE, *MORE], [*MORE, {"id": None, "passengers": 1}]):
        with pytest.raises(InputError, match="NULL or not unique"):
            into(house, rows, "r2", mode=UPSERT)
    assert (by_id(house), branches(house)) == (CLEAN, ["main"])


@pytest.mark.parametrize(
    ("mode", "options", "error", "text"),
    [
        (UPSERT, {"checks": ("not_null(passengers, severity='quarantine')",)}, CheckError, "mode upsert"),
        (UPSERT, {"on_changed": "replace"}, InputError, "mode upsert can't tell"),
        (WriteMode(name="upsert", key=("idd",)), {}, SchemaError, "The batch has no key column 'idd'"),
        (UPSERT.model_copy(update={"delete_when": "op = 'D'"}), {}, SchemaError, "no column 'op'"),
        (UPSERT.model_copy(update={"delete_when": "max(id) = 1"}), {}, InputError, "which takes many rows"),
        (UPSERT.model_copy(update={"delete_when": "rand() < 0.5"}), {}, InputError, "give different results"),
        (UPSERT.model_copy(update={"delete_when": "id = 1; DROP TABLE x"}), {}, InputError, "delete_when"),
        (WriteMode(name="replace-partitions"), {}, InputError, "isn't partitioned"),
    ],
)
def test_impossible_requests_are_refused_before_anything_is_written(
    house: FakeLakehouse, mode: WriteMode, options: Any, error: type[Exception], text: str
) -> None:
    into(house, CLEAN, "r1")
    with pytest.raises(error, match=text):
        plan(house.context, ordered(house, NEWER, run="r2", mode=mode, **options))


@pytest.mark.parametrize(
    ("default", "given", "expected"),
    [
        (WriteMode(), {}, WriteMode()),
        (WriteMode(), {"mode": "overwrite"}, OVERWRITE),
        (WriteMode(), {"mode": "upsert", "key": ["id"]}, UPSERT),
        (UPSERT, {}, UPSERT),
        (UPSERT, {"key": ["a", "b"]}, WriteMode(name="upsert", key=("a", "b"))),
        (UPSERT, {"mode": "append"}, WriteMode()),
        (WriteMode(), {"key": ["id"]}, "key belongs to mode upsert, not to append"),
        (WriteMode(), {"mode": "overwrite", "delete_when": "x"}, "delete_when belongs to mode upsert"),
        (WriteMode(), {"mode": "upsert"}, "needs the columns that identify a row"),
        (WriteMode(), {"mode": "upsert", "key": "id"}, "is text, not a list"),
    ],
)
def test_the_mode_is_the_given_one_or_else_the_tables(default: WriteMode, given: Any, expected: Any) -> None:
    if isinstance(expected, WriteMode):
        assert choose_mode(default, **given) == expected
    else:
        with pytest.raises(InputError, match=expected):
            choose_mode(default, **given)


def both(house: FakeLakehouse, run: str, *versions: str, mode: WriteMode = OVERWRITE, **options: Any) -> Run:
    """Ingest files p1 and p2 together, in these versions."""
    batches = [
        house.batch(f"p{number}", [{"id": number, "passengers": int(version)}], version=version)
        for number, version in enumerate(versions, 1)
    ]
    request = ordered(house, run=run, mode=mode, **options)
    batch = batches[0].only(tuple(file for one in batches for file in one.files))
    return ingest(house.context, request.model_copy(update={"batch": batch}))


def test_an_overwrite_writes_all_its_files_when_one_of_them_is_new(house: FakeLakehouse) -> None:
    both(house, "r1", "1", "1", mode=WriteMode())
    run = both(house, "r2", "1", "2", on_changed="append")
    assert (run.status, run.skipped_files) == ("published", ())
    assert by_id(house) == [{"id": 1, "passengers": 1}, {"id": 2, "passengers": 2}]
    assert both(house, "r3", "1", "2", on_changed="append").status == "skipped"

    revert(house.context, "r2", new_run_id="x")
    assert by_id(house) == [{"id": 1, "passengers": 1}, {"id": 2, "passengers": 1}]
    for _ in range(2):
        assert both(house, "again", "1", mode=WriteMode()).status == "skipped", "it is r1's, as before"
        house.lose_journal()


def test_an_overwrite_leaves_no_file_to_another_run(house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    into(house, CLEAN, "r0")

    def meanwhile() -> None:
        with pytest.raises(RetryableError, match="mode overwrite needs every file"):
            both(house, "r1", "1", "1", on_busy="skip")

    with when_reached(monkeypatch, "after-claim", meanwhile):
        into(house, MORE, "other", file="p1")
    assert (len(by_id(house)), branches(house)) == (3, ["main"]), "what was there, and the other run's row"


def test_files_that_an_upsert_published_cannot_be_replaced(house: FakeLakehouse) -> None:
    """What is copied on write holds the rows of others, too."""
    into(house, CLEAN, "r1")
    into(house, [{"id": 2, "passengers": 9}], "r2", file="day", mode=UPSERT)
    newer = [{"id": 2, "passengers": 8}]
    with pytest.raises(InputError, match="with other content, in mode upsert"):
        into(house, newer, "r3", file="day", version="2", on_changed="replace")
    assert by_id(house) == [CLEAN[0], {"id": 2, "passengers": 9}]


def test_an_upsert_refuses_files_of_which_only_some_have_a_column(house: FakeLakehouse) -> None:
    into(house, CLEAN, "r1")
    whole, part = house.batch("a", [CLEAN[0]]), house.batch("b", [{"id": 2}])
    variants = tuple(FileColumns(columns=one.columns, uris=one.uris) for one in (whole, part))
    batch = whole.model_copy(update={"files": (*whole.files, *part.files), "variants": variants})
    request = ordered(house, run="r2", mode=UPSERT).model_copy(update={"batch": batch})
    with pytest.raises(SchemaError, match=r"b.parquet has no column 'passengers'"):
        ingest(house.context, request)
    assert (by_id(house), branches(house)) == (CLEAN, ["main"])


def test_of_columns_without_values_a_new_table_gets_those_that_something_names(monkeypatch: pytest.MonkeyPatch) -> None:
    house = FakeLakehouse()
    rows = [{"id": 1, "fee": None, "Zone": None, "tip": None, "day": None, "fees": None}]
    order = ordered(house, rows, schema_mode="evolve", partition_by=("day",))
    order = order.model_copy(update={"checks": tuple(parse_checks("not_null(id, fee, where='zone > 0')"))})
    kinds = {name: "long" if name == "id" else "unknown" for name in rows[0]}
    source = Schema(columns=tuple(Column(name=name, type=kind) for name, kind in kinds.items()))
    monkeypatch.setattr(house, "source_schema", lambda _: source)
    made = plan(house.context, order)
    assert made.table_schema.names == ("id", "fee", "Zone", "day")
    assert made.request.create_as == made.table_schema
    assert [note.split("'")[1] for note in made.notes] == ["tip", "fees"]
