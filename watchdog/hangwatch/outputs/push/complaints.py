"""Logs why a receiver does not accept what it is sent."""

from __future__ import annotations

import logging

from hangwatch.outputs.push.transports import Attempt

log = logging.getLogger("hangwatch")


class Complaints:
    """Logs each new reason once, not once per attempt. ``name``: the receiver's name without secrets."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._last = ""

    def hear(self, answer: Attempt) -> None:
        """Log the reason of a failed attempt if it is new; an accepted attempt has none."""
        if answer.why and answer.why != self._last:
            log.warning("%s %s", self._name, answer.why)
        self._last = answer.why
