"""A real collector (Rotel, from its package), and behind it a stand-in for a backend, which reads OTLP's own messages.

The stand-in is built from opentelemetry-proto: no backend (Tempo, Loki, ..) could be had. It answers as it is told to, so it also
stands in for collectors that refuse or are slow.
"""

from __future__ import annotations

import gzip
import socket
import sysconfig
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from hangwatch.model.incident import Incident
from support import LONG_S, JobRunner, find_free_port, wait_for

_MESSAGES = {
    "/v1/logs": ExportLogsServiceRequest,
    "/v1/traces": ExportTraceServiceRequest,
    "/v1/metrics": ExportMetricsServiceRequest,
}


@dataclass
class Backend:
    """What has come, message by message. ``statuses``: its answers, the last one for ever; ``headers``: of the last request."""

    url: str
    statuses: list[int]
    messages: list[Any] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)

    def _scopes(self, resources: str, scopes: str) -> Iterator[Any]:
        for message in list(self.messages):
            for resource in getattr(message, resources, ()):
                yield from getattr(resource, scopes)

    def events(self) -> list[Any]:
        """All log records."""
        return [record for scope in self._scopes("resource_logs", "scope_logs") for record in scope.log_records]

    def spans(self) -> list[Any]:
        """All spans."""
        return [span for scope in self._scopes("resource_spans", "scope_spans") for span in scope.spans]

    def metrics(self) -> dict[str, list[Any]]:
        """The points of all metrics, in the order in which they came."""
        found: dict[str, list[Any]] = {}
        for scope in self._scopes("resource_metrics", "scope_metrics"):
            for metric in scope.metrics:
                found.setdefault(metric.name, []).extend(getattr(metric, metric.WhichOneof("data")).data_points)
        return found


def assert_told(kept: Backend, found: Incident) -> None:
    """Events and a span with the ids of the one incident, its line and its times, and the metrics have come."""

    def by_status() -> dict[str, Any]:
        return {read_attributes(one)["hangwatch.incident.status"]: one for one in kept.events()}

    wait_for(lambda: len(kept.spans()) == 1 and "resolved" in by_status(), LONG_S, "the incident, and its end")
    first, last = by_status()["firing"], by_status()["resolved"]
    (span,) = kept.spans()
    assert len({(one.trace_id, one.span_id) for one in (first, last, span)}) == 1
    assert (first.event_name, first.severity_text, last.severity_text) == ("hangwatch.incident", "ERROR", "INFO")
    assert found.verdict.divergence is not None
    assert found.verdict.divergence.culprit is not None
    known = read_attributes(span)
    assert known["hangwatch.incident.id"] == found.id
    assert (known["error.type"], known["hangwatch.proven"]) == ("deadlock", True)
    assert known["hangwatch.cause.id"] == "ranks-diverged"
    assert known["code.file.path"] == found.verdict.divergence.culprit.file
    assert known["code.line.number"] == found.verdict.divergence.culprit.line
    assert 0 < span.start_time_unix_nano < span.events[0].time_unix_nano <= span.end_time_unix_nano
    (resource,) = {str(read_attributes(r.resource)) for m in kept.messages for r in getattr(m, "resource_spans", ())}
    assert socket.gethostname() in resource
    assert "deployment.environment.name" in resource
    points = kept.metrics()
    hangs = [point for point in points["hangwatch_incidents_total"] if read_attributes(point)["kind"] == "deadlock"]
    assert hangs[-1].as_double == 1.0
    assert {"hangwatch_collective_enqueued", "hangwatch_agent_tick_duration_seconds"} <= points.keys()


def read_attributes(one: Any) -> dict[str, Any]:
    """The attributes of a record, a span, a point or a resource."""
    return {item.key: getattr(item.value, item.value.WhichOneof("value")) for item in one.attributes}


@contextmanager
def backend(*statuses: int, port: int = 0) -> Iterator[Backend]:
    """A server on the loopback that speaks OTLP over HTTP."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["Content-Length"]))
            found.headers = dict(self.headers.items())
            if self.headers.get("Content-Encoding") == "gzip":
                data = gzip.decompress(data)
            status = found.statuses.pop(0) if len(found.statuses) > 1 else found.statuses[0]
            if status == 200:
                found.messages.append(_MESSAGES[self.path].FromString(data))
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    found = Backend(f"http://127.0.0.1:{server.server_address[1]}", list(statuses) or [200])
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def start_collector(jobs: JobRunner, folder: Path, to: str) -> str:
    """Start Rotel, which sends on what it has received; returns the URL of its OTLP receiver."""
    package = find_spec("rotel")
    assert package is not None
    assert package.origin is not None
    program = Path(package.origin).with_name("rotel-agent")
    port = find_free_port()
    job = jobs.start(
        [
            str(program), "start", f"--otlp-http-endpoint=127.0.0.1:{port}",
            f"--otlp-grpc-endpoint=127.0.0.1:{find_free_port()}", f"--pid-file={folder / 'pid'}",
            "--exporter=otlp", f"--otlp-exporter-endpoint={to}", "--otlp-exporter-protocol=http",
        ],
        # It is linked against the library of its package's Python.
        env={"LD_LIBRARY_PATH": sysconfig.get_config_var("LIBDIR")},
    )  # fmt: skip

    def ready() -> bool:
        assert job.process.poll() is None, job.stdout() + job.stderr()
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", port)) == 0

    wait_for(ready, 60.0, "the collector to listen")
    return f"http://127.0.0.1:{port}"
