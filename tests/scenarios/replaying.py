"""Replays recorded controls: the agent's own suspicion, patience and verdicts, on a clock of the recording's."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from corpus.controls import Recording, Tick
from hangwatch.agent.capturing.local_ranks import LocalRanks
from hangwatch.agent.capturing.scope import LocalScope
from hangwatch.agent.job.watch import watch_job
from hangwatch.config.settings import Settings
from hangwatch.model.capture import Capture, RankCapture, RankIdentity
from hangwatch.model.incident import HANG_KINDS, Incident, Verdict
from hangwatch.model.serving import EngineState

#: The patiences that every recording is replayed with, in seconds, by what people read; 0 is the default: it is learnt.
DEFAULT = "default"
PATIENCES = {DEFAULT: 0.0, "8 s": 8.0, "30 s": 30.0}


@dataclass
class Moment:
    """Where a replay is: the ``clock`` of the watch, and all that it can see. ``stall_after_s``: as the settings have it."""

    tick: Tick
    stall_after_s: float
    captured: Tick | None = None
    now_ns: int = 0

    def reach(self, tick: Tick) -> None:
        """Go on to the next tick."""
        self.tick, self.now_ns = tick, tick.at_ns
        self.captured = tick if tick.capture is not None else self.captured

    def monotonic(self) -> float:
        """Seconds of the clock by which the ticks are."""
        return self.tick.at_s + (self.now_ns - self.tick.at_ns) / 1e9

    def time_ns(self) -> int:
        """Nanoseconds since the epoch."""
        return self.now_ns

    def state(self, *_: object) -> EngineState | None:
        """The serving engine that was suspected, by the patience of the replay."""
        patience_s = self.stall_after_s or self.tick.engine_patience_s
        engine = self.tick.engine
        return msgspec.structs.replace(engine, patience_s=patience_s) if engine is not None else None

    def beside(self, *_: object) -> Sequence[RankIdentity]:
        """No processes to capture: they are in the captures."""
        return ()


@dataclass
class RecordedRanks(LocalRanks):
    """The ranks as they were at the present tick."""

    moment: Moment = field(kw_only=True)

    def update(self, *_: object) -> bool:
        """Take them from the recording."""
        tick = self.moment.tick
        self.job, self.known, self.lost_since_s = tick.job, {one.rank: one for one in tick.ranks}, dict(tick.lost)
        return tick.anew


@dataclass
class RecordedScope(LocalScope):
    """Gives recorded captures, and keeps samples from one to the next as the agent does."""

    moment: Moment = field(kw_only=True)

    async def capture(self) -> Capture:
        """Return the last capture that was begun at the present moment or before, and let the time pass that it took.

        Every tick at which something may be suspected has its own (``watching``), so none is older than the tick.
        """
        found = self.moment.captured
        assert found is not None, "a capture is asked for before anything was suspected"
        assert found.capture is not None
        self.moment.now_ns = max(self.moment.now_ns, found.capture.at_ns)
        ranks = tuple(self._with_earlier(rank, found.at_ns) for rank in found.capture.ranks)
        return msgspec.structs.replace(found.capture, ranks=ranks)

    def _with_earlier(self, rank: RankCapture, began_ns: int) -> RankCapture:
        pid, trail = rank.identity.pid, self._trail
        last_ns = max((s.at_ns for s in (*trail.processes.get(pid, ()), *trail.stacks.get(pid, ()))), default=0)
        for sample in rank.processes:
            trail.add(pid, sample if sample.at_ns > last_ns else None, None)
        for stack in rank.stacks:
            trail.add(pid, None, stack if stack.at_ns > last_ns else None)
        processes, stacks = tuple(trail.processes.get(pid, ())), trail.stacks_since(pid, began_ns)
        return msgspec.structs.replace(rank, processes=processes, stacks=stacks)

    async def call_sites(self, capture: Capture, *_: object) -> Capture:
        """Return the capture as it is: those that may change a verdict were asked for when it was recorded."""
        return capture

    async def hardware(self, capture: Capture, *_: object) -> Capture:
        """Return the capture as it is: what this machine says now is not what that one said then."""
        return capture

    async def begin_hardware(self) -> None:
        """Read nothing."""


def replay(recording: Recording, stall_after_s: float) -> Verdict | None:
    """Return the first hang that an agent with this patience (0: it is learnt) would have reported, None for none."""
    jobs: dict[str, list[Tick]] = {}
    for tick in recording.ticks:
        jobs.setdefault(tick.job.id, []).append(tick)
    return next((hang for ticks in jobs.values() if (hang := asyncio.run(_replay(ticks, stall_after_s)))), None)


async def _replay(ticks: Sequence[Tick], stall_after_s: float) -> Verdict | None:
    hangs: list[Verdict] = []

    async def announce(incident: Incident, path: Path | None) -> None:
        if incident.verdict.kind in HANG_KINDS:
            hangs.append(incident.verdict)

    moment = Moment(ticks[0], stall_after_s)
    with tempfile.TemporaryDirectory() as folder:
        watch = watch_job(
            ticks[0].job, Path(folder), announce, settings=Settings(stall_after_s=stall_after_s), clock=moment
        )
        watch.engines = (moment,)
        watch.ranks = RecordedRanks(ticks[0].job, moment=moment)
        watch.local = watch.scope = watch.incidents.scope = RecordedScope(watch.ranks, moment=moment)
        for tick in ticks:
            moment.reach(tick)
            watch.update_ranks(None, tick.at_s)
            await watch.look_for_hang(tick.beats, tick.at_s)
            if hangs:
                break
        await watch.incidents.completed()
    return hangs[0] if hangs else None
