"""Captures of this node by its scope: what is asked for again where the ranks change meanwhile."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterable

import psutil

from hangwatch.agent.capturing.local_ranks import LocalRanks
from hangwatch.agent.capturing.scope import LocalScope
from hangwatch.model.beats import Beat
from hangwatch.model.capture import Gap, Job, RankIdentity
from support import JobRunner

SLEEPS = "import time; print('up', flush=True); time.sleep(600)"


class Ending:
    """Beats of ranks without a probe; one rank ends when the last ones are read, which is after all samples."""

    def __init__(self, pid: int) -> None:
        self.pid, self.asked = pid, 0

    def read(self) -> tuple[dict[int, Beat], tuple[Gap, ...]]:
        return {}, ()

    def last_of(self, _ranks: Iterable[RankIdentity]) -> dict[int, Beat]:
        self.asked += 1
        if self.asked == 1:
            os.kill(self.pid, signal.SIGKILL)
            psutil.Process(self.pid).wait()
        return {}


def test_a_rank_that_ends_while_it_is_captured_is_captured_as_ended(jobs: JobRunner) -> None:
    """With all others anew: what they showed may be of before. A rank that ended before is no reason."""
    started = [jobs.start([sys.executable, "-c", SLEEPS]) for _ in range(2)]
    for job in started:
        job.wait_for_output("up", 30.0)
    ranks = LocalRanks(Job("j", 2))
    ranks.add(RankIdentity(r, job.pid, psutil.Process(job.pid).create_time(), "", r) for r, job in enumerate(started))
    reader = Ending(started[0].pid)
    capture = asyncio.run(LocalScope(ranks, reader).capture())
    assert [rank.sample is not None and rank.sample.ended for rank in capture.ranks] == [True, False]
    asked = reader.asked
    asyncio.run(LocalScope(ranks, reader).capture())
    assert asked == 2 * (reader.asked - asked)
