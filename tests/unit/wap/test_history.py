"""Source files in commit properties: written, read back, and refused when a newer lakegate wrote them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from lakegate.errors import NewerFormatError
from lakegate.ledger.event import (
    FILES_PROPERTY,
    REVIVES_PROPERTY,
    TABLES_PROPERTY,
    encode_files,
    encode_revived,
    files_in,
    revived_in,
)
from lakegate.ledger.publication import find_commit
from lakegate.ledger.sync import sync
from lakegate.model.batch import SourceFile
from lakegate.model.refs import Commit, CommitRequest
from lakegate.model.run import RUN_ID_PROPERTY
from lakegate.wap.ingest import ingest
from lakegate.wap.recover import rebuild
from lakegate.wap.revert import revert
from support.fakes import FakeLakehouse
from support.flow_support import CLEAN, ordered

UNREADABLE = {
    "a newer format": '{"format":2,"files":[["file:///a","v1"]]}',
    "no format": '{"files":[["file:///a","v1"]]}',
    "no files": '{"format":1}',
    "one value too many": '{"format":1,"files":[["file:///a","v1","x","y"]]}',
    "a value that is no text": '{"format":1,"files":[["file:///a",1]]}',
    "a list": '[["file:///a","v1"]]',
    "no JSON": "?",
    "packed, but not by zlib": "zlib:YWJj",
    "no base64": "zlib:?",
    "packed in another way": "zstd:KLUv/SAB",
}


def commit_of(**properties: str) -> Commit:
    known = {RUN_ID_PROPERTY: "r9", TABLES_PROPERTY: "nyc.trips", **properties}
    return Commit(
        hash="c0ffee" * 8,
        parent=None,
        message="m",
        author="a",
        time=datetime(2026, 1, 31, tzinfo=UTC),
        properties=known,
    )


def files_property(text: str) -> Commit:
    return commit_of(**{FILES_PROPERTY: text})


def published_by_a_newer_lakegate(house: FakeLakehouse, text: str) -> None:
    base = house.catalog.get_ref("main").hash
    properties = {RUN_ID_PROPERTY: "r9", TABLES_PROPERTY: "nyc.trips", FILES_PROPERTY: text}
    house.catalog.commit(
        CommitRequest(branch="main", base=base, message="m", namespaces=(("other",),), properties=properties)
    )


def test_source_files_survive_the_way_through_a_commit() -> None:
    files = [SourceFile(uri=f"file:///día {i}/x.parquet", size_bytes=1, version=f"v{i}", rows=1) for i in range(5_000)]
    revived = [("nyc.trips", "file:///a", "v1", "r1")]

    assert files_in(files_property(encode_files(files))) == tuple((file.uri, file.version) for file in files)
    assert files_in(files_property(encode_files(files[:3]))) == tuple((file.uri, file.version) for file in files[:3])
    assert revived_in(commit_of(**{REVIVES_PROPERTY: encode_revived(revived)})) == tuple(revived)
    assert len(encode_files(files)) < 120_000
    assert json.loads(encode_files(files[:1]))["format"] == 1


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
        assert "nyc.trips" in raised.value.message
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
