"""The patience of one job, as it is now."""

from __future__ import annotations

from dataclasses import dataclass, field

from hangwatch.agent.capturing.trail import keep_recent
from hangwatch.analysis.patience import Cadence, Patience, fixed_patience
from hangwatch.model.capture import Capture


@dataclass
class JobPatience:
    """The patience of one job.

    ``stall_after_s``: the user's, None to learn it. ``cadence``: what the job's ordinary waits have taught.
    """

    stall_after_s: float | None = None
    cadence: Cadence = field(default_factory=Cadence)

    @property
    def current(self) -> Patience:
        """The patience as it is now."""
        if self.stall_after_s is not None:
            return fixed_patience(self.stall_after_s)
        return self.cadence.patience()

    def trim(self, capture: Capture) -> Capture:
        """Return the capture without samples that are too old to show motion now."""
        return keep_recent(capture, self.current.motion_window_s)
