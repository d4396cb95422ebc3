"""Spans and metrics, sent to a real receiver on loopback, and only if the variables ask for them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from lakegate.errors import EngineUnavailableError
from lakegate.telemetry import otel, tracing
from lakegate.wap.ingest import ingest
from support.fakes import FakeLakehouse
from support.flow_support import WITH_NULLS, ordered
from support.otlp_server import OtlpServer, otlp_server

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture(autouse=True)
def _nothing_asked_for(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in [name for name in os.environ if name.startswith(("OTEL_", "TRACE"))]:
        monkeypatch.delenv(name)
    yield
    otel.shut_down()


@pytest.fixture(scope="module")
def running() -> Iterator[OtlpServer]:
    with otlp_server() as server:
        yield server


@pytest.fixture
def server(running: OtlpServer, monkeypatch: pytest.MonkeyPatch) -> OtlpServer:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", running.url)
    for received in (running.headers, running.bodies, running.traces, running.metrics):
        received.clear()
    return running


def attributes(span: Any) -> dict[str, Any]:
    found = {}
    for pair in span.attributes:
        value = pair.value
        kind = value.WhichOneof("value")
        raw = getattr(value, kind)
        found[pair.key] = [one.string_value for one in raw.values] if kind == "array_value" else raw
    return found


def test_a_run_is_a_span_and_each_step_one_within_it(
    server: OtlpServer, house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACEPARENT", PARENT)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=hunter22")
    ingest(house.context, ordered(house))
    tracing.flush()
    assert set(server.spans) == {"lakegate ingest", "write", "audit", "publish"}
    run = server.spans["lakegate ingest"]
    assert run.trace_id.hex() == PARENT[3:35]
    assert run.parent_span_id.hex() == PARENT[36:52]
    for step in ("write", "audit", "publish"):
        span = server.spans[step]
        assert (span.trace_id, span.parent_span_id) == (run.trace_id, run.span_id)
        assert run.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano
    about = attributes(run)
    assert about["lakegate.status"] == "published"
    assert (about["lakegate.rows"], about["lakegate.checks"]) == (2, 1)
    assert about["lakegate.tables"] == ["nyc.trips"]
    [resource] = server.traces[0].resource_spans
    assert attributes(resource.resource)["service.name"] == "lakegate"
    assert server.headers[0]["x-key"] == "hunter22"
    assert not any(b"hunter22" in body for body in server.bodies)


def test_metrics_are_sent_as_they_are_counted(server: OtlpServer, house: FakeLakehouse) -> None:
    ingest(house.context, ordered(house))
    tracing.flush()
    [runs] = server.points["lakegate.runs"]
    assert (runs.as_double or runs.as_int) == 1
    assert attributes(runs) == {"kind": "ingest", "status": "published"}
    steps = {attributes(point)["step"]: point for point in server.points["lakegate.step"]}
    assert set(steps) == {"write", "audit", "publish"}
    assert steps["write"].count == 1
    assert list(steps["write"].explicit_bounds)[:2] == [0.1, 0.5]
    assert server.points["lakegate.last_publish"][0].as_double > 1.7e9


def test_nothing_that_goes_out_holds_data_or_a_message(
    server: OtlpServer, house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    rejected = ingest(house.context, ordered(house, [*WITH_NULLS, {"id": 9, "passengers": None}]))
    assert rejected.failures[0].examples

    def away(*_: object, **__: object) -> None:
        raise EngineUnavailableError("Row 4711 of hunter22 is odd.")

    with monkeypatch.context() as patch, pytest.raises(EngineUnavailableError):
        patch.setattr(house, "append", away)
        ingest(house.context, ordered(house, run="r2"))
    tracing.flush()
    run, step = server.spans["lakegate ingest"], server.spans["write"]
    assert attributes(run)["error.type"] == attributes(step)["error.type"] == "engine-unavailable"
    assert run.status.code == step.status.code == 2
    assert not run.events
    assert not any(word in body for body in server.bodies for word in (b"4711", b"hunter22"))


@pytest.mark.parametrize(
    ("variables", "traces", "metrics"),
    [
        ({}, False, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, True, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318"}, True, False),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_METRICS_EXPORTER": "none"}, True, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_SDK_DISABLED": "true"}, False, False),
    ],
)
def test_the_standard_variables_decide(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], traces: bool, metrics: bool
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert (tracing.wanted("TRACES"), tracing.wanted("METRICS")) == (traces, metrics)


def test_nothing_is_loaded_unless_it_is_asked_for() -> None:
    code = (
        "import sys; from lakegate.telemetry import tracing; from lakegate.model.run import Run\n"
        "run = Run(run_id='r', tables=(), branch='', status='planned', started_at='2026-01-01T00:00:00Z')\n"
        "with tracing.run_span(run), tracing.step_span('write', run): pass\n"
        "assert tracing.observer() is None; tracing.flush()\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]"
    )
    env = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    subprocess.run([sys.executable, "-c", code], check=True, env=env)


def test_a_collector_that_is_away_and_odd_variables_change_nothing(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otel, "FLUSH_S", 0.2)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.1")
    assert ingest(house.context, ordered(house)).status == "published"
    over = threading.Event()
    with monkeypatch.context() as patch:
        patch.setattr(TracerProvider, "force_flush", lambda *_: over.wait(timeout=900))
        tracing.flush()
    over.set()  # which nobody has waited for
    otel.shut_down()
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "-7")
    monkeypatch.setenv("TRACEPARENT", "nonsense")
    assert ingest(house.context, ordered(house, run="r2")).status == "published"


def test_a_program_that_traces_already_gets_the_spans(house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr("opentelemetry.trace.get_tracer_provider", lambda: provider)
    with provider.get_tracer("program").start_as_current_span("nightly"):
        ingest(house.context, ordered(house))
    spans = {span.name: span for span in exporter.get_finished_spans()}
    assert set(spans) == {"nightly", "lakegate ingest", "write", "audit", "publish"}
    parent = spans["lakegate ingest"].parent
    assert parent is not None
    assert parent.span_id == spans["nightly"].context.span_id
    provider.shutdown()
