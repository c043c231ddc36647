"""A job that is started again begins anew for its watch, also where the kernel gave a rank the pid that it had before."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from hangwatch.agent.incidents.record import announce_to_nobody
from hangwatch.agent.job.watch import watch_job
from hangwatch.config.settings import ACTIONS, Action
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.capture import Job, RankIdentity
from hangwatch.model.incident import Incident, Verdict
from hangwatch.sources.discovery.found_jobs import FoundJob
from recorded import load

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


class Acting:
    """What is done about hangs: ``action``, whatever they are."""

    def __init__(self, action: Action | None) -> None:
        self.action = action

    def plan(self, verdict: Verdict) -> str:
        del verdict
        return ""

    def taken_for(self, incident: Incident) -> Action | None:
        del incident
        return self.action


@pytest.mark.asyncio
@pytest.mark.parametrize("acted", [True, False], ids=["ended by hangwatch", "ended by itself"])
@pytest.mark.parametrize("started_again", [False, True], ids=["the ranks that hung", "those after them"])
async def test_how_a_job_ends_that_hangwatch_has_ended_is_no_failure(
    tmp_path: Path, acted: bool, started_again: bool
) -> None:
    """Programs that handle SIGTERM may go on past the hang, and leave with any status."""
    acting = Acting(ACTIONS["stop"] if acted else None)
    watch = watch_job(JOB, tmp_path, announce_to_nobody, acting=acting)
    hung = load("rank_conditional")
    await watch.incidents.report(diagnose(hung), detected_ns=hung.at_ns)
    await watch.incidents.close(hung.at_ns)
    judged = list[tuple[RankIdentity, ...]]()

    async def judge(job: Job, ranks: Sequence[RankIdentity], at_ns: int) -> None:
        del job, at_ns
        judged.append(tuple(ranks))

    watch.failures.report = judge  # type: ignore[method-assign]
    began_s = hung.at_ns / 1e9 + (60.0 if started_again else -60.0)
    watch.update_ranks(_found((100, began_s), (101, began_s)), 1.0)
    await watch.end(hung.at_ns)
    assert bool(judged) == (started_again or not acted)
