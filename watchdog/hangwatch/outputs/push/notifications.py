"""Notifications of an incident, in the format of each kind of receiver. Pure.

May import the model, msgspec and the words that all outputs share. Formats: Alertmanager's API v2, ``postableAlerts``
(api/v2/openapi.yaml, Alertmanager 0.25 to 0.28); for other receivers our own ``hangwatch.notification/1``, and plain text for
the services that apprise knows (``services.py``): chats, e-mail, pagers.

To add a kind of receiver, add a function here and a line in ``RECEIVERS``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from types import MappingProxyType

import msgspec

from hangwatch.model.incident import Incident, SourceLine, Verdict
from hangwatch.model.numbers import name_guests
from hangwatch.model.text import format_ranks
from hangwatch.outputs.briefing import Briefing, Links, brief
from hangwatch.outputs.job_history import describe_history
from hangwatch.outputs.sanitize import clean, excerpt
from hangwatch.outputs.second_look import describe_second_look
from hangwatch.outputs.wording import name_kind, say_confidence, says_cause

SCHEMA = "hangwatch.notification/1"
#: An open incident is sent to Alertmanager this often; Alertmanager resolves an alert that is not repeated within its
#: ``resolve_timeout`` (5 min by default).
REPEAT_S = 60.0
#: Minimum duration of an alert: one that ends within Alertmanager's ``group_wait`` (30 s by default) is never sent, and
#: ``--on-hang stop`` ends a hang within seconds.
SHORTEST_S = 60.0
_TEXT_LIMIT_CHARS = 2000
_TITLE_LIMIT_CHARS = 200
#: Length of an explanation in a chat; the page has all of it.
_LINE_CHARS = 300
#: The alert names of deploy/prometheus/rules, so that one Alertmanager route matches both.
_ALERT_NAMES = {
    "deadlock": "HangwatchDeadlock",
    "stall": "HangwatchStall",
    "rank_lost": "HangwatchRankLost",
    "straggler": "HangwatchStraggler",
    "slow": "HangwatchSlow",
    "failed": "HangwatchJobFailed",
    "silent_failure": "HangwatchSilentFailure",
}


class Notification(msgspec.Struct, frozen=True):
    """The current state of an incident, the path of its bundle, the node, and where links lead."""

    incident: Incident
    bundle: str | None
    node: str
    links: Links = Links()

    @property
    def over(self) -> bool:
        """True if the incident has ended."""
        return self.incident.ended_at is not None

    @property
    def key(self) -> tuple[object, ...]:
        """What a receiver would see change. Only a notification with another key than the last one is sent."""
        verdict = self.incident.verdict
        return (self.incident.id, verdict.kind, self.cause_id, verdict.culprit_ranks, self.bundle, self.over)

    @property
    def cause_id(self) -> str:
        """The id of the cause; ``unknown`` if there is none."""
        return self.incident.verdict.cause.id if self.incident.verdict.cause else "unknown"

    @property
    def briefing(self) -> Briefing:
        """The incident in short texts."""
        return brief(self.incident, self.links)


#: Renders the body from a notification, the previous one sent for the same incident (None: none), and the current time.
Render = Callable[[Notification, "Notification | None", datetime], bytes]


class Receiver(msgspec.Struct, frozen=True):
    """A kind of receiver. ``path`` is appended to the URL; ``repeat_s`` is None if a message need not be repeated."""

    render: Render
    path: str = ""
    repeat_s: float | None = None


def alertmanager_body(notification: Notification, before: Notification | None, now: datetime) -> bytes:
    """Return the alert of a notification; if its labels differ from ``before``, also resolve the alert sent before."""
    alerts = [_alert(notification, _end(notification.incident))]
    if before is not None and _labels(before) != _labels(notification):
        alerts.append(_alert(before, now))
    return msgspec.json.encode(alerts)


def webhook_body(notification: Notification, before: Notification | None, now: datetime) -> bytes:
    """Return the verdict and both lines of code; the stacks stay in the bundle on the node.

    Chats that accept JSON show ``text``.
    """
    del now
    incident, verdict = notification.incident, notification.incident.verdict
    cause, job, briefing, message = verdict.cause, incident.job, notification.briefing, message_of(notification, before)
    divergence = verdict.divergence
    return msgspec.json.encode(
        {
            "schema": SCHEMA,
            "status": "resolved" if notification.over else "firing",
            "text": message.title if message.body == message.title else f"{message.title}\n{message.body}",
            "incident_id": incident.id,
            "job_id": clean(job.id),
            "job": {
                "name": briefing.name,
                "script": briefing.script,
                "user": clean(job.user),
                "slurm_job": clean(job.slurm_job),
                "namespace": clean(job.namespace),
                "pod": clean(job.pod),
                "nodes": [clean(node) for node in job.nodes],
            },
            "node": clean(notification.node),
            "kind": verdict.kind,
            "proven": verdict.proven,
            "severity": verdict.severity,
            "summary": clean(verdict.summary),
            "culprit_ranks": verdict.culprit_ranks,
            "names": verdict.names,
            "waiting_ranks": verdict.waiting_ranks,
            "culprit_line": _line(divergence.culprit if divergence is not None else None),
            "others_line": _line(divergence.others if divergence is not None else None),
            "history": incident.history,
            "second_look": incident.second_look,
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
            "page_url": briefing.page_url or None,
            "runbook_url": briefing.runbook_url or None,
            "explain": f"hangwatch explain {notification.cause_id}",
            "bundle": None if notification.bundle is None else clean(notification.bundle),
            "onset_at": incident.onset_at,
            "confirmed_at": incident.confirmed_at,
            "ended_at": incident.ended_at,
        }
    )


def _line(line: SourceLine | None) -> dict[str, object] | None:
    """Return one side's line of code; None if not known."""
    if line is None:
        return None
    named = {"file": line.file, "function": line.function, "source": line.source or "", "via": line.via or ""}
    return {**{name: clean(text) for name, text in named.items()}, "line": line.line, "ranks": line.ranks}


