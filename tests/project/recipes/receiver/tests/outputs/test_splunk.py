"""Splunk On-Call: an incident is opened with its severity, and resolved at its end."""

from __future__ import annotations

from datetime import datetime, timezone

import msgspec
from examples import hang_incident

from hangwatch.outputs.push.notifications import RECEIVERS, Notification, message_of

NOW = datetime(2026, 5, 28, 20, 27, tzinfo=timezone.utc)


def of(ended_at: str | None = None) -> Notification:
    """A deadlock of two ranks."""
    return Notification(hang_incident(ended_at), "/var/lib/hangwatch/incidents/1", "gpu-17")


def sent(notification: Notification) -> dict[str, object]:
    """What is posted."""
    return msgspec.json.decode(RECEIVERS["splunk"].render(notification, None, NOW), type=dict[str, object])


def test_an_open_incident_pages() -> None:
    """With its severity, the words of every other message, and since the onset."""
    body, message = sent(of()), message_of(of(), None)
    assert body["message_type"] == "CRITICAL"
    assert (body["entity_display_name"], body["state_message"]) == (message.title, message.body)
    assert body["state_start_time"] == 1_780_000_000 - 3


def test_its_end_resolves_the_same_incident() -> None:
    """By the same id."""
    over = sent(of("2026-05-28T20:40:00.000Z"))
    assert (over["message_type"], over["entity_id"]) == ("RECOVERY", sent(of())["entity_id"])
