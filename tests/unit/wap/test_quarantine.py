"""Quarantine on a lakehouse in memory: kills between the steps, refusals, and what a run records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from lakegate.checks import parse_checks
from lakegate.errors import CheckError, ConfigurationError, EngineError, InputError, SchemaError
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.request import IngestRequest
from lakegate.model.run import Acceptance, Run, new_run_id
from lakegate.model.schema import Schema
from lakegate.model.tables import CreateTable, ScanResult, WriteTarget
from lakegate.wap.ingest import ingest, resume
from lakegate.wap.recover import recover
from lakegate.wap.review import publish_branch
from lakegate.wap.table_changes import drop_table
from support.fakes import FakeLakehouse

TABLE = "nyc.trips"
ASIDE = f"{TABLE}__quarantine"
ROWS: list[dict[str, Any]] = [
    {"id": 1, "fare": 1},
    {"id": None, "fare": 2},
    {"id": 3, "fare": -1},
    {"id": None, "fare": -2},
]
CHECKS = ("not_null(id, severity='quarantine')", "in_range(fare, min=0, severity='quarantine')")


def request(house: FakeLakehouse, name: str, rows: Sequence[dict[str, Any]], **given: Any) -> IngestRequest:
    run_id = given.pop("run_id", None) or new_run_id()
    checks = tuple(check for text in given.pop("checks", CHECKS) for check in parse_checks(text))
    made = IngestRequest(
        run_id=run_id,
        table=TableIdentifier.parse(given.pop("table", TABLE)),
        batch=house.batch(name, rows),
        checks=checks,
        branch=f"wap/{TABLE}_{run_id}",
    )
    return made.model_copy(update=given)


def ids(house: FakeLakehouse, table: str) -> list[int | None]:
    return [row["id"] for row in house.rows_on("main", table)]


def require_whole(house: FakeLakehouse, run: Run) -> None:
    assert run.status == "published"
    assert (ids(house, TABLE), ids(house, ASIDE)) == ([1], [None, 3, None])
    assert [ref.name for ref in house.catalog.list_refs()] == ["main"]


@pytest.mark.parametrize("point", ["after-quarantine", "after-leaving-out", "after-split", "before-publish"])
def test_killed_between_the_steps_a_suspended_run_goes_on_as_if_nothing_had_happened(
    monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    house = FakeLakehouse()
    made = request(house, "a", ROWS)
    house.dies_at(monkeypatch, point, lambda: ingest(house.context, made, suspends=True))
    assert (ids(house, TABLE), ids(house, ASIDE)) == ([], [])
    require_whole(house, resume(house.context, made.run_id, until="publish"))


def test_what_was_quarantined_is_taken_back_before_its_file_is_replaced() -> None:
    house = FakeLakehouse()
    first = ingest(house.context, request(house, "a", ROWS))

    def newer() -> IngestRequest:
        changed = request(house, "a", ROWS[:1], on_changed="replace")
        files = tuple(file.model_copy(update={"version": "2"}) for file in changed.batch.files)
        return changed.model_copy(update={"batch": changed.batch.model_copy(update={"files": files})})

    with pytest.raises(InputError, match="quarantined some of their rows") as caught:
        ingest(house.context, newer())
    assert caught.value.hint is not None
    assert f"lakegate revert {first.run_id}" in caught.value.hint
    assert (ids(house, TABLE), len(ids(house, ASIDE))) == ([1], 3)


@pytest.mark.parametrize(
    ("point", "is_published"),
    [("after-quarantine", False), ("after-leaving-out", False), ("after-split", False), ("before-publish", True)],
)
def test_killed_between_the_steps_all_is_published_or_nothing(
    monkeypatch: pytest.MonkeyPatch, point: str, is_published: bool
) -> None:
    house = FakeLakehouse()
    made = request(house, "a", ROWS)
    house.dies_at(monkeypatch, point, lambda: ingest(house.context, made))
    (run,) = recover(house.context)
    if is_published:
        require_whole(house, run)
    else:
        assert run.status == "failed"
        assert (ids(house, TABLE), ids(house, ASIDE)) == ([], [])
        assert [ref.name for ref in house.catalog.list_refs()] == ["main"]
        require_whole(house, ingest(house.context, request(house, "a", ROWS)))


def test_what_a_run_says_of_the_rows_it_set_aside() -> None:
    house = FakeLakehouse()
    run = ingest(house.context, request(house, "a", ROWS))
    require_whole(house, run)
    assert run.tables == (TABLE, ASIDE)
    assert run.publication is not None
    assert (run.publication.rows, run.publication.quarantined, run.quarantined) == (1, 3, 3)
    found = [(one.verdict, one.failing_rows, one.quarantined, one.detail) for one in run.reports[0].results]
    assert found == [("pass", 0, 2, "2 rows quarantined.")] * 2
    assert [len(one.examples) for one in run.reports[0].results] == [2, 2]
    # Its file is known of its table, and no other.
    known = house.journal.known(ASIDE, request(house, "a", ROWS).batch.files)
    assert not known.published


@pytest.mark.parametrize(("rows", "detail"), [(ROWS, "1 row quarantined."), (ROWS[2:3], None)])
def test_the_rows_that_count_are_those_set_aside(
    monkeypatch: pytest.MonkeyPatch, rows: Sequence[dict[str, Any]], detail: str | None
) -> None:
    house = FakeLakehouse()
    answers, counted = iter([3]), house.count_failing

    def as_of_then(*asked: Any, **options: Any) -> ScanResult:
        """Count one row too many at first, as of a time that isn't in the future any more when rows are set aside."""
        found = counted(*asked, **options)
        return ScanResult(total=found.total, failing=(next(answers, *found.failing),))

    monkeypatch.setattr(house, "count_failing", as_of_then)
    run = ingest(house.context, request(house, "a", rows, checks=["in_range(id, min=2, severity='quarantine')"]))
    assert (run.status, [one.detail for one in run.reports[0].results]) == ("published", [detail])
    assert run.quarantined == len(house.rows_on("main", ASIDE)) == (1 if detail else 0)


