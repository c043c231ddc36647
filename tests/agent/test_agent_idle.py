"""A job that sleeps: nothing moves for ten minutes, and that is no hang. On a clock of the test's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangwatch.agent.job import watch as tick
from hangwatch.agent.job.watch import watch_job
from hangwatch.config.settings import Settings
from hangwatch.model.beats import Beat, BeatGroup
from hangwatch.model.capture import Capture, Job, RankCapture, RankIdentity
from hangwatch.model.collectives import FlightRecord, Group, GroupProgress, Operation
from hangwatch.model.incident import Incident
from hangwatch.model.processes import ProcessSample
from hangwatch.model.stacks import Frame, StackSample, ThreadStack
from hangwatch.sources.discovery.found_jobs import FoundJob

SECOND_NS = 1_000_000_000
BEGAN_S = 1_000_000.0
REST_S = 600
RANKS = (0, 1, 2)
GROUP = Group("0", RANKS, "default_pg")
LAST_SEQ = 40
JOB = Job("job", len(RANKS))


class Clock:
    """Stands in for the module ``time``: wall clock and monotonic clock are the same, and move when told to."""

    def __init__(self) -> None:
        self.now_s = BEGAN_S

    def monotonic(self) -> float:
        return self.now_s

    def time_ns(self) -> int:
        return int(self.now_s * SECOND_NS)


def resting(rank: int, now_ns: int) -> RankCapture:
    """A rank whose operations have all completed and which sleeps in its own loop."""
    operation = Operation(LAST_SEQ, GROUP, LAST_SEQ, "all_reduce", True, int(BEGAN_S * SECOND_NS))
    progress = (GroupProgress(GROUP, LAST_SEQ, -1, LAST_SEQ),)
    frames = (Frame("wait_for_cheap_power", "/srv/train/train.py", 12), Frame("<module>", "/srv/train/train.py", 90))
    moments = [now_ns - SECOND_NS, now_ns - SECOND_NS // 2, now_ns]
    return RankCapture(
        identity=RankIdentity(rank, 100 + rank, 1.0, "node-0", rank),
        processes=tuple(ProcessSample(at, 100 + rank, "S", 9.0, switches=7) for at in moments),
        stacks=tuple(
            StackSample(at, (ThreadStack(100 + rank, "MainThread", True, False, False, frames),)) for at in moments
        ),
        flight=FlightRecord(now_ns, "json", "2.10", (operation,), progress),
        progress=progress,
        beat_age_s=0.2,
    )


async def capture_idle() -> Capture:
    """All ranks are always found at rest."""
    now_ns = tick.time.time_ns()
    return Capture(JOB, now_ns, tuple(resting(rank, now_ns) for rank in RANKS))


@pytest.mark.asyncio
@pytest.mark.parametrize("stall_after_s", [6.0, 0.0])
async def test_ten_minutes_of_rest_are_no_hang(
    stall_after_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is captured, ever more rarely, and nobody is alarmed."""
    clock = Clock()
    monkeypatch.setattr(tick, "time", clock)
    reported: list[Incident] = []

    async def announce(incident: Incident, _: Path | None) -> None:
        reported.append(incident)

    watch = watch_job(JOB, tmp_path, announce, settings=Settings(stall_after_s=stall_after_s))
    watch.local.capture = capture_idle  # type: ignore[method-assign]
    watch.update_ranks(FoundJob(JOB, tuple(resting(rank, 0).identity for rank in RANKS)), clock.now_s)
    captures = []
    while clock.now_s < BEGAN_S + REST_S:
        group = BeatGroup("0", RANKS, 0, "default_pg", "gloo", LAST_SEQ, -1, LAST_SEQ, clock.now_s - BEGAN_S)
        beats = {
            100 + rank: Beat(1, 100 + rank, 1, 1, clock.time_ns(), rank, len(RANKS), rank, True, groups=(group,))
            for rank in RANKS
        }
        await watch.tick(beats, clock.now_s)
        captures.append(watch.captures)
        clock.now_s += 1.0
    assert reported == []
    assert watch.captures >= 2
    first_minute, last_minute = captures[60] - captures[0], captures[-1] - captures[-61]
    assert last_minute <= first_minute
