"""When a hang is acted on, and what calls that off, in words: what every output says of it. Pure."""

from __future__ import annotations

from hangwatch.model.incident import Incident


def describe_second_look(incident: Incident) -> str:
    """Return one sentence; empty where nothing is to be done to the job."""
    look = incident.second_look
    if look is None or not look.action:
        return ""
    if look.passed:
        return f"Confirmed by every capture until {look.until[11:19]} UTC. What calls it off: {look.unless}."
    if incident.ended_at is not None:
        return "It ended before hangwatch acted."
    if not look.until:
        again = " It goes on looking." if look.unless else ""
        return f"hangwatch does not {look.action}: {look.called_off}.{again}"
    again = f" ({look.called_off})" if look.called_off else ""
    return f"hangwatch will {look.action} at {look.until[11:19]} UTC, unless {look.unless}{again}."
