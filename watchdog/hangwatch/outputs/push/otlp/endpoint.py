"""An OTLP endpoint: OpenTelemetry's own exporters, and what its answers mean.

May import OpenTelemetry where an endpoint is given. Everything here blocks, ten seconds at most; an endpoint belongs to one
thread. The SDK reads ``OTEL_EXPORTER_OTLP_HEADERS``, ``_CERTIFICATE``, ``_CLIENT_KEY``, ``_CLIENT_CERTIFICATE`` and
``_COMPRESSION``; not its time limit, which it takes for seconds where the specification says milliseconds.
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
from hangwatch.model.errors import PlainError
from hangwatch.outputs.push.notifications import Notification
from hangwatch.outputs.push.transports import ACCEPTED, TIMEOUT_S, Attempt, judge_status

#: One process of the agent, for all it sends.
_INSTANCE = str(uuid.uuid4())
_INSTALL = "pip install 'opentelemetry-sdk>=1.45' 'opentelemetry-exporter-otlp-proto-http>=1.45'"


class OtlpError(PlainError):
    """No OpenTelemetry; the message is one line with the repair."""


def check_installed() -> None:
    """Raise ``OtlpError`` where the extra is missing."""
    try:
        import opentelemetry.exporter.otlp.proto.http._log_exporter  # noqa: F401
    except ImportError:
        raise OtlpError(f"--otlp needs OpenTelemetry: {_INSTALL}") from None


class OtlpEndpoint:
    """One endpoint, ``http://HOST:4318``. ``node``: the host that the resource names.

    A signal is not sent where ``OTEL_LOGS_EXPORTER`` (``_TRACES_``, ``_METRICS_``) is ``none``.
    """

    def __init__(self, url: str, node: str) -> None:
        import requests
        from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource

        # Their messages may hold the whole address; what has failed is reported by us.
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
        """The event, and the span of an incident that is over. An attempt that is repeated repeats no event."""
        from hangwatch.outputs.push.otlp.incidents import make_event, make_span

        if notification.key != self._sent_event:
            answer = self._send("logs", [make_event(notification, before, self.resource, time.time_ns())])
            if answer.state != "accepted":
                return answer
            self._sent_event = notification.key
        return self._send("traces", [make_span(notification, self.resource)]) if notification.over else ACCEPTED

    def send_metrics(self, families: Iterable[Metric]) -> Attempt:
        """All metrics as they are now."""
        from hangwatch.outputs.push.otlp.metrics import make_metrics

        return self._send("metrics", make_metrics(families, self.resource, self._start_ns, time.time_ns()))

    def close(self) -> None:
        """Cut short what the exporters wait for; from any thread."""
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
        """The exporters' results do not say why, and for them a redirection is a success."""
        self._status = response.status_code
