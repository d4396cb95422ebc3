"""Delivery of OpenLineage events, to a real HTTP server and to a file."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from lakegate.config import Settings
from lakegate.downstream import DownstreamContext, open_downstream
from lakegate.errors import ConfigurationError, DownstreamError, DownstreamUnavailableError
from lakegate.model.downstream import ChangedTable, DownstreamEvent
from lakegate.ports import Downstream
from lakegate.wap.context import Subscriber
from support.cli_support import METADATA, REJECTED
from support.downstream_support import System, World, row
from support.flow_support import WITH_NULLS

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
    assert rejected["run"]["facets"]["test"]["tests"][0]["status"] == "fail"
    assert world.states("lineage") == [("a", "sent"), ("b", "sent")]
