"""What commits say: written, read back, and refused when a newer lakegate wrote it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from lakegate.errors import NewerFormatError
from lakegate.ledger.event import PROPERTY, as_properties, event_of
from lakegate.ledger.publication import find_commit
from lakegate.ledger.sync import sync
from lakegate.model.batch import SourceFile
from lakegate.model.refs import Commit, CommitRequest
from lakegate.model.run import RUN_ID_PROPERTY, Acceptance
from lakegate.wap.ingest import ingest
from lakegate.wap.rebuild import rebuild
from lakegate.wap.revert import revert
from support.fakes import FakeLakehouse
from support.flow_support import CLEAN, ordered
from support.ledger_support import said

UNREADABLE = {
    "a newer format": '{"v":2,"run":"r9","kind":"ingest"}',
    "no format": '{"run":"r9","kind":"ingest"}',
    "no run": '{"v":1,"kind":"ingest"}',
    "an unknown kind": '{"v":1,"run":"r9","kind":"merge"}',
    "something unknown": '{"v":1,"run":"r9","kind":"ingest","moves":1}',
    "one value too many": '{"v":1,"run":"r9","kind":"ingest","tables":{"a.b":{"add":{"r9":[["f","1","x"]]}}}}',
    "a value that is no text": '{"v":1,"run":"r9","kind":"ingest","tables":{"a.b":{"add":{"r9":[["f",1]]}}}}',
    "a list": '[["file:///a","v1"]]',
    "no JSON": "?",
    "packed, but not by zlib": "zlib:YWJj",
    "no base64": "zlib:?",
    "packed in another way": "zstd:KLUv/SAB",
}


def published_by_a_newer_lakegate(house: FakeLakehouse, text: str) -> None:
    base = house.catalog.get_ref("main").hash
    properties = {RUN_ID_PROPERTY: "r9", PROPERTY: text}
    house.catalog.commit(
        CommitRequest(branch="main", base=base, message="m", namespaces=(("other",),), properties=properties)
    )


def test_what_a_commit_says_survives_the_way_through_its_properties() -> None:
    files = [SourceFile(uri=f"file:///día {i}/x.parquet", size_bytes=1, version=f"v{i}", rows=1) for i in range(5_000)]
    accepted = Acceptance(reason="the meters were off", actor="ada", at=datetime(2026, 1, 31, tzinfo=UTC))
    short = said("r9", "nyc.trips", "nyc.trips__quarantine", files=files[:3], removes=["r1"], accepted=accepted)
    for event in (short, said("r9", "nyc.trips", files=files), said("r9", "nyc.new", moved=(("nyc.old", "nyc.new"),))):
        stored = as_properties(event)
        assert stored[RUN_ID_PROPERTY] == "r9"
        assert len(stored[PROPERTY]) < 120_000
        commit = Commit(hash="c", parent=None, message="m", author="a", time=datetime(2026, 1, 31, tzinfo=UTC),
                        properties=stored)  # fmt: skip
        assert event_of(commit) == event
    assert json.loads(as_properties(short)[PROPERTY])["v"] == 1


@pytest.mark.parametrize("text", UNREADABLE.values(), ids=UNREADABLE)
def test_what_a_newer_lakegate_wrote_is_an_error_and_nothing_is_published(text: str) -> None:
    house = FakeLakehouse()
    ingest(house.context, ordered(house))
    known = sync(house.context, "main").hash
    published_by_a_newer_lakegate(house, text)
    head = house.catalog.get_ref("main")

    for what in (
        lambda: ingest(house.context, ordered(house, run="r2")),
        lambda: revert(house.context, "r1", new_run_id="r3", target="main"),
        lambda: rebuild(house.context, "main"),
    ):
        with pytest.raises(NewerFormatError) as raised:
            what()
        assert head.hash[:12] in raised.value.message
        assert "r9" in raised.value.message
        assert "written by a newer lakegate" in raised.value.message
        assert raised.value.hint is not None
        assert raised.value.exit_code == 2
    assert house.catalog.get_ref("main") == head
    assert house.journal.synced("main") == known


def test_what_runs_did_is_known_when_their_detail_has_expired() -> None:
    house = FakeLakehouse()
    for run in ("r1", "r2"):
        ingest(house.context, ordered(house, run=run, file=run))
    sync(house.context, "main")
    before = {run.run_id: run for run in house.journal.runs(limit=9)}
    assert house.journal.expire_detail(datetime.now(UTC) + timedelta(days=1), "Deleted.") == 2
    for run_id in ("r1", "r2"):
        left = house.journal.get(run_id)
        assert left is not None
        assert (left.steps, left.reports) == ((), ())
        assert left.staged == before[run_id].staged
        assert find_commit(house.context, run_id, house.catalog.get_ref("main")).puts
    assert ingest(house.context, ordered(house, run="r3", file="r2")).status == "skipped"
    assert len(house.rows_on("main", "nyc.trips")) == 2 * len(CLEAN)
    undone = revert(house.context, "r1", new_run_id="x1", target="main")
    assert (undone.status, len(house.rows_on("main", "nyc.trips"))) == ("published", len(CLEAN))
    reverted = house.journal.get("r1")
    assert reverted is not None
    assert (reverted.status, reverted.reverted_by) == ("reverted", "x1")
    rebuild(house.context, "main")
    assert ingest(house.context, ordered(house, run="r4", file="r2")).status == "skipped"
