"""Source files in commit properties: written, read back, and refused when a newer lakegate wrote them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from lakegate.cli.commands.log import commit_payload, show_commits
from lakegate.errors import NewerFormatError, NotFoundError
from lakegate.model.batch import SourceFile
from lakegate.model.refs import Commit, CommitRequest, Ref
from lakegate.model.run import RUN_ID_PROPERTY
from lakegate.wap.history import (
    FILES_PROPERTY,
    REVIVES_PROPERTY,
    TABLES_PROPERTY,
    encode_files,
    encode_revived,
    files_in,
    find_commit,
    revived_in,
    sync,
)
from lakegate.wap.ingest import ingest
from lakegate.wap.recover import rebuild
from lakegate.wap.revert import revert
from support.fakes import FakeLakehouse
from support.flow_support import ordered

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


def test_the_log_shows_an_unreadable_commit(capsys: pytest.CaptureFixture[str]) -> None:
    show_commits(
        [files_property(UNREADABLE["a newer format"]), files_property('{"format":1,"files":[["file:///a","v1"]]}')]
    )
    text = capsys.readouterr().out

    assert text.count("written by a newer lakegate") == 1
    assert text.count("commit c0ffee") == 2
    told = [commit_payload(files_property(text))["unreadable"] for text in (UNREADABLE["a newer format"], "")]
    assert "written by a newer lakegate" in told[0]
    assert told[1] is None


def test_a_run_s_commit_is_found_without_a_search_as_long_as_the_target_holds_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    house = FakeLakehouse()
    before = house.catalog.get_ref("main")
    ingest(house.context, ordered(house))
    head = sync(house.context, "main")
    history, searches = house.catalog.history, []

    def counted(ref: str, **options: Any) -> Iterator[Commit]:
        searches.extend([options["run_id"]] if "run_id" in options else [])
        return history(ref, **options)

    monkeypatch.setattr(house.catalog, "history", counted)
    found = find_commit(house.context, "r1", head)
    assert (found.properties[RUN_ID_PROPERTY], searches) == ("r1", [])
    assert [str(pointer.table) for pointer in found.puts] == ["nyc.trips"]

    assert find_commit(house.context, "r1", Ref(name="main", hash=found.hash)) == found
    house.lose_journal()
    assert find_commit(house.context, "r1", head) == found
    assert searches[-1] == "r1"

    sync(house.context, "main")
    house.catalog.assign_ref(head, before)
    with pytest.raises(NotFoundError, match="wasn't published"):
        find_commit(house.context, "r1", sync(house.context, "main"))
