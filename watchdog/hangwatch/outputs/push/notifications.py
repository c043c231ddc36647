"""Notifications of an incident, in the format of each kind of receiver. Pure.

May import the model, msgspec and ``outputs.sanitize``. Formats: Alertmanager's API v2, ``postableAlerts``
(api/v2/openapi.yaml, Alertmanager 0.25 to 0.28); for other receivers our own ``hangwatch.notification/1``, and plain text for
the services that apprise knows (``services.py``): chats, e-mail, pagers.

To add a kind of receiver, add a function here and a line in ``RECEIVERS``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from types import MappingProxyType

import msgspec

from hangwatch.model.incident import Incident, Verdict
from hangwatch.model.numbers import name_guests
from hangwatch.model.text import format_ranks
from hangwatch.outputs.job_history import describe_history
from hangwatch.outputs.sanitize import clean

SCHEMA = "hangwatch.notification/1"
#: An open incident is sent to Alertmanager this often; Alertmanager resolves an alert that is not repeated within its
#: ``resolve_timeout`` (5 min by default).
REPEAT_S = 60.0
#: Minimum duration of an alert: one that ends within Alertmanager's ``group_wait`` (30 s by default) is never sent, and
#: ``--on-hang stop`` ends a hang within seconds.
SHORTEST_S = 60.0
_TEXT_LIMIT_CHARS = 2000
_TITLE_LIMIT_CHARS = 200
#: The alert names of deploy/prometheus/rules, so that one Alertmanager route matches both.
_ALERT_NAMES = {
    "deadlock": "HangwatchDeadlock",
    "stall": "HangwatchStall",
    "rank_lost": "HangwatchRankLost",
    "straggler": "HangwatchStraggler",
    "silent_failure": "HangwatchSilentFailure",
}


class Notification(msgspec.Struct, frozen=True):
    """The current state of an incident, the path of its bundle, and the node."""

    incident: Incident
    bundle: str | None
    node: str

    @property
    def over(self) -> bool:
        """Whether the incident has ended."""
        return self.incident.ended_at is not None

    @property
    def key(self) -> tuple[object, ...]:
        """A notification is sent only if its key differs from the last one sent."""
        verdict = self.incident.verdict
        return (self.incident.id, verdict.kind, self.cause_id, verdict.culprit_ranks, self.bundle, self.over)

    @property
    def cause_id(self) -> str:
        """The id of the cause, ``unknown`` if there is none."""
        return self.incident.verdict.cause.id if self.incident.verdict.cause else "unknown"


#: Renders the body from a notification, the previous one sent for the same incident (None: none), and the current time.
Render = Callable[[Notification, "Notification | None", datetime], bytes]


class Receiver(msgspec.Struct, frozen=True):
    """A kind of receiver. ``path`` is appended to the URL; ``repeat_s`` is None if a message need not be repeated."""

    render: Render
    path: str = ""
    repeat_s: float | None = None


def alertmanager_body(notification: Notification, before: Notification | None, now: datetime) -> bytes:
    """The alert of a notification; if its labels differ from ``before``, that alert is resolved."""
    alerts = [_alert(notification, _end(notification.incident))]
    if before is not None and _labels(before) != _labels(notification):
        alerts.append(_alert(before, now))
    return msgspec.json.encode(alerts)


def webhook_body(notification: Notification, before: Notification | None, now: datetime) -> bytes:
    """The verdict without stacks and command line, which stay in the bundle on the node."""
    del before, now
    incident, verdict = notification.incident, notification.incident.verdict
    cause = verdict.cause
    return msgspec.json.encode(
        {
            "schema": SCHEMA,
            "status": "resolved" if notification.over else "firing",
            "incident_id": incident.id,
            "job_id": clean(incident.job.id),
            "node": clean(notification.node),
            "kind": verdict.kind,
            "proven": verdict.proven,
            "severity": verdict.severity,
            "summary": clean(verdict.summary),
            "culprit_ranks": verdict.culprit_ranks,
            "names": verdict.names,
            "waiting_ranks": verdict.waiting_ranks,
            "history": incident.history,
            "cause": None
            if cause is None
            else {
                "id": cause.id,
                "title": cause.title,
                "confidence": cause.confidence,
                "measured": cause.measured,
                "explanation": clean(cause.explanation),
                "remedy": cause.remedy,
                "references": cause.references,
            },
            "runbook": runbook_of(notification),
            "bundle": None if notification.bundle is None else clean(notification.bundle),
            "onset_at": incident.onset_at,
            "confirmed_at": incident.confirmed_at,
            "ended_at": incident.ended_at,
        }
    )


class Message(msgspec.Struct, frozen=True):
    """A notification as plain text, for services that know a title and a body; what a service formats is not escaped."""

    title: str
    body: str
    severity: str
    over: bool


def message_of(notification: Notification, before: Notification | None) -> Message:
    """What happened, who, why and what to do; one line for the end of an incident that was sent before."""
    head, lines = _words(notification, before)
    body = "\n".join(lines) or head
    title = head[:_TITLE_LIMIT_CHARS]
    return Message(title, body[:_TEXT_LIMIT_CHARS], notification.incident.verdict.severity, notification.over)


def _words(notification: Notification, before: Notification | None) -> tuple[str, list[str]]:
    """The first line, and those below it: none for the end of an incident that was sent before."""
    incident, verdict = notification.incident, notification.incident.verdict
    job = clean(incident.job.id)
    proven = ", proven" if verdict.proven else ""
    head = f"{verdict.kind}{proven}: {job} on {clean(notification.node)}"
    if notification.over:
        head = f"Resolved: {verdict.kind} in {job}, {incident.onset_at} to {incident.ended_at}"
        if before is not None:
            return head, []
    culprits, waiting = name_ranks(verdict, verdict.culprit_ranks), name_ranks(verdict, verdict.waiting_ranks)
    lines = [clean(verdict.summary), f"Culprit ranks: {culprits}  waiting ranks: {waiting}"]
    if verdict.cause is not None:
        cause = f"{verdict.cause.title} ({verdict.cause.id})"
        lines.append(clean(f"Cause (confidence {verdict.cause.certainty}): {cause}"))
        lines += [clean(f"{number}. {step}") for number, step in enumerate(verdict.cause.remedy, 1)]
    lines += [clean(line) for line in describe_history(incident.history)]
    lines.append(f"Since {incident.onset_at}")
    if notification.bundle is not None:
        lines.append(f"Bundle {clean(notification.bundle)}")
    return head, lines


RECEIVERS: Mapping[str, Receiver] = MappingProxyType(
    {
        "alertmanager": Receiver(alertmanager_body, "/api/v2/alerts", REPEAT_S),
        "webhook": Receiver(webhook_body),
    }
)


def _alert(notification: Notification, ends: datetime | None) -> dict[str, object]:
    alert: dict[str, object] = {
        "labels": _labels(notification),
        "annotations": _annotations(notification),
        "startsAt": notification.incident.onset_at,
    }
    # No endsAt for an open incident: Alertmanager would keep that end even if an earlier one is sent later (Alert.Merge).
    return alert if ends is None else {**alert, "endsAt": ends.isoformat()}


def _end(incident: Incident) -> datetime | None:
    if incident.ended_at is None:
        return None
    confirmed = parse_time(incident.confirmed_at or incident.detected_at)
    return max(parse_time(incident.ended_at), confirmed + timedelta(seconds=SHORTEST_S))


def parse_time(text: str) -> datetime:
    """A time of an incident document."""
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def _labels(notification: Notification) -> dict[str, str]:
    """The labels that identify the alert, as in the alert rules."""
    verdict = notification.incident.verdict
    return {
        "alertname": _ALERT_NAMES.get(verdict.kind, "HangwatchIncident"),
        "scope": "job",
        "job_id": clean(notification.incident.job.id),
        "kind": verdict.kind,
        "cause": notification.cause_id,
        "severity": verdict.severity,
        "instance": clean(notification.node),
    }


def _annotations(notification: Notification) -> dict[str, str]:
    verdict = notification.incident.verdict
    cause = verdict.cause
    steps = [f"{number}. {step}" for number, step in enumerate(cause.remedy, 1)] if cause is not None else []
    annotations = {
        "summary": clean(verdict.summary),
        "cause": cause.title if cause is not None else "",
        "description": clean(cause.explanation) if cause is not None else "",
        "remedy": " ".join(steps),
        "runbook_url": runbook_of(notification),
        "culprit_ranks": name_ranks(verdict, verdict.culprit_ranks),
        "waiting_ranks": name_ranks(verdict, verdict.waiting_ranks),
        "history": clean(" ".join(describe_history(notification.incident.history))),
        "incident": notification.incident.id,
        "bundle": clean(notification.bundle or ""),
    }
    return {name: text[:_TEXT_LIMIT_CHARS] for name, text in annotations.items() if text}


def name_ranks(verdict: Verdict, ranks: tuple[int, ...]) -> str:
    """Ranks for people: ``0-3``, guests by their names."""
    return name_guests(format_ranks(ranks), verdict.names)


def runbook_of(notification: Notification) -> str:
    """The path of the cause's page in this repository."""
    return f"docs/causes/{notification.cause_id}.md"


def utc_now() -> datetime:
    """The current time, timezone-aware."""
    return datetime.now(timezone.utc)
