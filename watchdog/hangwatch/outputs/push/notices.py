"""What is told of an incident outside this node: one notice, in the words of each kind of receiver. Pure.

May import the model, msgspec and ``outputs.sanitize``. Formats: Alertmanager's API v2, ``postableAlerts``
(api/v2/openapi.yaml, Alertmanager 0.25 to 0.28); Slack's incoming webhooks (``text`` alone, which Mattermost, Rocket.Chat
and others take as well); for anything else our own ``hangwatch.notice/1``.

A new kind of receiver is a function here and a line in ``RECEIVERS``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from types import MappingProxyType

import msgspec

from hangwatch.model.incident import Incident
from hangwatch.model.text import format_ranks
from hangwatch.outputs.sanitize import clean

SCHEMA = "hangwatch.notice/1"
#: Alertmanager is told again this often while an incident is open, and forgets it after its ``resolve_timeout`` (5 min, unless
#: set) of silence.
REPEAT_S = 60.0
#: An alert lasts at least this long: one that ends within Alertmanager's ``group_wait`` (30 s, unless set) is told nobody, and
#: ``--on-hang stop`` ends a hang within seconds.
SHORTEST_S = 60.0
_TEXT_LIMIT_CHARS = 2000
_SLACK_LIMIT_CHARS = 3500
#: The alerts' names, as in deploy/prometheus/rules: one route serves both ways.
_ALERT_NAMES = {
    "deadlock": "HangwatchDeadlock",
    "stall": "HangwatchStall",
    "rank_lost": "HangwatchRankLost",
    "straggler": "HangwatchStraggler",
    "silent_failure": "HangwatchSilentFailure",
}
_SIGNS = {"critical": ":red_circle:", "warning": ":large_orange_circle:"}


class Notice(msgspec.Struct, frozen=True):
    """An incident as it is now, where its bundle lies, and on which node."""

    incident: Incident
    bundle: str | None
    node: str

    @property
    def over(self) -> bool:
        """Whether the incident has ended."""
        return self.incident.ended_at is not None

    @property
    def key(self) -> tuple[object, ...]:
        """What makes it worth telling again: an equal one is not."""
        verdict = self.incident.verdict
        return (self.incident.id, verdict.kind, self.cause_id, verdict.culprit_ranks, self.bundle, self.over)

    @property
    def cause_id(self) -> str:
        """The cause's id, ``unknown`` where there is none."""
        return self.incident.verdict.cause.id if self.incident.verdict.cause else "unknown"


#: The body for a notice, the one told before of the same incident (None: none), and the time now.
Render = Callable[[Notice, "Notice | None", datetime], bytes]


class Receiver(msgspec.Struct, frozen=True):
    """A kind of receiver. ``path`` is added to the address, ``repeat_s`` is None where one message is enough."""

    render: Render
    path: str = ""
    repeat_s: float | None = None


def alertmanager_body(notice: Notice, before: Notice | None, now: datetime) -> bytes:
    """The alert of a notice; where its labels have changed since ``before``, the old one is ended with it."""
    alerts = [_alert(notice, _end(notice.incident))]
    if before is not None and _labels(before) != _labels(notice):
        alerts.append(_alert(before, now))
    return msgspec.json.encode(alerts)


def webhook_body(notice: Notice, before: Notice | None, now: datetime) -> bytes:
    """The verdict without stacks and command line: those are in the bundle, and stay on the node."""
    del before, now
    incident, verdict = notice.incident, notice.incident.verdict
    cause = verdict.cause
    return msgspec.json.encode(
        {
            "schema": SCHEMA,
            "status": "resolved" if notice.over else "firing",
            "incident_id": incident.id,
            "job_id": clean(incident.job.id),
            "node": clean(notice.node),
            "kind": verdict.kind,
            "proven": verdict.proven,
            "severity": verdict.severity,
            "summary": clean(verdict.summary),
            "culprit_ranks": verdict.culprit_ranks,
            "waiting_ranks": verdict.waiting_ranks,
            "cause": None
            if cause is None
            else {
                "id": cause.id,
                "title": cause.title,
                "confidence": cause.confidence,
                "explanation": clean(cause.explanation),
                "remedy": cause.remedy,
                "references": cause.references,
            },
            "runbook": _runbook(notice),
            "bundle": None if notice.bundle is None else clean(notice.bundle),
            "onset_at": incident.onset_at,
            "confirmed_at": incident.confirmed_at,
            "ended_at": incident.ended_at,
        }
    )


