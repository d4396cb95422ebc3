"""Streams: what's appended to a branch that stays open is published slice by slice, each row once."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import update

from lakegate.checks import parse_checks
from lakegate.errors import InputError, NotReplayableError
from lakegate.journal.schema import LEASES, as_text
from lakegate.ledger.event import event_of
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import CommitRequest
from lakegate.model.run import Run
from lakegate.model.tables import WriteTarget
from lakegate.wap.failpoints import POINTS
from lakegate.wap.ingest import ingest
from lakegate.wap.opening import ClosedError, JournalOpenings, Order, open_branch, seal
from lakegate.wap.recover import recover
from lakegate.wap.revert import revert
from lakegate.wap.review import accepted, discard_run, publish_branch
from lakegate.wap.stage import ensure_namespace, new_table
from lakegate.wap.stream import StreamRefusedError, StreamStoppedError, publish_slice
from support.fakes import FakeLakehouse
from support.flow_support import CLEAN, MORE, MOST, TRIPS, WITH_NULLS, branches, ordered, when_reached
from support.steps_support import commits, ids

BRANCH = "stream/orders"
CHECKS = (*parse_checks("not_null(passengers)"),)


def opened(house: FakeLakehouse, *, open_s: float = 3600.0, run: str = "s1") -> Run:
    return open_branch(
        house.context, Order(run_id=run, name=None, branch=BRANCH, target="main", checks={}, open_s=open_s)
    )


def write(house: FakeLakehouse, rows: Sequence[dict[str, Any]], table: TableIdentifier = TRIPS) -> None:
    ensure_namespace(house.context, table, BRANCH, "s1")
    target = WriteTarget(
        table=table, ref=BRANCH, table_schema=None, create=new_table(house.context, table, "s1"), snapshot_properties={}
    )
    house.append(house.batch(f"by Flink {table} {rows}", rows), target)


def published(house: FakeLakehouse, run: str = "s1") -> Run | None:
    return publish_slice(house.context, run, lambda _: CHECKS, prefix="wap")


def is_open(house: FakeLakehouse) -> bool:
    found = JournalOpenings(house.journal).get("s1")
    return found is not None and not found.is_sealed


def of(run: Run | None) -> Run:
    assert run is not None
    return run


def test_each_slice_is_a_run_and_the_writer_never_stops(house: FakeLakehouse) -> None:
    opened(house)
    assert published(house) is None
    write(house, CLEAN)
    first = of(published(house))
    write(house, MORE)
    write(house, MOST)
    second = of(published(house))

    assert (first.status, second.status, first.tables) == ("published", "published", ("nyc.trips",))
    assert ([run.publication.rows for run in (first, second) if run.publication], ids(house)) == ([2, 2], [1, 2, 5, 6])
    head = house.catalog.get_ref(BRANCH).hash
    said = event_of(next(house.catalog.history("main")))
    assert said is not None
    assert said.slice is not None
    assert (said.slice.stream, said.slice.branch, said.slice.until) == ("s1", BRANCH, head)
    assert (published(house), is_open(house), branches(house)) == (None, True, ["main", BRANCH])


def test_others_publish_to_the_table_in_between(house: FakeLakehouse) -> None:
    ingest(house.context, ordered(house, CLEAN))
    opened(house)
    write(house, MORE)
    published(house)
    ingest(house.context, ordered(house, [{"id": 7, "passengers": 1}], run="r2"))
    write(house, MOST)
    run = of(published(house))
    assert (run.status, ids(house), ids(house, BRANCH)) == ("published", [1, 2, 5, 6, 7], [1, 2, 5, 6])
    revert(house.context, run.run_id, new_run_id="v1")
    assert (published(house), ids(house)) == (None, [1, 2, 5, 7])


@pytest.mark.parametrize("point", POINTS)
def test_killed_anywhere_each_row_is_published_once(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    opened(house)
    write(house, CLEAN)
    published(house)
    write(house, MORE)
    if point != "after-claim":  # a slice claims no files
        house.dies_at(monkeypatch, point, lambda: published(house))
    write(house, MOST)
    published(house)
    assert (published(house), ids(house), branches(house)) == (None, [1, 2, 5, 6], ["main", BRANCH])
    assert all(commits(house, run.run_id) == 1 for run in house.journal.runs(status="published"))


def test_with_a_journal_from_before_the_slice_its_found_by_the_mark(house: FakeLakehouse) -> None:
    opened(house)
    write(house, CLEAN)
    before = house.copy()
    published(house)
    write(house, MORE)
    house.database, house.journal = before.database, before.journal
    assert of(published(house)).status == "published"
    assert ids(house) == [1, 2, 5]


def test_a_failing_slice_stops_the_stream_until_its_accepted(house: FakeLakehouse) -> None:
    opened(house)
    write(house, CLEAN)
    published(house)
    write(house, WITH_NULLS)
    rejected = of(published(house))
    write(house, MORE)

    assert (rejected.status, rejected.branch_kept) == ("rejected", True)
    for _ in range(2):
        with pytest.raises(StreamStoppedError, match=rejected.run_id) as stopped:
            published(house)
    assert stopped.value.hint is not None
    assert f"lakegate discard {rejected.branch}" in stopped.value.hint
    assert (ids(house), ids(house, rejected.branch), is_open(house)) == ([1, 2], [1, 2, 3, 4], True)

    publish_branch(house.context, rejected.branch, configured=lambda _: CHECKS, acceptance=accepted("The vendor knows"))
    assert (of(published(house)).status, ids(house)) == ("published", [1, 2, 3, 4, 5])


def test_a_failing_slice_that_is_discarded_is_left_out(house: FakeLakehouse) -> None:
    opened(house)
    write(house, WITH_NULLS)
    rejected = of(published(house))
    discard_run(house.context, rejected.branch)
    assert published(house) is None
    write(house, CLEAN)  # the table isn't on main: it was created by what was left out
    assert (of(published(house)).status, ids(house)) == ("published", [1, 2])
    write(house, MORE)
    assert (of(published(house)).status, ids(house)) == ("published", [1, 2, 5])


def test_a_table_that_was_dropped_isnt_made_again(house: FakeLakehouse) -> None:
    opened(house)
    write(house, CLEAN)
    published(house)
    main = house.catalog.get_ref("main")
    house.catalog.commit(CommitRequest(branch="main", base=main.hash, message="drop", deletes=(TRIPS,)))
    write(house, MORE)
    with pytest.raises(StreamRefusedError, match=r"nyc\.trips isn't on main"):
        published(house)


def test_a_later_failing_slice_that_is_discarded_is_left_out(house: FakeLakehouse) -> None:
    opened(house)
    write(house, CLEAN)
    published(house)
    write(house, WITH_NULLS)
    rejected = of(published(house))
    write(house, MORE)
    discard_run(house.context, rejected.branch)
    assert (of(published(house)).status, ids(house)) == ("published", [1, 2, 5])
    write(house, WITH_NULLS)  # once more
    assert of(published(house)).status == "rejected"


def test_anything_but_appends_is_refused_with_the_way_out(house: FakeLakehouse) -> None:
    opened(house)
    write(house, CLEAN)
    published(house)
    branch = house.catalog.get_ref(BRANCH)
    house.catalog.commit(CommitRequest(branch=BRANCH, base=branch.hash, message="drop", deletes=(TRIPS,)))
    for _ in range(2):
        with pytest.raises(StreamRefusedError, match="may only append") as refused:
            published(house)
    assert refused.value.hint is not None
    assert f"lakegate discard {BRANCH}" in refused.value.hint
    assert (ids(house), branches(house), len(house.journal.runs(status="failed"))) == ([1, 2], ["main", BRANCH], 1)


def test_a_stream_isnt_sealed_and_a_sealed_branch_is_no_stream(house: FakeLakehouse) -> None:
    opened(house)
    write(house, CLEAN)
    published(house)
    with pytest.raises(InputError, match="is a stream"):
        seal(house.context, "s1", lambda _: CHECKS)
    assert is_open(house)
    write(house, MORE)
    published(house)
    assert ids(house) == [1, 2, 5]

    discard_run(house.context, BRANCH)
    with pytest.raises(ClosedError):
        published(house)
    opened(house, run="s2")
    write(house, MOST)
    seal(house.context, "s2", lambda _: CHECKS)
    with pytest.raises(ClosedError):
        published(house, "s2")
    assert ids(house) == [1, 2, 5, 6]


def test_what_was_written_until_the_deadline_is_published_after_it(house: FakeLakehouse) -> None:
    opened(house)
    write(house, CLEAN)
    published(house)
    write(house, MORE)
    with house.database.writing() as tx:
        tx.execute(update(LEASES).values(expires_at=as_text(datetime(2000, 1, 1, tzinfo=UTC))))
    recover(house.context)
    assert not is_open(house)
    assert (of(published(house)).status, ids(house)) == ("published", [1, 2, 5])
    with pytest.raises(ClosedError, match="by its deadline"):
        published(house)


def test_a_slice_that_main_has_lost_isnt_left_out_silently(house: FakeLakehouse) -> None:
    opened(house)
    ingest(house.context, ordered(house, [{"id": 7, "passengers": 1}]))
    before = house.catalog.get_ref("main")
    write(house, CLEAN)
    published(house)
    house.catalog.assign_ref(house.catalog.get_ref("main"), before)
    write(house, MORE)
    with pytest.raises(StreamRefusedError, match="isn't in main any more"):
        published(house)


def test_a_slice_that_failed_is_made_anew_even_if_its_branch_was_discarded(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest(house.context, ordered(house, CLEAN))
    opened(house)
    write(house, MORE)

    def drop() -> None:
        main = house.catalog.get_ref("main")
        house.catalog.commit(CommitRequest(branch="main", base=main.hash, message="drop", deletes=(TRIPS,)))

    before = house.catalog.get_ref("main")
    with when_reached(monkeypatch, "before-publish", drop), pytest.raises(NotReplayableError):
        published(house)
    (failed,) = house.journal.runs(status="failed")
    house.catalog.assign_ref(house.catalog.get_ref("main"), before)
    assert failed.branch in branches(house)
    discard_run(house.context, failed.branch)

    assert (of(published(house)).run_id, ids(house)) == (failed.run_id, [1, 2, 5])
