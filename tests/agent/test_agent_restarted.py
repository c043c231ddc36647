"""A job that is started anew on this node: since when its former processes have been gone, as is reported to the other nodes."""

from __future__ import annotations

import time

import pytest

from hangwatch.agent.capturing.local_ranks import LocalRanks
from hangwatch.model.capture import Job, RankIdentity
from hangwatch.sources.discovery.found_jobs import FoundJob

JOB = Job("job", 2)


def found(pid: int, age_s: float) -> FoundJob:
    """The job with its one rank on this node, in a process so old."""
    return FoundJob(JOB, (RankIdentity(0, pid, time.time() - age_s, "n0"),))


@pytest.mark.parametrize(("gone_seen_s", "ended_s"), [(101.0, 101.0), (None, 104.0)])
def test_former_processes_ended_before_the_new_ones_began(gone_seen_s: float | None, ended_s: float) -> None:
    """Also where an agent that was busy sees it seconds late: others' new processes are older than that by then."""
    ranks = LocalRanks(JOB)
    ranks.update(found(100, 50.0), 90.0)
    if gone_seen_s is not None:
        ranks.update(None, gone_seen_s)
    ranks.update(found(200, 6.0), 110.0)
    assert ranks.replaced_s == pytest.approx(ended_s, abs=1.0)
    assert ranks.known[0].pid == 200
