"""Demand against progress: for how long requests have been there, and for how long nothing has come out. Pure.

A scheduler's clock runs while it has requests, and begins anew with each mark that changes. An engine without requests has no
clock, however long it idles. How long nothing may come out is learnt from the engine itself: from the waits that ended by
themselves, as a job's patience is (``analysis.patience``).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hangwatch.analysis.patience import STALL_CEILING_S, STALL_FACTOR, Cadence
from hangwatch.model.serving import EnginePart, EngineReading

#: No engine is said to hang sooner, unless the user says so: a prompt of a hundred thousand tokens may be read in one step.
ENGINE_FLOOR_S = 60.0


@dataclass
class _Clock:
    """One scheduler: since when it has had requests, and since when no mark has changed while it had them (None: it has none)."""

    part: EnginePart
    demand_since_s: float | None = None
    still_since_s: float | None = None


@dataclass(frozen=True)
class Demand:
    """The scheduler that has been stuck for longest: its requests, and its times in seconds (``model.serving.EngineState``)."""

    part: EnginePart
    demand_s: float = 0.0
    still_s: float = 0.0


@dataclass
class DemandClock:
    """The clocks of one engine's schedulers, on the monotonic clock of whoever reads."""

    cadence: Cadence = field(default_factory=Cadence)
    _clocks: dict[str, _Clock] = field(default_factory=dict)

    def update(self, reading: EngineReading, now_s: float) -> None:
        """Take in what the engine answered at ``now_s``. Schedulers that it no longer has are forgotten."""
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
        """Another process answers now: of the one before nothing counts but what was learnt."""
        self._clocks = {}

    def worst(self, now_s: float) -> Demand | None:
        """The scheduler from which nothing has come for longest; None before the first answer."""
        found = [
            Demand(c.part, _since(c.demand_since_s, now_s), _since(c.still_since_s, now_s))
            for c in self._clocks.values()
        ]
        return max(found, key=lambda d: (d.still_s, d.part.waiting + d.part.running), default=None)

    def patience_s(self, stall_after_s: float | None) -> float:
        """How long nothing may come out: as the user has set it, else four times the longest wait that ended by itself."""
        if stall_after_s is not None:
            return stall_after_s
        return min(max(ENGINE_FLOOR_S, STALL_FACTOR * self.cadence.longest_s), STALL_CEILING_S)


def _since(at_s: float | None, now_s: float) -> float:
    return 0.0 if at_s is None else max(0.0, now_s - at_s)
