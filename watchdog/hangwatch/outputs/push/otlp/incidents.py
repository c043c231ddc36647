"""An incident as an event of the log and as a span. Pure; may import OpenTelemetry's SDK.

Names are those of OpenTelemetry's semantic conventions (1.44: ``code.*``, ``error.type``, ``host.name``, ..); our own
begin with ``hangwatch.``. Trace id and span id are made of the incident's id, so that what another agent sends of the
incident, after a restart or a failover, belongs to the same trace.
"""

from __future__ import annotations

import hashlib

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.context import Context
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context
from opentelemetry.trace.status import Status, StatusCode

from hangwatch import __version__
from hangwatch.outputs.push.notifications import Notification, message_of, name_ranks, parse_time
from hangwatch.outputs.sanitize import clean

EVENT = "hangwatch.incident"
SCOPE = InstrumentationScope("hangwatch", __version__)
_SEVERITIES = {"critical": SeverityNumber.ERROR, "warning": SeverityNumber.WARN}


def make_event(
    notification: Notification, before: Notification | None, resource: Resource, now_ns: int
) -> ReadableLogRecord:
    """Return the event of an incident that begins, changes or ends. ``before``: what was sent last."""
    incident = notification.incident
    message = message_of(notification, before)
    if notification.over and incident.ended_at is not None:
        severity, at_ns = SeverityNumber.INFO, _to_ns(incident.ended_at)
    else:
        severity = _SEVERITIES.get(incident.verdict.severity, SeverityNumber.INFO)
        at_ns = _to_ns(incident.confirmed_at or incident.detected_at) if before is None else now_ns
    record = LogRecord(
        timestamp=at_ns,
        observed_timestamp=now_ns,
        context=set_span_in_context(NonRecordingSpan(_context(notification)), Context()),
        severity_text=severity.name,
        severity_number=severity,
        body=message.title if message.body == message.title else f"{message.title}\n{message.body}",
        attributes=_attributes(notification),
        event_name=EVENT,
    )
    return ReadableLogRecord(record, resource, SCOPE)


def make_span(notification: Notification, resource: Resource) -> ReadableSpan:
    """Return the span of an ended incident, from onset to end.

    It is made without a tracer, whose sampler could drop it.
    """
    incident, verdict = notification.incident, notification.incident.verdict
    confirmed = incident.confirmed_at or incident.detected_at
    return ReadableSpan(
        name=verdict.kind,
        context=_context(notification),
        resource=resource,
        attributes=_attributes(notification),
        events=(Event("confirmed", timestamp=_to_ns(confirmed)),),
        status=Status(StatusCode.ERROR, clean(verdict.summary)),
        start_time=_to_ns(incident.onset_at),
        end_time=_to_ns(incident.ended_at or confirmed),
        instrumentation_scope=SCOPE,
    )


def _attributes(notification: Notification) -> dict[str, str | bool | int]:
    """Return the attributes of event and span; unknown ones are left out."""
    incident, verdict, briefing = notification.incident, notification.incident.verdict, notification.briefing
    job = incident.job
    found: dict[str, str | bool | int | None] = {
        "hangwatch.incident.id": incident.id,
        "hangwatch.incident.status": "resolved" if notification.over else "firing",
        "hangwatch.job.id": job.id,
        "hangwatch.job.name": briefing.name,
        "hangwatch.job.script": briefing.script or None,
        "hangwatch.job.slurm_job": job.slurm_job or None,
        "user.name": job.user or None,
        "k8s.namespace.name": job.namespace or None,
        "k8s.pod.name": job.pod or None,
        "hangwatch.proven": verdict.proven,
        "hangwatch.severity": verdict.severity,
        "hangwatch.culprit_ranks": name_ranks(verdict, verdict.culprit_ranks),
        "hangwatch.waiting_ranks": name_ranks(verdict, verdict.waiting_ranks),
        "hangwatch.cause.id": notification.cause_id,
        "hangwatch.cause.title": briefing.title or None,
        "hangwatch.remedy": briefing.remedy or None,
        "hangwatch.culprit_line": briefing.culprit_line or None,
        "hangwatch.others_line": briefing.others_line or None,
        "hangwatch.page_url": briefing.page_url or None,
        "hangwatch.runbook_url": briefing.runbook_url or None,
        "hangwatch.bundle": notification.bundle,
        "hangwatch.step": incident.history.now.step if incident.history is not None else None,
        "error.type": verdict.kind,
    }
    if verdict.collective is not None:
        found |= {
            "hangwatch.collective.op": verdict.collective.op,
            "hangwatch.collective.group": verdict.collective.group,
        }
    line = verdict.divergence.culprit if verdict.divergence is not None else None
    if line is not None:
        found |= {"code.file.path": line.file, "code.line.number": line.line, "code.function.name": line.function}
    return {
        name: clean(value) if isinstance(value, str) else value for name, value in found.items() if value is not None
    }


def _context(notification: Notification) -> SpanContext:
    digest = hashlib.sha256(notification.incident.id.encode("utf-8", "backslashreplace")).digest()
    trace_id, span_id = int.from_bytes(digest[:16], "big"), int.from_bytes(digest[16:24], "big")
    return SpanContext(trace_id, span_id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def _to_ns(text: str) -> int:
    """Return a document's time, which has milliseconds, in ns."""
    return round(parse_time(text).timestamp() * 1000) * 1_000_000
