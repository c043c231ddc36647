"""A job that is started again begins anew for its watch, also where the kernel gave a rank the pid that it had before."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangwatch.agent.incidents.record import announce_to_nobody
from hangwatch.agent.job.watch import watch_job
from hangwatch.model.capture import Job, RankIdentity
from hangwatch.sources.discovery.found_jobs import FoundJob

JOB = Job("job", 2)


def _found(*ranks: tuple[int, float]) -> FoundJob:
    return FoundJob(JOB, tuple(RankIdentity(rank, pid, start, "node-0") for rank, (pid, start) in enumerate(ranks)))


@pytest.mark.parametrize(
    ("rank1", "anew"),
    [((101, 1000.0), False), ((101, 1001.0), False), ((101, 1060.0), True), ((102, 1060.0), True)],
    ids=["the same", "a clock that was set", "its pid again", "another pid"],
)
def test_another_process_is_another_incarnation(tmp_path: Path, rank1: tuple[int, float], anew: bool) -> None:
    """Nothing of the process before speaks for the one that has its rank and perhaps its pid now."""
    watch = watch_job(JOB, tmp_path, announce_to_nobody)
    watch.update_ranks(_found((100, 1000.0), (101, 1000.0)), 1.0)
    before = watch.suspector
    watch.update_ranks(_found((100, 1000.0), rank1), 61.0)
    assert (watch.suspector is not before) == anew
    assert (watch.ranks.known[1].pid, watch.ranks.known[1].start_time) == rank1
    assert watch.ranks.lost_since_s == {}
