"""OpenLineage events: validated by the official schemas, and delivered to a real HTTP server and to a file."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from jsonschema import Draft202012Validator, FormatChecker
from openlineage.client.serde import Serde

from lakegate.config import Settings
from lakegate.context import Subscriber
from lakegate.downstream import DownstreamContext, open_downstream
from lakegate.downstream.openlineage import EventContext, events
from lakegate.errors import ConfigurationError, DownstreamError, DownstreamUnavailableError
from lakegate.model.batch import SourceFile
from lakegate.model.downstream import ChangedTable, DownstreamEvent
from lakegate.model.run import Run, UndoneTable
from lakegate.ports import Downstream
from support.cli_support import (
    BATCH,
    FAILED,
    FAILED_RUN,
    HASH,
    METADATA,
    PASSED,
    PUBLICATION,
    REJECTED,
    REQUEST,
    SKIPPED,
    FakeLake,
    invoke,
    make_run,
    staged,
)
from support.downstream_support import System, World, row
from support.flow_support import WITH_NULLS

_TEXT = {"type": "string"}
_FLAG = {"type": "boolean"}
_COUNT = {"type": "integer", "minimum": 0}


def _facet(file: str, version: str, required: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    """A facet of the spec: each names its producer and its schema."""
    url = f"https://openlineage.io/spec/facets/{version}/{file}.json#/$defs/{file}"
    base = {"_producer": {"type": "string", "format": "uri"}, "_schemaURL": {"const": url}}
    return {
        "type": "object",
        "properties": base | required | (optional or {}),
        "required": [*base, *required],
        "additionalProperties": False,
    }


def _object(required: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": required | (optional or {}),
        "required": list(required),
        "additionalProperties": False,
    }


def _facets(**known: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": known, "additionalProperties": False}


_TEST = {
    **dict.fromkeys(("expected", "actual", "content", "contentType", "description"), _TEXT),
    "severity": {"enum": ["error", "warn"]},
    "params": {"type": "object"},
}
_ASSERTIONS = _facet(
    "DataQualityAssertionsDatasetFacet",
    "1-1-0",
    {
        "assertions": {
            "type": "array",
            "items": _object({"assertion": _TEXT, "success": _FLAG}, {"column": _TEXT, "name": _TEXT, **_TEST}),
        }
    },
)
_FIELD = _object({"name": _TEXT, "type": _TEXT, "ordinal_position": _COUNT}, {"fields": {"type": "array"}})
_IDENTIFIER = _object({"namespace": _TEXT, "name": _TEXT, "type": _TEXT})
_CHANGE = {"enum": ["ALTER", "CREATE", "DROP", "OVERWRITE", "RENAME", "TRUNCATE"]}
_DATASET = {
    "facets": _facets(
        version=_facet("DatasetVersionDatasetFacet", "1-0-1", {"datasetVersion": _TEXT}),
        schema=_facet(
            "SchemaDatasetFacet",
            "1-2-0",
            {"fields": {"type": "array", "items": _FIELD}},
        ),
        symlinks=_facet("SymlinksDatasetFacet", "1-0-1", {"identifiers": {"type": "array", "items": _IDENTIFIER}}),
        lifecycleStateChange=_facet("LifecycleStateChangeDatasetFacet", "1-0-1", {"lifecycleStateChange": _CHANGE}),
    )
}
_INPUT = {
    "inputFacets": _facets(
        dataQualityAssertions=_ASSERTIONS,
        inputStatistics=_facet("InputStatisticsInputDatasetFacet", "1-0-0", {"rowCount": _COUNT}),
    )
}
_OUTPUT = {
    "outputFacets": _facets(
        outputStatistics=_facet(
            "OutputStatisticsOutputDatasetFacet", "1-0-2", {"rowCount": _COUNT}, {"size": _COUNT, "fileCount": _COUNT}
        )
    )
}
_PLACE = {"namespace": _TEXT, "name": {"type": "string", "minLength": 1}}
_RUN = _object(
    {"runId": {"type": "string", "format": "uuid"}},
    {
        "facets": _facets(
            processing_engine=_facet(
                "ProcessingEngineRunFacet",
                "1-1-1",
                {"version": _TEXT},
                {"name": _TEXT, "openlineageAdapterVersion": _TEXT},
            ),
            errorMessage=_facet("ErrorMessageRunFacet", "1-0-1", {"message": _TEXT, "programmingLanguage": _TEXT}),
        )
    },
)
_JOB_TYPE = _facet("JobTypeJobFacet", "2-0-4", {"processingType": _TEXT, "integration": _TEXT}, {"jobType": _TEXT})
RUN_EVENT = _object(
    {
        "eventTime": {"type": "string", "format": "date-time"},
        "producer": {"type": "string", "format": "uri"},
        "schemaURL": {"const": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"},
        "run": _RUN,
        "job": _object(_PLACE, {"facets": _facets(jobType=_JOB_TYPE)}),
    },
    {
        "eventType": {"enum": ["START", "RUNNING", "COMPLETE", "ABORT", "FAIL", "OTHER"]},
        "inputs": {"type": "array", "items": _object(_PLACE, _DATASET | _INPUT)},
        "outputs": {"type": "array", "items": _object(_PLACE, _DATASET | _OUTPUT)},
    },
)
_VALID = Draft202012Validator(RUN_EVENT, format_checker=FormatChecker())
CONTEXT = EventContext(catalog="https://nessie.example.com/api/v2", schemas={"nyc.trips": METADATA.table_schema})
POINTER = staged("nyc.trips").pointer.model_copy(update={"metadata_location": "s3://lake/nyc/trips_1/metadata/0.json"})
STAGED = staged("nyc.trips", before=None, pointer=POINTER)


def told(run: Run, context: EventContext = CONTEXT) -> list[dict[str, Any]]:
    """The events of a run, validated."""
    found = [json.loads(Serde.to_json(event)) for event in events(run, context)]
    for event in found:
        _VALID.validate(event)
    return found


def test_a_published_run_says_what_it_read_wrote_and_proved() -> None:
    run = make_run("published", publication=PUBLICATION, staged=(STAGED,), reports=(PASSED,))
    begun, ended = told(run)
    assert (begun["eventType"], ended["eventType"]) == ("START", "COMPLETE")
    assert begun["run"]["runId"] == ended["run"]["runId"] == told(run)[0]["run"]["runId"]
    assert UUID(begun["run"]["runId"]).version == 5
    assert ended["job"]["name"] == "ingest.nyc.trips"
    assert ended["eventTime"] == "2026-01-31T07:05:12.250Z"
    file, table = ended["inputs"]
    assert (file["namespace"], file["name"]) == ("file", "/data/trips.parquet")
    assert (table["namespace"], table["name"]) == ("s3://lake", "nyc/trips_1")
    assertions = table["inputFacets"]["dataQualityAssertions"]["assertions"]
    assert [(one["assertion"], one["success"], one["column"]) for one in assertions] == [
        ("not_null", True, "passenger_count"),
        ("in_range", True, "trip_distance"),
    ]
    [output] = ended["outputs"]
    assert output["name"] == "nyc/trips_1"
    assert output["facets"]["version"]["datasetVersion"] == HASH
    [column] = output["facets"]["schema"]["fields"]
    assert (column["name"], column["type"], column["ordinal_position"]) == ("passenger_count", "long", 1)
    assert output["facets"]["symlinks"]["identifiers"][0]["name"] == "nyc.trips"
    assert output["facets"]["lifecycleStateChange"]["lifecycleStateChange"] == "CREATE"
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == 100_000


def test_a_rejected_run_fails_with_its_assertions_and_without_output() -> None:
    ended = told(REJECTED)[1]
    assert (ended["eventType"], ended["outputs"]) == ("FAIL", [])
    blocking, warning = ended["inputs"][1]["inputFacets"]["dataQualityAssertions"]["assertions"]
    assert (blocking["success"], blocking["severity"], blocking["actual"]) == (False, "error", "1003")
    assert (warning["success"], warning["severity"]) == (False, "warn")
    assert "not_null(passenger_count)" in ended["run"]["facets"]["errorMessage"]["message"]


def test_no_event_holds_a_row_of_data_or_a_secret() -> None:
    assert FAILED.results[0].examples
    text = "".join(map(json.dumps, told(make_run("rejected", reports=(FAILED,)))))
    assert "trip_id" not in text
    secret = EventContext(catalog="https://me:hunter22@nessie.example.com/api/v2")
    batch = BATCH.model_copy(update={"files": (BATCH.files[0].model_copy(update={"uri": "s3://k:hunter22@b/x"}),)})
    run = make_run("published", publication=PUBLICATION, request=REQUEST.model_copy(update={"batch": batch}))
    assert "hunter22" not in json.dumps(told(run, secret))


@pytest.mark.parametrize(
    ("run", "types"),
    [
        (FAILED_RUN, ["START", "FAIL"]),
        (SKIPPED, ["START", "COMPLETE"]),
        (make_run("discarded"), ["START", "ABORT"]),
        (make_run("planned", finished_at=None), ["START"]),
        (make_run("reverted", publication=PUBLICATION), ["START", "COMPLETE"]),
    ],
)
def test_each_ending_has_its_event(run: Run, types: list[str]) -> None:
    assert [event["eventType"] for event in told(run)] == types


def test_a_revert_that_drops_a_table_says_so() -> None:
    undone = (UndoneTable(table="nyc.trips", rows=-5, data_files=-1, dropped=True),)
    run = make_run("published", kind="revert", publication=PUBLICATION, undone=undone, request=None)
    [output] = told(run, EventContext(locations={"nyc.trips": "file:///lake/trips"}))[1]["outputs"]
    assert (output["namespace"], output["name"]) == ("file", "/lake/trips")
    assert output["facets"]["lifecycleStateChange"]["lifecycleStateChange"] == "DROP"


def test_thousands_of_files_are_named_by_their_folders() -> None:
    files = tuple(
        SourceFile(uri=f"s3://in/{n % 3}/{n}.parquet", size_bytes=1, version="1", rows=1) for n in range(5000)
    )
    request = REQUEST.model_copy(update={"batch": BATCH.model_copy(update={"files": files})})
    assert [one["name"] for one in told(make_run("skipped", request=request))[0]["inputs"]] == ["0", "1", "2"]


@pytest.mark.usefixtures("in_a_project")
def test_the_command_writes_one_event_a_line() -> None:
    lake: Any = FakeLake(run=REJECTED, written_schemas={})
    lake.settings = Settings()
    lines = invoke("runs 2026 -o openlineage", lake).stdout.splitlines()
    assert [json.loads(line)["eventType"] for line in lines] == ["START", "FAIL"]


EVENT = DownstreamEvent(
    event_id="e1",
    kind="rejected",
    run_id=REJECTED.run_id,
    at=datetime(2026, 1, 31, tzinfo=UTC),
    tables=(ChangedTable(table="nyc.trips", location="s3://lake/trips", table_schema=METADATA.table_schema),),
)


class Server:
    """Receives events and answers with ``status``."""

    def __init__(self) -> None:
        self.status = 201
        self.requests: list[tuple[str, str | None, dict[str, Any]]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                server.requests.append((self.path, self.headers["Authorization"], body))
                self.send_response(server.status)
                self.send_header("Content-Length", "0")
                if server.status in (301, 308):
                    self.send_header("Location", "/welcome")
                    server.status = 201
                self.end_headers()

            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def stop(self) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    server = Server()
    yield server
    server.stop()


@pytest.fixture
def server(running: Server) -> Server:
    running.status = 201
    running.requests.clear()
    return running


def target(home: Path, **section: object) -> Downstream:
    settings = Settings.model_validate({"downstream": {"lineage": {"type": "openlineage", **section}}})
    return open_downstream("lineage", settings.downstream["lineage"], DownstreamContext(home, "s3://lake", settings))


def test_a_server_gets_both_events_with_the_key(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MARQUEZ_KEY", "hunter22")
    lineage = target(tmp_path, url=server.url, api_key="env:MARQUEZ_KEY", namespace="team")
    assert server.url in lineage.test()
    lineage.deliver(EVENT, REJECTED)
    lineage.deliver(EVENT, REJECTED)
    paths, keys, bodies = zip(*server.requests, strict=True)
    assert set(paths) == {"/api/v1/lineage"}
    assert set(keys) == {"Bearer hunter22"}
    assert [body["eventType"] for body in bodies] == ["START", "FAIL"] * 2
    assert bodies[:2] == bodies[2:]
    audited = bodies[1]["inputs"][1]
    assert (audited["namespace"], audited["name"]) == ("s3://lake", "trips")
    assert audited["facets"]["schema"]["fields"][0]["name"] == "passenger_count"
    assert bodies[1]["job"]["namespace"] == "team"


@pytest.mark.parametrize(
    ("status", "error"), [(503, DownstreamUnavailableError), (429, DownstreamUnavailableError), (401, DownstreamError)]
)
def test_what_may_help_is_told_apart_from_what_will_not(
    server: Server, tmp_path: Path, status: int, error: type[Exception]
) -> None:
    server.status = status
    with pytest.raises(error, match=f"answered {status}") as caught:
        target(tmp_path, url=server.url).deliver(EVENT, REJECTED)
    assert type(caught.value) is error
    assert len(server.requests) == 1


def test_a_redirect_is_not_taken_for_a_delivery(server: Server, tmp_path: Path) -> None:
    lineage = target(tmp_path, url=server.url)
    server.status = 301  # the POST becomes a GET
    with pytest.raises(DownstreamError, match="redirects OpenLineage events") as caught:
        lineage.deliver(EVENT, REJECTED)
    assert caught.value.hint == "Set downstream.lineage.url to that address."
    server.status = 308  # it stays a POST
    lineage.deliver(EVENT, REJECTED)
    assert [path for path, _, _ in server.requests] == ["/api/v1/lineage"] * 2 + ["/welcome", "/api/v1/lineage"]


def test_a_server_that_is_away_is_tried_again_later(tmp_path: Path) -> None:
    with pytest.raises(DownstreamUnavailableError, match="can't be reached"):
        target(tmp_path, url="http://127.0.0.1:9").deliver(EVENT, REJECTED)


def test_events_are_appended_to_a_file(tmp_path: Path) -> None:
    lineage = target(tmp_path, file="lineage.jsonl")
    lineage.deliver(EVENT, REJECTED)
    lineage.deliver(EVENT.model_copy(update={"kind": "current", "run_id": None}), None)
    lineage.deliver(EVENT, REJECTED)
    lines = (tmp_path / "lineage.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["eventType"] for line in lines] == ["START", "FAIL"] * 2
    with pytest.raises(DownstreamError, match="can't be written"):
        target(tmp_path, file="no/such/folder/x.jsonl").deliver(EVENT, REJECTED)


def test_a_key_that_is_not_there_shows_in_the_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_KEY", raising=False)
    with pytest.raises(ConfigurationError, match="NO_KEY"):
        target(tmp_path, url="https://marquez.example.com", api_key="env:NO_KEY").test()


@pytest.mark.parametrize(
    "section",
    [
        {},
        {"url": "https://a", "file": "b"},
        {"file": "b", "api_key": "env:K"},
        {"url": "ftp://a"},
        {"url": "http://a.example.com", "api_key": "env:K"},
    ],
)
def test_it_goes_to_one_place(section: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"openlineage|api_key|pattern|https"):
        target(tmp_path, **section)


def test_the_outbox_delivers_what_was_published_and_what_was_rejected(tmp_path: Path) -> None:
    settings = Settings.model_validate({"downstream": {"lineage": {"type": "openlineage", "file": "lineage.jsonl"}}})
    section = settings.downstream["lineage"]

    class Lineage(System):
        def subscriber(self) -> Subscriber:
            known = super().subscriber()
            context = DownstreamContext(tmp_path, "mem://warehouse", settings)
            return replace(known, open=lambda: open_downstream("lineage", section, context))

    world = World(Lineage("lineage", events=section.events))
    world.add("a", row(1))
    world.add("b", WITH_NULLS)
    ended = [
        event
        for line in (tmp_path / "lineage.jsonl").read_text(encoding="utf-8").splitlines()
        if (event := json.loads(line))["eventType"] != "START"
    ]
    assert [event["eventType"] for event in ended] == ["COMPLETE", "FAIL"]
    published, rejected = ended
    [table] = published["outputs"]
    assert table["facets"]["version"]["datasetVersion"] == world.head().hash
    assert [field["name"] for field in table["facets"]["schema"]["fields"]] == ["id", "passengers"]
    assert rejected["outputs"] == []
    audited = [one["inputFacets"] for one in rejected["inputs"] if one.get("inputFacets")]
    assert audited[0]["dataQualityAssertions"]["assertions"][0]["success"] is False
    assert world.states("lineage") == [("a", "sent"), ("b", "sent")]
