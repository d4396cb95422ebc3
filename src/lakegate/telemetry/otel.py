"""OpenTelemetry's SDK. Only :mod:`lakegate.telemetry.tracing` loads this module, on demand.

Sources: https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables,
https://opentelemetry.io/docs/specs/otel/protocol/exporter and
https://opentelemetry.io/docs/specs/otel/context/env-carriers
"""

from __future__ import annotations

import logging
import os
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

from opentelemetry import context, metrics, trace
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from lakegate import __version__
from lakegate.errors import LakegateError
from lakegate.model.run import Run
from lakegate.telemetry.metrics import BUCKETS, TIMESTAMP_SUFFIX, Metric

_LOG = logging.getLogger(__name__)
Signal = Literal["TRACES", "METRICS"]
FLUSH_S = 5.0
"""Seconds by which an unresponsive collector may delay the end of a process."""
_NAME = "lakegate"
_MOST_CHECKS = 20


class _Providers:
    """Our own providers and instruments, created on first use and never set globally.

    If OpenTelemetry rejects the variables, runs go on without telemetry.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._traces: TracerProvider | None = None
        self._meters: MeterProvider | None = None
        self._instruments: dict[tuple[int, str], Any] = {}
        self._refused: set[str] = set()

    def tracer(self) -> trace.Tracer:
        """Return the tracer that creates spans."""
        if is_set_up("TRACES"):
            return trace.get_tracer(_NAME, __version__)
        with self._lock:
            if self._traces is None and "TRACES" not in self._refused:
                with self._explained("TRACES"):
                    provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)
                    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
                    self._traces = provider
            return trace.NoOpTracer() if self._traces is None else self._traces.get_tracer(_NAME, __version__)

    def instrument(self, metric: Metric) -> Any:
        """Return the instrument that records a metric."""
        with self._lock:
            if not is_set_up("METRICS") and self._meters is None and "METRICS" not in self._refused:
                with self._explained("METRICS"):
                    reader = PeriodicExportingMetricReader(OTLPMetricExporter())
                    self._meters = MeterProvider([reader], resource=_resource(), shutdown_on_exit=False)
            set_up = metrics.get_meter_provider() if is_set_up("METRICS") else self._meters
            provider = set_up or metrics.NoOpMeterProvider()
            key = id(set_up), metric.name
            if key not in self._instruments:
                self._instruments[key] = _instrument(provider.get_meter(_NAME, __version__), metric)
            return self._instruments[key]

    @contextmanager
    def _explained(self, signal: Signal) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - telemetry must not fail a run
            self._refused.add(signal)
            _LOG.warning("OpenTelemetry's %s are off: %s", signal.lower(), type(error).__name__)

    def flush(self) -> None:
        """Send pending spans and metrics."""
        for provider in (self._traces, self._meters):
            if provider is not None:
                provider.force_flush(int(FLUSH_S * 1000))

    def shut_down(self) -> None:
        """Shut down the providers and their threads."""
        with self._lock:
            traces, meters = self._traces, self._meters
            self._traces = self._meters = None
            self._instruments.clear()
            self._refused.clear()
        for provider in (traces, meters):
            if provider is not None:
                provider.shutdown()


_PROVIDERS = _Providers()


def is_set_up(signal: Signal) -> bool:
    """Return whether the program has set up the SDK's providers itself."""
    if signal == "TRACES":
        return isinstance(trace.get_tracer_provider(), TracerProvider)
    return isinstance(metrics.get_meter_provider(), MeterProvider)


@contextmanager
def run_span(run: Run) -> Iterator[Callable[[Run], None]]:
    """Trace this process's work on a run, within the current trace or the one in ``TRACEPARENT``."""
    with _span(f"lakegate {run.kind}", _run_attributes(run), _parent()) as span:

        def note(ended: Run) -> None:
            span.set_attributes(_outcome_attributes(ended))
            if ended.status == "failed":
                code = "failed" if ended.error is None else ended.error.code
                span.set_attribute("error.type", code)
                span.set_status(Status(StatusCode.ERROR, code))

        yield note


