"""Notifications, in the format of each kind of receiver."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from pathlib import Path

import msgspec
import pytest
import yaml
from examples import hang_incident
from hypothesis import given
from hypothesis import strategies as st

from hangwatch.model.incident import Incident
from hangwatch.outputs.push.notifications import (
    RECEIVERS,
    SHORTEST_S,
    Notification,
    alertmanager_body,
    webhook_body,
)

NOW = datetime(2026, 5, 28, 20, 27, tzinfo=timezone.utc)
RULES = Path(__file__).resolve().parents[2] / "deploy" / "prometheus" / "rules" / "hangwatch.rules.yml"
BUNDLE = "/var/lib/hangwatch/incidents/20260528-202637-7c1f"


def notification(ended_at: str | None = None) -> Notification:
    """A deadlock of two ranks, reported on gpu-17."""
    return Notification(hang_incident(ended_at), BUNDLE, "gpu-17")


def changed(incident: Incident, **verdict: object) -> Incident:
    """The same incident with another verdict."""
    return msgspec.structs.replace(incident, verdict=msgspec.structs.replace(incident.verdict, **verdict))


def test_alertmanager_gets_cause_remedy_and_bundle() -> None:
    """The labels are those of the rules, the annotations contain what an engineer needs; an open alert has no end."""
    (alert,) = msgspec.json.decode(alertmanager_body(notification(), None, NOW))
    assert alert["labels"] == {
        "alertname": "HangwatchDeadlock",
        "scope": "job",
        "job_id": "torchrun-7c1f",
        "kind": "deadlock",
        "cause": "tuple-labels-gather",
        "severity": "critical",
        "instance": "gpu-17",
    }
    said = alert["annotations"]
    assert said["remedy"].startswith("1. Keep labels one tensor of the same structure on every rank. 2. Drop")
    assert said["bundle"] == BUNDLE
    assert said["runbook_url"] == "docs/causes/tuple-labels-gather.md"
    assert (said["culprit_ranks"], said["waiting_ranks"]) == ("0", "0-1")
    assert alert["startsAt"] == "2026-05-28T20:26:37.600Z"
    assert "endsAt" not in alert


def test_pushed_alerts_are_named_and_routed_like_those_of_the_rules() -> None:
    """Whichever way an incident takes to Alertmanager, the same routes and inhibitions apply to it."""
    groups = yaml.safe_load(RULES.read_text())["groups"]
    rules = [r for group in groups for r in group["rules"] if r.get("labels", {}).get("scope") == "job"]
    assert len(rules) == 5
    for rule in rules:
        (kind,) = re.findall(r'kind="(\w+)"', rule["expr"])
        pushed = Notification(changed(hang_incident(), kind=kind), None, "gpu-17")
        (alert,) = msgspec.json.decode(alertmanager_body(pushed, None, NOW))
        assert (alert["labels"]["alertname"], alert["labels"]["scope"]) == (rule["alert"], "job")


@pytest.mark.parametrize(
    ("ended_at", "ends"),
    [
        ("2026-05-28T20:26:41.000Z", "2026-05-28T20:27:40+00:00"),
        ("2026-05-28T21:00:00.000Z", "2026-05-28T21:00:00+00:00"),
    ],
    ids=["at once", "later"],
)
def test_an_alert_lasts_long_enough_to_be_sent(ended_at: str, ends: str) -> None:
    """A hang that was ended within seconds stays an alert for a minute: Alertmanager waits before it tells anyone."""
    assert SHORTEST_S == 60
    (alert,) = msgspec.json.decode(alertmanager_body(notification(ended_at), notification(), NOW))
    assert alert["endsAt"] == ends


def test_another_kind_ends_the_alert_before() -> None:
    """A straggler that became a stall is one alert at a time, not two."""
    before = Notification(changed(hang_incident(), kind="straggler", severity="warning"), BUNDLE, "gpu-17")
    now, old = msgspec.json.decode(alertmanager_body(notification(), before, NOW))
    assert (now["labels"]["alertname"], old["labels"]["alertname"]) == ("HangwatchDeadlock", "HangwatchStraggler")
    assert old["endsAt"] == NOW.isoformat()


def test_a_webhook_gets_the_verdict_without_the_jobs_command() -> None:
    """Everything to act on is there; stacks and command line stay in the bundle."""
    body = msgspec.json.decode(webhook_body(notification(), None, NOW))
    assert (body["schema"], body["status"], body["kind"]) == ("hangwatch.notification/1", "firing", "deadlock")
    assert body["cause"]["remedy"][0].startswith("Keep labels one tensor")
    assert body["bundle"] == BUNDLE
    assert b"train.py" not in webhook_body(notification(), None, NOW)
    assert (
        msgspec.json.decode(webhook_body(notification(ended_at="2026-05-28T21:00:00Z"), None, NOW))["status"]
        == "resolved"
    )


@given(text=st.text(st.characters(), max_size=300), kind=st.sampled_from(sorted(RECEIVERS)))
def test_no_text_of_a_job_breaks_a_message(text: str, kind: str) -> None:
    """Broken text, escapes and the longest names make a valid message of bounded size for every receiver."""
    job = msgspec.structs.replace(hang_incident().job, id=text)
    incident = msgspec.structs.replace(changed(hang_incident(), summary=text * 50), job=job)
    body = RECEIVERS[kind].render(Notification(incident, text, text), None, NOW)
    msgspec.json.decode(body)
    assert b"\\u001b" not in body