def test_a_limit_in_rows_counts_all_of_a_batch() -> None:
    house = FakeLakehouse()
    assert ingest(house.context, request(house, "a", ROWS, quarantine_limit=2)).status == "rejected"
    assert ingest(house.context, request(house, "a", ROWS, quarantine_limit=3)).status == "published"


def test_what_cannot_be_quarantined_is_refused_before_anything_is_written() -> None:
    house = FakeLakehouse()
    with pytest.raises(CheckError, match="isn't about single rows"):
        request(house, "a", ROWS, checks=["row_count(min=1, severity='quarantine')"])
    with pytest.raises(ConfigurationError, match="names that end in '__quarantine' are reserved"):
        ingest(house.context, request(house, "a", ROWS, table=ASIDE))
    named = [{"id": 1, "_Reasons": "x"}]
    with pytest.raises(SchemaError, match="its column '_Reasons' has the name of a column"):
        ingest(house.context, request(house, "b", named, checks=["not_null(id, severity='quarantine')"]))
    assert house.writes == 0


def test_only_lakegate_writes_to_the_quarantine_table_of_a_branch_that_is_published() -> None:
    house = FakeLakehouse()
    checks = [*CHECKS, "row_count(min=2)"]
    ingest(house.context, request(house, "c", ROWS[:1]))
    run = ingest(house.context, request(house, "a", ROWS, checks=checks))
    assert (run.status, run.tables) == ("rejected", (TABLE, ASIDE))
    head = house.catalog.get_ref(run.branch)
    by_hand = house.catalog.create_branch("by-hand", house.catalog.get_ref("main"))
    aside = TableIdentifier.parse(ASIDE)
    for branch in (head.name, by_hand.name):
        target = WriteTarget(table=aside, ref=branch, table_schema=None, create=CreateTable(location="mem://other"))
        house.append(house.batch("again", ROWS[1:2]), target)
        with pytest.raises(InputError, match=f"'{branch}' changes {ASIDE}. Only lakegate writes to") as caught:
            publish_branch(house.context, branch, configured=lambda _: ())
        assert caught.value.hint is not None
        assert f"lakegate discard {branch}" in caught.value.hint

    house.catalog.assign_ref(house.catalog.get_ref(run.branch), head)
    accepted = Acceptance(reason="one row is enough", actor="me", at=run.started_at)
    assert publish_branch(house.context, run.branch, configured=lambda _: (), acceptance=accepted).status == "published"
    assert (ids(house, TABLE), ids(house, ASIDE)) == ([1, 1], [None, 3, None])