@contextmanager
def step_span(name: str, run: Run) -> Iterator[None]:
    """Trace a step of a run."""
    with _span(name, _run_attributes(run), None):
        yield


def observe(metric: Metric, value: float, labels: dict[str, str]) -> None:
    """Record a measurement."""
    instrument = _PROVIDERS.instrument(metric)
    if metric.kind == "counter":
        instrument.add(value, labels)
    elif metric.kind == "histogram":
        instrument.record(value, labels)
    else:
        instrument.set(value, labels)


def flush() -> None:
    """Send pending spans and metrics within :data:`FLUSH_S`, so that an absent collector doesn't hold up a command."""
    worker = threading.Thread(target=_PROVIDERS.flush, name="lakegate telemetry", daemon=True)
    worker.start()
    worker.join(FLUSH_S)


def shut_down() -> None:
    """Send the rest and end all threads. Later measurements start over."""
    _PROVIDERS.shut_down()


@contextmanager
def _span(name: str, attributes: Mapping[str, Any], parent: context.Context | None) -> Iterator[Span]:
    # Don't let the SDK record an error's message, which may quote data.
    with _PROVIDERS.tracer().start_as_current_span(
        name, parent, attributes=attributes, record_exception=False, set_status_on_exception=False
    ) as span:
        try:
            yield span
        except BaseException as error:
            code = error.code if isinstance(error, LakegateError) else type(error).__name__
            span.set_attribute("error.type", code)
            span.set_status(Status(StatusCode.ERROR, code))
            raise


def _parent() -> context.Context | None:
    """Return the parent context from the environment; ``None`` to use the program's current one."""
    if trace.get_current_span().get_span_context().is_valid:
        return None
    carrier = {name: os.environ[name.upper()] for name in ("traceparent", "tracestate") if name.upper() in os.environ}
    return TraceContextTextMapPropagator().extract(carrier)


def _run_attributes(run: Run) -> dict[str, Any]:
    about = {"run_id": run.run_id, "kind": run.kind, "tables": run.tables, "branch": run.branch, "target": run.target}
    return {f"lakegate.{name}": value for name, value in about.items() if value}


def _outcome_attributes(run: Run) -> dict[str, Any]:
    results = [result for report in run.reports for result in report.results]
    failed = [result.name for result in results if result.blocks]
    rows = sum(staged.rows for staged in run.staged)
    facts: dict[str, Any] = {
        "tables": run.tables,
        "status": run.status,
        "rows": rows,
        "checks": len(results),
        "failed_checks": failed[:_MOST_CHECKS],
        "commit": run.publication.commit if run.publication else None,
    }
    return {f"lakegate.{name}": value for name, value in facts.items() if value not in (None, [], ())}


def _instrument(meter: metrics.Meter, metric: Metric) -> Any:
    """Return a metric's instrument: Prometheus' ``lakegate_step_seconds`` becomes ``lakegate.step``, in seconds."""
    name = metric.name.removesuffix(TIMESTAMP_SUFFIX).removesuffix("_seconds").replace("lakegate_", "lakegate.", 1)
    unit = "s" if metric.name.endswith("_seconds") else "1"
    if metric.kind == "counter":
        return meter.create_counter(name, unit, metric.text)
    if metric.kind == "histogram":
        return meter.create_histogram(name, unit, metric.text, explicit_bucket_boundaries_advisory=BUCKETS)
    return meter.create_gauge(name, unit, metric.text)


def _resource() -> Resource:
    """Return the resource from the variables, with defaults for this process."""
    known = Resource.create()
    own = {"service.version": __version__, "service.instance.id": str(uuid.uuid4())}
    if str(known.attributes.get("service.name", "")).startswith("unknown_service"):
        return known.merge(Resource({"service.name": _NAME, **own}))
    return Resource(own).merge(known)
