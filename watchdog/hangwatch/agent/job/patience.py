"""The patience of one job, as it is now."""

from __future__ import annotations

from dataclasses import dataclass, field

from hangwatch.agent.capturing.trail import keep_recent
from hangwatch.agent.job.phases import Phases
from hangwatch.analysis.case import Case
from hangwatch.analysis.patience import Cadence, Patience, fixed_patience
from hangwatch.model.capture import Capture


@dataclass
class JobPatience:
    """The patience of one job.

    ``stall_after_s``: the user's, None to learn it. ``cadence``: what the job's last waits have taught; ``phases``: what its
    long waits have, at their places in the program.
    """

    stall_after_s: float | None = None
    cadence: Cadence = field(default_factory=Cadence)
    phases: Phases = field(default_factory=Phases)
    _phase_s: float = 0.0

    @property
    def current(self) -> Patience:
        """The patience as it is now, for the phase that the last capture has shown."""
        if self.stall_after_s is not None:
            return fixed_patience(self.stall_after_s)
        return self.cadence.patience(self._phase_s)

    def see(self, case: Case, waited_s: float | None, *, acted: bool) -> None:
        """Take in a capture. ``waited_s``: as ``Diagnosis`` has it. ``acted``: what it shows has been, or may be, acted on."""
        self._phase_s = self.phases.see(case, waited_s)
        if acted:
            self.phases.drop()

    def end_wait(self, *, by_itself: bool = True) -> None:
        """Note that the wait of the last capture is over. It teaches something only if it has ended ``by_itself``."""
        if by_itself:
            self.phases.end()
        else:
            self.phases.drop()
        self._phase_s = 0.0

    def trim(self, capture: Capture) -> Capture:
        """Return the capture without samples that are too old to show motion now."""
        return keep_recent(capture, self.current.motion_window_s)