class Message(msgspec.Struct, frozen=True):
    """A notification as plain text, with title and body. Formatting characters of a service are not escaped."""

    title: str
    body: str
    severity: str
    over: bool


def message_of(notification: Notification, before: Notification | None) -> Message:
    """Return what happened, who, why and what to do.

    If the incident has ended and was sent before, only one line.
    """
    head, lines = _words(notification, before)
    body = "\n".join(lines) or head
    title = head[:_TITLE_LIMIT_CHARS]
    return Message(title, body[:_TEXT_LIMIT_CHARS], notification.incident.verdict.severity, notification.over)


def _words(notification: Notification, before: Notification | None) -> tuple[str, list[str]]:
    """Return the first line and the lines below; only the first for the end of an incident that was sent before."""
    incident, verdict, briefing = notification.incident, notification.incident.verdict, notification.briefing
    kind, node = name_kind(verdict.kind), clean(notification.node)
    head = f"{kind}{', proven' if verdict.proven else ''}: {briefing.name} on {node}"
    since = f"{incident.onset_at[:19].replace('T', ' ')} UTC"
    if notification.over and incident.ended_at is not None:
        head = f"Resolved: {briefing.name} on {node} ({kind.lower()}), {since} to {incident.ended_at[11:19]}"
        if before is not None:
            return head, []
    lines = [briefing.summary, f"Job: {briefing.job_text}", *briefing.sides]
    if verdict.cause is not None:
        said = briefing.why if briefing.why and says_cause(verdict, verdict.cause) else briefing.title
        why = excerpt(said, _LINE_CHARS).removesuffix(".")
        lines.append(f"Cause: {why}{say_confidence(verdict.cause, ' (confidence {})')}")
        lines += [f"Do first: {step}" for step in briefing.steps[:1]]
    lines += [clean(line) for line in describe_history(incident.history)]
    if action := describe_second_look(incident):
        lines.append(f"Action: {clean(action)}")
    lines.append(f"Since: {since}")
    if briefing.page_url:
        only = f" (on {node} only)" if notification.links.local else ""
        lines.append(f"Page{only}: {briefing.page_url}")
    lines.append(f"More: {briefing.more}")
    if notification.bundle is not None:
        lines.append(f"Bundle: {node}:{clean(notification.bundle)}")
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
    """Return a time of an incident document as datetime."""
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def _labels(notification: Notification) -> dict[str, str]:
    """Return the labels that identify the alert, as in the alert rules."""
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
    verdict, briefing = notification.incident.verdict, notification.briefing
    annotations = {
        "summary": briefing.summary,
        "job": briefing.job_text,
        "script": briefing.script,
        "culprit": briefing.culprit,
        "culprit_line": briefing.culprit_line,
        "others_line": briefing.others_line,
        "cause": briefing.title,
        "description": briefing.why,
        "remedy": briefing.remedy,
        "page_url": briefing.page_url,
        "runbook_url": briefing.runbook_url,
        "more": briefing.more,
        "waiting_ranks": name_ranks(verdict, verdict.waiting_ranks),
        "history": clean(" ".join(describe_history(notification.incident.history))),
        "action": clean(describe_second_look(notification.incident)),
        "since": notification.incident.onset_at,
        "incident": notification.incident.id,
        "bundle": clean(notification.bundle or ""),
    }
    return {name: text[:_TEXT_LIMIT_CHARS] for name, text in annotations.items() if text}


def name_ranks(verdict: Verdict, ranks: tuple[int, ...]) -> str:
    """Return ranks for people: ``0-3``; processes of other worlds by their names."""
    return name_guests(format_ranks(ranks), verdict.names)


def utc_now() -> datetime:
    """Return the current time, timezone-aware."""
    return datetime.now(timezone.utc)