def slack_body(notice: Notice, before: Notice | None, now: datetime) -> bytes:
    """A message of a few lines; everything that came from the job is escaped. The end of what was told before is one line."""
    del now
    incident, verdict = notice.incident, notice.incident.verdict
    job = _escape(incident.job.id)
    over = f":large_green_circle: *Over: {verdict.kind} of {job}*, {incident.onset_at} to {incident.ended_at}"
    if notice.over and before is not None:
        return _slack_text([over])
    proven = ", proven" if verdict.proven else ""
    sign = _SIGNS.get(verdict.severity, ":white_circle:")
    lines = [
        over if notice.over else f"{sign} *{verdict.kind}{proven}: {job}* on {_escape(notice.node)}",
        _escape(verdict.summary),
        f"*Ranks to blame:* {format_ranks(verdict.culprit_ranks)}  *waiting:* {format_ranks(verdict.waiting_ranks)}",
    ]
    if verdict.cause is not None:
        lines.append(
            f"*Cause* ({verdict.cause.confidence:.0%}): {_escape(verdict.cause.title)} (`{_escape(verdict.cause.id)}`)"
        )
        lines += [f"{number}. {_escape(step)}" for number, step in enumerate(verdict.cause.remedy, 1)]
    lines.append(f"*Since* {incident.onset_at}")
    if notice.bundle is not None:
        lines.append(f"*Bundle* `{_escape(notice.bundle)}`")
    return _slack_text(lines)


RECEIVERS: Mapping[str, Receiver] = MappingProxyType(
    {
        "alertmanager": Receiver(alertmanager_body, "/api/v2/alerts", REPEAT_S),
        "webhook": Receiver(webhook_body),
        "slack": Receiver(slack_body),
    }
)


def _alert(notice: Notice, ends: datetime | None) -> dict[str, object]:
    alert: dict[str, object] = {
        "labels": _labels(notice),
        "annotations": _annotations(notice),
        "startsAt": notice.incident.onset_at,
    }
    # An open one has no end of ours: Alertmanager would keep it to that end, though we say an earlier one later (Alert.Merge).
    return alert if ends is None else {**alert, "endsAt": ends.isoformat()}


def _end(incident: Incident) -> datetime | None:
    if incident.ended_at is None:
        return None
    confirmed = _parse_time(incident.confirmed_at or incident.detected_at)
    return max(_parse_time(incident.ended_at), confirmed + timedelta(seconds=SHORTEST_S))


def _parse_time(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def _labels(notice: Notice) -> dict[str, str]:
    """What identifies the alert, as the rules have it."""
    verdict = notice.incident.verdict
    return {
        "alertname": _ALERT_NAMES.get(verdict.kind, "HangwatchIncident"),
        "scope": "job",
        "job_id": clean(notice.incident.job.id),
        "kind": verdict.kind,
        "cause": notice.cause_id,
        "severity": verdict.severity,
        "instance": clean(notice.node),
    }


def _annotations(notice: Notice) -> dict[str, str]:
    verdict = notice.incident.verdict
    cause = verdict.cause
    steps = [f"{number}. {step}" for number, step in enumerate(cause.remedy, 1)] if cause is not None else []
    said = {
        "summary": clean(verdict.summary),
        "cause": cause.title if cause is not None else "",
        "description": clean(cause.explanation) if cause is not None else "",
        "remedy": " ".join(steps),
        "runbook_url": _runbook(notice),
        "culprit_ranks": format_ranks(verdict.culprit_ranks),
        "waiting_ranks": format_ranks(verdict.waiting_ranks),
        "incident": notice.incident.id,
        "bundle": clean(notice.bundle or ""),
    }
    return {name: text[:_TEXT_LIMIT_CHARS] for name, text in said.items() if text}


def _runbook(notice: Notice) -> str:
    return f"docs/causes/{notice.cause_id}.md"


def _escape(text: str) -> str:
    """What Slack would read as markup: https://docs.slack.dev/messaging/formatting-message-text#escaping."""
    plain = clean(text).replace("`", "'").replace("*", "∗")
    return plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _slack_text(lines: list[str]) -> bytes:
    text = "\n".join(lines)
    return msgspec.json.encode({"text": text if len(text) <= _SLACK_LIMIT_CHARS else text[:_SLACK_LIMIT_CHARS] + "…"})


def utc_now() -> datetime:
    """The wall clock, with its zone."""
    return datetime.now(timezone.utc)
