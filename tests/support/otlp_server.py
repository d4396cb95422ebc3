"""An OTLP collector: takes spans and metrics by HTTP, as protobuf."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class OtlpServer:
    """What arrived, and where."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.headers: list[dict[str, str]] = []
        self.bodies: list[bytes] = []
        self.traces: list[ExportTraceServiceRequest] = []
        self.metrics: list[ExportMetricsServiceRequest] = []

    @property
    def spans(self) -> dict[str, Any]:
        """The spans by name."""
        scopes = [scope for one in self.traces for of in one.resource_spans for scope in of.scope_spans]
        return {span.name: span for scope in scopes for span in scope.spans}

    @property
    def points(self) -> dict[str, list[Any]]:
        """The last data points of each metric."""
        scopes = [scope for one in self.metrics for of in one.resource_metrics for scope in of.scope_metrics]
        return {
            metric.name: list(getattr(metric, metric.WhichOneof("data")).data_points)
            for scope in scopes
            for metric in scope.metrics
        }


@contextmanager
def otlp_server() -> Iterator[OtlpServer]:
    """Run one until the body ends."""
    known: list[OtlpServer] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            [server] = known
            body = self.rfile.read(int(self.headers["Content-Length"]))
            body = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
            server.headers.append(dict(self.headers))
            server.bodies.append(body)
            if self.path == "/v1/traces":
                server.traces.append(ExportTraceServiceRequest.FromString(body))
            elif self.path == "/v1/metrics":
                server.metrics.append(ExportMetricsServiceRequest.FromString(body))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        known.append(OtlpServer(f"http://127.0.0.1:{http.server_port}"))
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield known[0]
        finally:
            http.shutdown()
            thread.join()
