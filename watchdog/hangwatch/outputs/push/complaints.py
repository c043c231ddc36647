"""What is logged of a receiver that does not take what it is sent."""

from __future__ import annotations

import logging

from hangwatch.outputs.push.transports import Attempt

log = logging.getLogger("hangwatch")


class Complaints:
    """Logs each new reason once, not once per attempt. ``name``: what may be shown of the receiver."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._last = ""

    def hear(self, answer: Attempt) -> None:
        """An attempt's answer; one that was accepted has no reason."""
        if answer.why and answer.why != self._last:
            log.warning("%s %s", self._name, answer.why)
        self._last = answer.why
