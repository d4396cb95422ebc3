"""Nessie's responses, good and bad, without a Nessie server."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from lakegate.catalogs.nessie.catalog import NessieCatalog
from lakegate.catalogs.nessie.client import key_text
from lakegate.errors import (
    AlreadyExistsError,
    CatalogUnavailableError,
    ConfigurationError,
    ConflictError,
    InputError,
    LakegateError,
    NotFoundError,
    OutcomeUnknownError,
)
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import Ref
from support.nessie_answers import (
    CHANGE,
    FOUND,
    HASH,
    MAIN,
    Server,
    answer,
    catalog,
    client,
    contents,
    find_main,
    refusal,
)


@pytest.mark.parametrize(
    ("reply", "expected", "said"),
    [
        (refusal(404, "REFERENCE_NOT_FOUND", "Named reference 'main' not found"), NotFoundError, "'main' not found"),
        (refusal(409, "REFERENCE_ALREADY_EXISTS", "exists"), AlreadyExistsError, "exists"),
        (refusal(400, "BAD_REQUEST", "what is this\nat line 3"), InputError, "what is this."),
        (answer({}, 401), ConfigurationError, "requires a token"),
        (refusal(403, "FORBIDDEN", "no"), ConfigurationError, "doesn't allow this"),
        (answer({}, 404), ConfigurationError, "no Nessie API v2"),
        (httpx.Response(404, text="<html>nginx</html>"), ConfigurationError, "no Nessie API v2"),
        (httpx.Response(413), InputError, "the request is too large (HTTP 413)"),
        (httpx.Response(200, text="<html>hello</html>"), ConfigurationError, "no Nessie API v2"),
        (answer({"unexpected": True}), ConfigurationError, "no Nessie API v2"),
        (answer(["unexpected"]), ConfigurationError, "no Nessie API v2"),
        (httpx.Response(200, content=b"\xff\xfe"), ConfigurationError, "no Nessie API v2"),
        (
            httpx.Response(302, headers={"location": "https://login.test/?code=x"}),
            ConfigurationError,
            "https://login.test/",
        ),
    ],
    ids=lambda value: None if isinstance(value, (httpx.Response, str)) else getattr(value, "__name__", None),
)
def test_answers_become_errors(reply: httpx.Response, expected: type[LakegateError], said: str) -> None:
    with pytest.raises(expected) as caught:
        find_main(client(Server(reply)))
    assert said in caught.value.message
    assert caught.value.hint
    assert "\n" not in caught.value.message


def test_a_missing_reference_is_named() -> None:
    server = Server(refusal(404, "REFERENCE_NOT_FOUND", "Named reference 'wap/x' not found"))
    with pytest.raises(NotFoundError) as caught:
        catalog(server).get_ref("wap/x")
    assert caught.value.context["ref"] == "wap/x"
    assert server.asked[0].url.raw_path == b"/api/v2/trees/wap%2Fx"


def test_using_a_closed_lake_is_a_clear_error() -> None:
    closed = client(Server(answer({})))
    closed.close()
    with pytest.raises(CatalogUnavailableError, match="The lake was closed"):
        find_main(closed)


def test_a_broken_body_is_not_a_response() -> None:
    def handler(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers={"content-encoding": "gzip"}, stream=httpx.ByteStream(b"not gzip"))

    with pytest.raises(CatalogUnavailableError):
        find_main(client(handler))
    with pytest.raises(OutcomeUnknownError):
        catalog(handler).commit(CHANGE)


@pytest.mark.parametrize(
    "away",
    [
        httpx.ConnectError("Connection refused"),
        httpx.ConnectTimeout(""),
        httpx.ReadTimeout("timed out"),
        httpx.RemoteProtocolError("Server disconnected"),
        answer({}, 429),
        answer({}, 500),
        httpx.Response(503, text="<html>unavailable</html>"),
        httpx.Response(504),
    ],
    ids=repr,
)
def test_reads_are_retried(away: httpx.Response | Exception) -> None:
    server = Server(away, away, answer(FOUND))
    assert find_main(client(server)).hash == HASH
    assert len(server.asked) == 3

    gone = Server(away)
    with pytest.raises(CatalogUnavailableError, match=r"nessie\.test"):
        find_main(client(gone))
    assert 1 < len(gone.asked) < 10


def test_reads_of_many_keys_are_retried() -> None:
    server = Server(httpx.ReadError(""), answer(contents()))
    assert catalog(server).get_table(TableIdentifier.parse("nyc.trips"), MAIN) is None
    assert len(server.asked) == 2


def test_retries_are_bounded_in_time() -> None:
    server = Server(httpx.ReadTimeout("slow"))
    with pytest.raises(CatalogUnavailableError, match="in time"):
        find_main(client(server, timeout_s=1e-9))
    assert len(server.asked) == 1


def test_refusals_are_not_retried() -> None:
    server = Server(refusal(404, "REFERENCE_NOT_FOUND", "gone"))
    with pytest.raises(NotFoundError):
        find_main(client(server))
    assert len(server.asked) == 1


@pytest.mark.parametrize("lost", [httpx.ConnectError("refused"), httpx.ReadError("reset"), answer({}, 503)], ids=repr)
@pytest.mark.parametrize(
    "change",
    [
        lambda c: c.create_branch("wap/x", MAIN),
        lambda c: c.create_tag("v1", MAIN),
        lambda c: c.assign_ref(MAIN, MAIN),
        lambda c: c.delete_ref(MAIN),
    ],
    ids=["create_branch", "create_tag", "assign", "delete"],
)
def test_changes_are_sent_once(change: Callable[[NessieCatalog], object], lost: httpx.Response | Exception) -> None:
    server = Server(lost)
    with pytest.raises(CatalogUnavailableError):
        change(catalog(server))
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "lost",
    [
        httpx.ReadTimeout("timed out"),
        httpx.WriteTimeout("timed out"),
        httpx.ReadError("Connection reset by peer"),
        httpx.WriteError("Broken pipe"),
        httpx.RemoteProtocolError("Server disconnected without sending a response."),
        answer({}, 500),
        refusal(500, "UNKNOWN", "java.lang.RuntimeException"),
        httpx.Response(502, text="<html>bad gateway</html>"),
        answer({}, 503),
        httpx.Response(504),
        httpx.Response(200, text="<html>hello</html>"),
        httpx.Response(200),
    ],
    ids=repr,
)
def test_a_commit_without_a_usable_response_has_an_unknown_outcome(lost: httpx.Response | Exception) -> None:
    server = Server(lost)
    with pytest.raises(OutcomeUnknownError) as caught:
        catalog(server).commit(CHANGE)
    assert caught.value.context["branch"] == "main"
    assert "lakegate log main" in str(caught.value.hint)
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "refused",
    [httpx.ConnectError("refused"), httpx.ConnectTimeout(""), httpx.PoolTimeout(""), answer({}, 429)],
    ids=repr,
)
def test_a_commit_that_was_never_received_may_be_retried(refused: httpx.Response | Exception) -> None:
    server = Server(refused)
    with pytest.raises(CatalogUnavailableError):
        catalog(server).commit(CHANGE)
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("VALUE_DIFFERS", "nyc.trips was changed"),
        ("KEY_EXISTS", "nyc.trips was created"),
        ("KEY_DOES_NOT_EXIST", "nyc.trips doesn't exist"),
        ("CONTENT_ID_DIFFERS", "nyc.trips was dropped and created again"),
        ("NAMESPACE_ABSENT", "nyc.trips (a namespace) doesn't exist"),
        ("SOMETHING_NEW", "nyc.trips conflicts"),
    ],
)
def test_conflicts_name_their_keys(kind: str, told: str) -> None:
    server = Server(refusal(409, "REFERENCE_CONFLICT", "…", [(kind, ["nyc", "trips"]), ("UNKNOWN", None)]))
    with pytest.raises(ConflictError) as caught:
        catalog(server).commit(CHANGE)
    assert told in caught.value.message
    assert caught.value.context["tables"] == ["nyc.trips"]
    assert caught.value.context["conflicts"] == [f"nyc.trips: {kind}"]
    assert caught.value.context["base"] == HASH


def test_a_conflict_without_details_quotes_the_catalog() -> None:
    reply = answer({"status": 409, "message": "Retry-Failure.", "errorCode": "REFERENCE_CONFLICT"}, 409)
    with pytest.raises(ConflictError, match="Retry-Failure"):
        catalog(Server(reply)).commit(CHANGE)


@pytest.mark.parametrize(
    "message",
    [
        "New value to update existing key 'nyc.trips' has no content ID",
        "New value for key 'nyc.trips' must not have a content ID",
        "Key 'nyc.trips' already exists with content ID a, which is different from the content ID b in the operation",
    ],
)
def test_wrong_content_ids_are_conflicts(message: str) -> None:
    with pytest.raises(ConflictError, match=r"nyc\.trips"):
        catalog(Server(refusal(400, "BAD_REQUEST", message))).commit(CHANGE)


def test_a_moved_reference_is_reported_with_both_hashes() -> None:
    message = f"Named-reference 'main' is not at expected hash '{HASH}', but at '{'cd' * 32}'."
    with pytest.raises(ConflictError) as caught:
        catalog(Server(refusal(409, "REFERENCE_CONFLICT", message, [("UNEXPECTED_HASH", None)]))).delete_ref(MAIN)
    assert caught.value.context == {"ref": "main", "expected": HASH, "actual": "cd" * 32}


def test_foreign_names_are_shown_and_skipped_without_a_crash() -> None:
    def entry(*elements: str) -> dict[str, Any]:
        content = {"type": "ICEBERG_TABLE", "id": "1", "metadataLocation": "m", "snapshotId": 7}
        return {"name": {"elements": list(elements)}, "type": "ICEBERG_TABLE", "content": content}

    names = [("nyc", "trips"), ("nyc", "odd.name"), ("nyc", "sl/ash é@"), ("root",), ("nyc", "")]
    listed = answer({"entries": [entry(*name) for name in names], "hasMore": False})
    (found,) = catalog(Server(listed)).list_tables(MAIN)
    assert str(found.table) == "nyc.trips"
    assert (found.schema_id, found.snapshot_id) == (0, 7)

    diffs = [{"key": {"elements": list(name)}, "from": None, "to": entry(*name)["content"]} for name in names]
    compared = list(catalog(Server(answer({"diffs": diffs}))).diff(MAIN, MAIN))
    assert [(item.table, item.kind) for item in compared] == [
        ("nyc.trips", "table"),
        ("nyc.`odd.name`", "other"),
        ("nyc.`sl/ash é@`", "other"),
        ("root", "other"),
        ("nyc.``", "other"),
    ]


def test_other_contents_are_not_tables() -> None:
    view = {"key": {"elements": ["nyc", "trips"]}, "content": {"type": "ICEBERG_VIEW", "id": "1"}}
    with pytest.raises(InputError, match="iceberg view"):
        catalog(Server(answer(contents(view)))).get_table(TableIdentifier.parse("nyc.trips"), MAIN)
    changed = {"key": {"elements": ["nyc", "v"]}, "from": view["content"], "to": {"type": "UDF"}}
    (difference,) = catalog(Server(answer({"diffs": [changed]}))).diff(MAIN, MAIN)
    assert (difference.kind, difference.left, difference.right) == ("other", None, None)


def test_reading_at_a_ref_asks_for_its_commit() -> None:
    server = Server(answer(contents()))
    lake = catalog(server)
    table = TableIdentifier.parse("nyc.trips")
    lake.get_table(table, Ref(name="wap/x", hash=HASH))
    lake.get_table(table, Ref(name="main", hash=HASH, kind="detached"))
    paths = [request.url.raw_path.decode() for request in server.asked]
    assert paths == [f"/api/v2/trees/wap%2Fx@{HASH}/contents", f"/api/v2/trees/@{HASH}/contents"]


def test_pages_are_fetched_as_they_are_needed() -> None:
    def page(name: str, token: str | None) -> httpx.Response:
        reference = {"type": "BRANCH", "name": name, "hash": HASH}
        return answer({"references": [reference], "hasMore": token is not None, "token": token})

    server = Server(page("a", "t1"), page("b", "t2"), page("c", None))
    refs = catalog(server).list_refs()
    assert not server.asked
    assert next(refs).name == "a"
    assert len(server.asked) == 1
    assert [ref.name for ref in refs] == ["b", "c"]
    assert [request.url.params.get("page-token") for request in server.asked] == [None, "t1", "t2"]


def test_years_before_1000_have_four_digits() -> None:
    server = Server(answer({"logEntries": []}))
    with pytest.raises(NotFoundError, match="by 0024-01-31T07:00:00Z"):
        catalog(server).resolve("main", datetime(24, 1, 31, 7, tzinfo=UTC))
    assert b"main*0024-01-31T07:00:00.000000999Z" in server.asked[0].url.raw_path


def test_a_listing_that_is_cut_off_is_not_taken_for_all_of_it() -> None:
    reference = {"type": "BRANCH", "name": "main", "hash": HASH}
    with pytest.raises(ConfigurationError, match="the response is cut off"):
        list(catalog(Server(answer({"references": [reference], "hasMore": True}))).list_refs())


def test_a_history_limit_is_left_to_the_server() -> None:
    server = Server(answer({"logEntries": []}))
    assert list(catalog(server).history("main", until=HASH, run_id="a'b")) == []
    asked = server.asked[0].url.params
    assert asked["limit-hash"] == HASH
    assert "'a\\U00000027b'" in asked["filter"]
    assert "fetch" not in asked


def test_a_history_begins_with_small_pages_and_a_search_with_one_commit() -> None:
    more = [answer({"logEntries": [], "hasMore": True, "token": str(number)}) for number in range(4)]
    for run_id, sizes in (None, ["25", "100", "400", "1000", "1000"]), ("r1", ["1", "4", "16", "64", "256"]):
        server = Server(*more, answer({"logEntries": []}))
        assert list(catalog(server).history("main", run_id=run_id)) == []
        assert [request.url.params["max-records"] for request in server.asked] == sizes


def test_commits_are_built_from_nessies_responses() -> None:
    meta = {
        "hash": HASH,
        "message": "m",
        "authors": ["ann", "bob"],
        "commitTime": "2026-01-31T07:05:09.123456789Z",
        "allProperties": {"k": ["v", "w"]},
        "parentCommitHashes": ["cd" * 32, "ef" * 32],
    }
    operations = [{"type": "PUT", "key": {"elements": ["nyc", "a.b"]}, "content": {"type": "UDF"}}]
    entries = [{"commitMeta": meta, "operations": operations}, {"commitMeta": {**meta, "parentCommitHashes": []}}]
    first, second = catalog(Server(answer({"logEntries": entries}))).history("main", operations=True)
    assert first.time.isoformat() == "2026-01-31T07:05:09.123456+00:00"
    assert (first.author, first.properties, first.parent) == ("ann, bob", {"k": "v, w"}, "cd" * 32)
    assert first.tables == ("nyc.`a.b`",)
    assert (second.parent, second.tables) == (None, ())


def test_a_user_without_a_name_can_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> str:
        raise OSError("no user name")

    monkeypatch.setattr("getpass.getuser", nobody)
    server = Server(answer({"targetBranch": {"type": "BRANCH", "name": "main", "hash": "cd" * 32}}))
    assert catalog(server).commit(CHANGE).hash == "cd" * 32
    assert json.loads(server.asked[0].content)["commitMeta"]["authors"] == ["lakegate"]


def test_an_invalid_base_is_refused_before_any_request() -> None:
    server = Server(answer({}))
    with pytest.raises(InputError, match="isn't a commit hash"):
        catalog(server).commit(CHANGE.model_copy(update={"base": "main"}))
    assert not server.asked


def test_key_text_quotes_what_is_not_plain() -> None:
    assert key_text(("a", "b-c_1")) == "a.b-c_1"
    assert key_text(("a", "b`c")) == "a.`b``c`"
    table = TableIdentifier.parse("_.__")  # commits name tables as identifiers do
    assert key_text(table.parts) == str(table)
