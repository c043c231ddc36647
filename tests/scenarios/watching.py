"""``hangwatch run`` with an agent that judges nothing, and writes down all that another one could see of the job.

It captures in every tick in which anything may be suspected: an operation has been in flight for ``SUSPECT_FLOOR_S``, nothing
has moved for ``QUIET_S``, or what else ``Suspector`` knows. An agent is never sooner than that. What it waits for beyond, by its
patience, by the job's ordinary waits and by the captures that it has to spare, only takes ticks away. So whatever the patience,
each capture that a replay asks for was begun at the very tick in which it asks. A tick comes each second, or sooner.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from corpus.controls import Tick
from hangwatch.agent.job import watch
from hangwatch.agent.job.diagnose import judge, with_order
from hangwatch.agent.job.suspicion import Suspector
from hangwatch.agent.job.watch import LOST_GRACE_S, JobWatch
from hangwatch.analysis.patience import Cadence, fixed_patience
from hangwatch.cli.main import main as hangwatch
from hangwatch.model.beats import Beat
from hangwatch.model.capture import Capture
from hangwatch.model.serving import EngineState
from hangwatch.sources.discovery.found_jobs import FoundJob

#: The shortest patience that is replayed; by it engines are suspected, and orders of transfers asked for.
SHORTEST_S = 8.0


def _eager() -> Suspector:
    """A suspector that learns nothing, and never runs out of captures as it is told of none."""
    return Suspector(cadence=Cadence(deque(maxlen=0)), quiet=Cadence(deque(maxlen=0)))


@dataclass
class RecordingWatch(JobWatch):
    """Writes each tick of its job to the end of the file ``into``, a line of JSON each."""

    into: Path = Path()
    eager: Suspector = field(default_factory=_eager)
    _anew: bool = False

    def update_ranks(self, found: FoundJob | None, now_s: float) -> None:
        """Note whether the job was started anew."""
        before = self.suspector
        super().update_ranks(found, now_s)
        if self.suspector is not before:
            self.eager, self._anew = _eager(), True

    async def tick(self, beats: Mapping[int, Beat], now_s: float) -> float | None:
        """Record what there is to see."""
        if self.over:
            return None
        at_ns, ranks = self.clock.time_ns(), self.ranks
        progress, unprobed = self._observe(beats, at_ns)
        engine = self._suspect_engine(now_s)
        lost, starved_s = ranks.is_lost(now_s, LOST_GRACE_S), engine.still_s if engine is not None else None
        suspicion = self.eager.update(progress, unprobed=unprobed, lost=lost, now_s=now_s, starved_s=starved_s)
        tick = Tick(
            at_ns=at_ns,
            at_s=now_s,
            job=ranks.job,
            ranks=tuple(ranks.in_order),
            beats={
                i.pid: msgspec.structs.replace(beats[i.pid], telemetry=None) for i in ranks.living if i.pid in beats
            },
            lost=ranks.lost_since_s,
            anew=self._anew,
            capture=await self._record() if suspicion is not None else None,
            engine=engine,
            engine_patience_s=self._learnt_s(engine),
        )
        self._anew = False
        with self.into.open("ab") as file:
            file.write(msgspec.json.encode(tick) + b"\n")
        return self.eager.soonest_s()

    async def _record(self) -> Capture:
        """Capture by itself, with the call sites that a verdict may ask for before it is reported."""
        self.local.forget_samples()
        capture, patience = await self.scope.capture(), fixed_patience(SHORTEST_S)
        judged = await judge(capture, patience)
        ordered = await with_order(self.scope, judged, patience)
        return capture if ordered is judged else ordered.case.capture

    def _learnt_s(self, engine: EngineState | None) -> float:
        found = (one for one in self.engines if engine is not None and one.address == engine.address)
        return max((one.clock.patience_s(None) for one in found), default=0.0)


def main(into: str) -> None:
    """Be ``hangwatch``, and write what is seen into a file."""
    watch.JobWatch = functools.partial(RecordingWatch, into=Path(into))
    hangwatch()
