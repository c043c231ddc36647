"""Demand against progress: how long there have been requests, and how long without progress. Pure.

A scheduler's clock runs while it has requests, and restarts with each mark of progress that changes. An engine
without requests has no clock, however long it idles. Patience is learnt from the engine itself, from the waits that
ended by themselves, as a job's patience is (``analysis.patience``).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hangwatch.analysis.patience import STALL_CEILING_S, STALL_FACTOR, Cadence
from hangwatch.model.serving import EnginePart, EngineReading

#: No engine is said to hang sooner, unless the user says so: a prompt of a hundred thousand tokens may be read in one step.
ENGINE_FLOOR_S = 60.0


@dataclass
class _Clock:
    """One scheduler.

    Since when it has had requests, and since when no mark of progress has changed while it had them (None: no
    requests).
    """

    part: EnginePart
    demand_since_s: float | None = None
    still_since_s: float | None = None


@dataclass(frozen=True)
class Demand:
    """The scheduler stuck for longest: its requests, and its times in seconds (``model.serving.EngineState``)."""

    part: EnginePart
    demand_s: float = 0.0
    still_s: float = 0.0


@dataclass
class DemandClock:
    """The clocks of one engine's schedulers, on the reader's monotonic clock."""

    cadence: Cadence = field(default_factory=Cadence)
    _clocks: dict[str, _Clock] = field(default_factory=dict)

    def update(self, reading: EngineReading, now_s: float) -> None:
        """Take in what the engine answered at ``now_s``; forget schedulers that it no longer has."""
        clocks = {}
        for name, part in reading.parts.items():
            clock = self._clocks.get(name, _Clock(part))
            if part.marks != clock.part.marks and clock.still_since_s is not None:
                self.cadence.learn(now_s - clock.still_since_s)
                clock.still_since_s = now_s
            if part.running + part.waiting == 0:
                clock.demand_since_s = clock.still_since_s = None
            elif clock.demand_since_s is None:
                clock.demand_since_s = clock.still_since_s = now_s
            clock.part = part
            clocks[name] = clock
        self._clocks = clocks

    def restart(self) -> None:
        """Forget all but the learnt patience, because another process answers now."""
        self._clocks = {}

    def worst(self, now_s: float) -> Demand | None:
        """Return the scheduler without progress for longest; None before the first answer."""
        found = [
            Demand(c.part, _since(c.demand_since_s, now_s), _since(c.still_since_s, now_s))
            for c in self._clocks.values()
        ]
        return max(found, key=lambda d: (d.still_s, d.part.waiting + d.part.running), default=None)

    def patience_s(self, stall_after_s: float | None) -> float:
        """Return how long an engine may make no progress, in seconds.

        ``stall_after_s``: the user's setting; None: four times the longest wait that ended by itself.
        """
        if stall_after_s is not None:
            return stall_after_s
        return min(max(ENGINE_FLOOR_S, STALL_FACTOR * self.cadence.longest_s), STALL_CEILING_S)


def _since(at_s: float | None, now_s: float) -> float:
    return 0.0 if at_s is None else max(0.0, now_s - at_s)