def test_a_quarantine_table_is_dropped_with_its_table_only() -> None:
    house = FakeLakehouse()
    ingest(house.context, request(house, "a", ROWS))
    aside = TableIdentifier.parse(ASIDE)
    with pytest.raises(InputError, match=r"it's the quarantine table of nyc\.trips, and is dropped with it"):
        drop_table(house.context, aside, new_run_id="d1")
    assert len(ids(house, ASIDE)) == 3
    drop_table(house.context, TableIdentifier.parse(TABLE), new_run_id="d2")
    assert [pointer.table for pointer in house.catalog.list_tables(house.catalog.get_ref("main"))] == []


def test_rows_whose_types_their_quarantine_table_cannot_follow_are_refused() -> None:
    house = FakeLakehouse()
    ingest(house.context, request(house, "a", ROWS))
    retype(house, ASIDE, "fare", "int")  # which can become long, as the table's is
    assert ingest(house.context, request(house, "b", ROWS)).status == "published"
    retype(house, ASIDE, "fare", "decimal(9, 2)")
    with pytest.raises(SchemaError, match=r"'fare' is long, but decimal\(9, 2\) in nyc\.trips__quarantine"):
        ingest(house.context, request(house, "c", ROWS))
    assert house.writes == 2


@pytest.mark.parametrize("point", ["after-quarantine", "after-split"])
def test_killed_while_a_batch_with_new_columns_is_split_the_run_starts_over(
    monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    house = FakeLakehouse()
    ingest(house.context, request(house, "a", [{"id": 1}], checks=CHECKS[:1]))
    rows: list[dict[str, Any]] = [{"id": 2, "tip": 1}, {"id": None, "tip": 2}]
    evolving = request(house, "b", rows, checks=CHECKS[:1], schema_mode="evolve")
    house.dies_at(monkeypatch, point, lambda: ingest(house.context, evolving, suspends=True))
    run = resume(house.context, evolving.run_id, until="publish")
    assert (run.status, run.tables) == ("published", (TABLE, ASIDE))
    assert [str(change) for change in run.staged[0].schema_changes] == ["add column tip (long)"]
    assert (ids(house, TABLE), ids(house, ASIDE)) == ([1, 2], [None])


def retype(house: FakeLakehouse, table: str, column: str, kind: str) -> None:
    pointer = house.catalog.get_table(TableIdentifier.parse(table), house.catalog.get_ref("main"))
    assert pointer is not None
    version = house.versions[pointer.metadata_location]
    columns = (c.model_copy(update={"type": kind}) if c.name == column else c for c in version.schema.columns)
    house.versions[pointer.metadata_location] = replace(version, schema=Schema(columns=tuple(columns)))


def of_three_files(house: FakeLakehouse) -> IngestRequest:
    batches = [house.batch(name, rows) for name, rows in (("a", ROWS[:1]), ("b", ROWS[1:3]), ("c", ROWS[3:]))]
    files = tuple(file for batch in batches for file in batch.files)
    return request(house, "d", ROWS, batch=batches[0].model_copy(update={"files": files}))


def of_one_file(house: FakeLakehouse) -> IngestRequest:
    return request(house, "d", ROWS)


def places(house: FakeLakehouse) -> list[tuple[str | None, int | None]]:
    return [(row["_source_file"], row["_position"]) for row in house.rows_on("main", ASIDE)]


def test_rows_set_aside_name_their_file_and_place() -> None:
    house = FakeLakehouse()
    require_whole(house, ingest(house.context, of_three_files(house)))
    assert places(house) == [("file:///b.parquet", 0), ("file:///b.parquet", 1), ("file:///c.parquet", 0)]


@pytest.mark.parametrize(("make", "source"), [(of_three_files, None), (of_one_file, "file:///d.parquet")])
def test_files_that_are_gone_once_they_are_staged_are_not_read_again(
    make: Callable[[FakeLakehouse], IngestRequest], source: str | None
) -> None:
    house = FakeLakehouse()
    made = make(house)
    ingest(house.context, made, until="write", suspends=True)
    house.changed_sources = made.batch.files
    house.sources.clear()
    require_whole(house, resume(house.context, made.run_id, until="publish"))
    assert places(house) == [(source, None)] * 3


def test_nothing_is_published_of_files_that_change_while_they_are_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    house = FakeLakehouse()
    made, divided = of_three_files(house), house.append_passing

    def change_then(*given: Any) -> None:
        house.changed_sources = made.batch.files[1:2]
        divided(*given)

    monkeypatch.setattr(house, "append_passing", change_then)
    with pytest.raises(EngineError, match=r"file:///b\.parquet was changed or removed while it was being read"):
        ingest(house.context, made)
    assert list(house.catalog.list_tables(house.catalog.get_ref("main"))) == []
