"""An OTLP endpoint: OpenTelemetry's own exporters, and the meaning of its answers.

May import OpenTelemetry once an endpoint is configured. All calls block, ten seconds at most; an endpoint belongs to
one thread. The SDK reads ``OTEL_EXPORTER_OTLP_HEADERS``, ``_CERTIFICATE``, ``_CLIENT_KEY``, ``_CLIENT_CERTIFICATE``
and ``_COMPRESSION``. Its time limit is not used: the SDK takes it for seconds, the specification says milliseconds.
"""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections.abc import Iterable
from typing import Any

from prometheus_client import Metric

from hangwatch import __version__
from hangwatch.outputs.push.notifications import Notification
from hangwatch.outputs.push.transports import ACCEPTED, TIMEOUT_S, Attempt, PushError, judge_status

#: Identifies this process of the agent in all it sends.
_INSTANCE = str(uuid.uuid4())
_INSTALL = "pip install 'opentelemetry-sdk>=1.45' 'opentelemetry-exporter-otlp-proto-http>=1.45'"


def check_installed() -> None:
    """Raise ``PushError`` if the extra ``otel`` is missing."""
    try:
        import opentelemetry.exporter.otlp.proto.http._log_exporter  # noqa: F401
    except ImportError:
        raise PushError(f"OpenTelemetry is not installed; run: {_INSTALL}") from None


class OtlpEndpoint:
    """One endpoint, ``http://HOST:4318``.

    ``node``: the host name in the resource. A signal is not sent if ``OTEL_LOGS_EXPORTER`` (``_TRACES_``,
    ``_METRICS_``) is ``none``.
    """

    def __init__(self, url: str, node: str) -> None:
        import requests
        from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource

        # Their messages may contain the whole address; we report failures ourselves.
        for name in ("opentelemetry", "requests", "urllib3"):
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
        self.resource = Resource.create(
            {
                "service.name": "hangwatch",
                "service.version": __version__,
                "service.instance.id": _INSTANCE,
                "host.name": node,
            }
        )
        self._status: int | None = None
        session = requests.Session()
        session.hooks["response"].append(self._note_status)
        base, exporters = (
            url.rstrip("/"),
            {"logs": OTLPLogExporter, "traces": OTLPSpanExporter, "metrics": OTLPMetricExporter},
        )
        self._exporters = {
            signal: exporter(endpoint=f"{base}/v1/{signal}", timeout=TIMEOUT_S, session=session)
            for signal, exporter in exporters.items()
            if os.environ.get(f"OTEL_{signal.upper()}_EXPORTER", "").strip() != "none"
        }
        self._start_ns = time.time_ns()
        self._sent_event: tuple[object, ...] = ()

    def send_incident(self, notification: Notification, before: Notification | None) -> Attempt:
        """Send the event, and the span of an ended incident; return what became of it.

        A repeated attempt does not repeat an event that was accepted.
        """
        from hangwatch.outputs.push.otlp.incidents import make_event, make_span

        if notification.key != self._sent_event:
            answer = self._send("logs", [make_event(notification, before, self.resource, time.time_ns())])
            if answer.state != "accepted":
                return answer
            self._sent_event = notification.key
        return self._send("traces", [make_span(notification, self.resource)]) if notification.over else ACCEPTED

    def send_metrics(self, families: Iterable[Metric]) -> Attempt:
        """Send all metrics as they are now; return what became of it."""
        from hangwatch.outputs.push.otlp.metrics import make_metrics

        return self._send("metrics", make_metrics(families, self.resource, self._start_ns, time.time_ns()))

    def close(self) -> None:
        """End the exporters' waits; may be called from any thread."""
        for exporter in self._exporters.values():
            exporter.shutdown()

    def _send(self, signal: str, batch: object) -> Attempt:
        exporter = self._exporters.get(signal)
        if exporter is None:
            return ACCEPTED
        self._status = None
        result = exporter.export(batch)
        if self._status is not None:
            return judge_status(self._status)
        return ACCEPTED if result.name == "SUCCESS" else Attempt("later", "is unreachable; retrying")

    def _note_status(self, response: Any, *_: object, **__: object) -> None:
        """Note the HTTP status: the exporters' results do not tell it, and count a redirection as success."""
        self._status = response.status_code
