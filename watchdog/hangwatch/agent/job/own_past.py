"""Compares a job with its own past: when a rank is watched, to know where its time goes now, and where it went before.

May import the capturing room and ``slow``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hangwatch.agent.capturing.arrivals import LONGEST_S, SHORTEST_S
from hangwatch.agent.capturing.hardware import OF_THE_LATE
from hangwatch.agent.capturing.scope import LocalScope
from hangwatch.model.capture import Capture, RankCapture
from hangwatch.model.devices import Gpu, NodeFacts
from hangwatch.model.slowness import SlowJob
from hangwatch.slow.past import Past, Pasts, StepTimes, find_step_times
from hangwatch.slow.timeline import Streams

#: A rank is watched for so many of its steps.
_STEPS = 8
#: A rank that could not be watched is left alone for so long.
_PAUSE_NS = 60_000_000_000


@dataclass
class OwnPast:
    """The steps of one rank of this node, always the same one; all take part in the same operations."""

    local: LocalScope
    _pasts: Pasts = field(default_factory=Pasts)
    _rank: int = -1
    _times: StepTimes | None = None
    _past: Past = field(default_factory=Past)
    _reported: Past = field(default_factory=Past)
    _next_ns: int = 0

    def look(self, own: Streams, at_ns: int) -> None:
        """Take in the newest calls of this node's ranks."""
        self._rank = min(own)
        self._times = find_step_times(own[self._rank])
        if self._times is not None:
            self._past = self._pasts.look(self._times, at_ns)

    def resume(self, found: SlowJob) -> None:
        """Go on with what an agent before this one has reported."""
        self._reported = self._pasts.resume(found)

    @property
    def holds(self) -> bool:
        """True if what was found last is still so, as far as such steps have come since."""
        return self._reported.slow_since_ns is not None

    async def explain(self, at_ns: int) -> SlowJob | None:
        """Return that the steps take longer than before, and why; None if they do not, or if nothing shows why.

        The rank is watched for that, and once before.
        """
        past, times = self._past, self._times
        wanted = past.settled if past.profile is None else past.is_slow_for_long(at_ns)
        if times is None or not wanted or at_ns < self._next_ns:
            return None
        seconds = max(SHORTEST_S, _STEPS * times.usual_ns / 1e9)
        profiles = await self.local.arrivals.profile([self._rank], seconds) if seconds <= LONGEST_S else ()
        if not profiles:
            self._next_ns = at_ns + _PAUSE_NS
            return None
        found = past.compare(times, profiles[0], await self._gpus(at_ns) if times.on_device else ())
        if found is not None:
            self._reported = past
        return found

    async def _gpus(self, at_ns: int) -> tuple[Gpu, ...]:
        """Return the GPU of the rank; empty if it is not known."""
        alone = Capture(self.local.ranks.job, at_ns, (RankCapture(self.local.ranks.known[self._rank]),))
        nodes = (await self.local.hardware(alone, OF_THE_LATE)).nodes
        return gpus_of([self._rank], nodes)


def gpus_of(ranks: Sequence[int], nodes: Sequence[NodeFacts]) -> tuple[Gpu, ...]:
    """Return the GPU of each of these ranks; empty if one is not known."""
    gpus = {rank: gpu for node in nodes for gpu in node.gpus for rank in gpu.ranks}
    return tuple([gpus[rank] for rank in ranks]) if all(rank in gpus for rank in ranks) else ()
