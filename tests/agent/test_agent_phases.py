"""A job whose evaluations make the other rank wait: the patience with one is learned from those before. On a clock of our own."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import msgspec
import pytest

from hangwatch.agent.job.watch import JobWatch, watch_job
from hangwatch.analysis.patience import STALL_FACTOR, STALL_FLOOR_S
from hangwatch.config.settings import Settings
from hangwatch.model.beats import Beat, BeatGroup
from hangwatch.model.capture import Capture
from hangwatch.model.collectives import Group
from hangwatch.model.incident import Incident
from hangwatch.model.stacks import Frame
from hangwatch.model.transforms.clocks import shift
from hangwatch.sources.discovery.found_jobs import FoundJob
from worlds import NOW_NS, collective_frames, operation, rank, world

GROUP = Group("0", (0, 1), "default_pg")
MODULE = Frame("<module>", "/srv/train/train.py", 90)
#: Where rank 0 is while rank 1 waits: inside an evaluation, further in each time, and in a read that belongs to none.
EVALUATING = tuple(
    (Frame("read", "/srv/train/data.py", line), Frame("evaluate", "/srv/train/train.py", 30), MODULE) for line in (5, 7)
)
LOADING = (Frame("read", "/srv/train/data.py", 5), Frame("train", "/srv/train/train.py", 8), MODULE)


class Job:
    """Two ranks, of which one may make the other wait, and the watch over them. It is the watch's clock as well."""

    def __init__(self, state_dir: Path, stall_after_s: float = 0.0) -> None:
        self.now_s, self.since_s, self.seq = NOW_NS / 1e9, 0.0, 1
        self.stacks: Iterator[tuple[Frame, ...]] = iter(())
        self.told: list[Incident] = []
        settings = Settings(stall_after_s=stall_after_s)
        self.watch: JobWatch = watch_job(world().job, state_dir, self.announce, settings=settings, clock=self)
        self.watch.local.capture = self.capture  # type: ignore[method-assign]
        ranks = tuple(one.identity for one in self.picture((MODULE,)).ranks)
        self.watch.update_ranks(FoundJob(world().job, ranks), self.now_s)

    def monotonic(self) -> float:
        return self.now_s

    def time_ns(self) -> int:
        return int(self.now_s * 1e9)

    async def announce(self, incident: Incident, _: Path | None) -> None:
        self.told.append(incident)

    async def capture(self) -> Capture:
        return self.picture(next(self.stacks))

    def picture(self, frames: tuple[Frame, ...]) -> Capture:
        """Rank 0 there, and not moving; rank 1 waits in the operation that it has not called."""
        ago_ns = int((self.now_s - self.since_s) * 1e9)
        awaited = operation(self.seq, GROUP, self.seq, done=False)
        awaited = msgspec.structs.replace(awaited, created_ns=NOW_NS - ago_ns)
        before = operation(self.seq - 1, GROUP, self.seq - 1)
        before = msgspec.structs.replace(before, created_ns=NOW_NS - ago_ns - 10**9)
        late = rank(0, (before,), frames, channel="pipe_read")
        return shift(world(late, rank(1, (before, awaited), collective_frames("all_reduce"))), self.time_ns() - NOW_NS)

    async def tick(self, in_flight: dict[int, float]) -> None:
        """A second: which ranks have an operation in flight, and for how long."""
        beats = {}
        for one in self.watch.ranks.known.values():
            flying = one.rank in in_flight
            numbers = (self.seq if flying else self.seq - 1, -1, self.seq - 1)
            group = BeatGroup("0", (0, 1), one.rank, "default_pg", "gloo", *numbers, in_flight.get(one.rank, 0.0))
            beats[one.pid] = Beat(1, one.pid, 1, 1, self.time_ns(), one.rank, 2, one.rank, True, groups=(group,))
        await self.watch.tick(beats, self.now_s)
        await self.watch.incidents.completed()
        self.now_s += 1.0

    async def train(self, seconds: int) -> None:
        """Quick steps: both ranks are in a collective whenever they are looked at, and always in another one."""
        for _ in range(seconds):
            self.seq += 1
            await self.tick({0: 0.1, 1: 0.1})

    async def wait(self, seconds: float, *stacks: tuple[Frame, ...]) -> list[float]:
        """Rank 1 waits for rank 0, which is at these places in turn; return when hangs were reported."""
        self.seq += 1
        self.since_s, self.stacks = self.now_s, (stacks[i % len(stacks)] for i in count())
        reported = []
        while (waited_s := self.now_s - self.since_s) < seconds:
            known = len(self.told)
            await self.tick({1: waited_s})
            reported += [waited_s] * (len(self.told) > known)
        return reported


@pytest.mark.asyncio
async def test_what_has_ended_by_itself_is_given_time_at_the_same_place(tmp_path: Path) -> None:
    """The first evaluation is reported, the next ones are not, long after; one that never ends is, by four times as much."""
    job = Job(tmp_path)
    assert len(await job.wait(60.0, *EVALUATING)) == 1
    for _ in range(2):
        await job.train(600)
        assert job.watch.patience.current.stall_s == STALL_FLOOR_S
        assert await job.wait(60.0, EVALUATING[0]) == []
        after_s, why = job.watch.state.patience.stall_s, job.watch.state.patience.why
        assert 2 * 60.0 < after_s <= STALL_FACTOR * 60.0
        assert why.endswith("s that this wait has taken before")
    await job.train(600)
    (late_s,) = await job.wait(300.0, EVALUATING[1])
    assert after_s <= late_s <= STALL_FACTOR * 60.0 + 5.0


@pytest.mark.asyncio
async def test_elsewhere_nothing_is_reported_later(tmp_path: Path) -> None:
    """Neither a hang of the same rank in another call, nor any once the user has set the stall timeout."""
    job = Job(tmp_path)
    await job.wait(60.0, *EVALUATING)
    await job.train(600)
    (late_s,) = await job.wait(50.0, LOADING)
    assert late_s <= STALL_FLOOR_S + 2.0
    job = Job(tmp_path, stall_after_s=10.0)
    for _ in range(2):
        (late_s,) = await job.wait(60.0, *EVALUATING)
        assert late_s <= 12.0
        await job.train(600)


@pytest.mark.asyncio
async def test_a_hang_that_may_have_been_ended_teaches_nothing(tmp_path: Path) -> None:
    """Once hangwatch may act, what ends the wait may be the action; and a job that was restarted has not ended its wait."""
    job = Job(tmp_path)
    assert len(await job.wait(200.0, EVALUATING[0])) == 1
    assert job.told[-1].verdict.kind == "stall"
    await job.train(600)
    (late_s,) = await job.wait(50.0, EVALUATING[0])
    assert late_s <= STALL_FLOOR_S + 2.0
    job = Job(tmp_path)
    await job.wait(60.0, *EVALUATING)
    again = tuple(
        msgspec.structs.replace(one, pid=one.pid + 5, start_time=one.start_time + 60.0)
        for one in job.watch.ranks.known.values()
    )
    job.watch.update_ranks(FoundJob(world().job, again), job.now_s)
    await job.train(600)
    (late_s,) = await job.wait(50.0, *EVALUATING)
    assert late_s <= STALL_FLOOR_S + 2.0
