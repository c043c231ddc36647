"""Captures of one process that follow each other, and what they may not carry over."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import psutil
import pytest

from hangwatch.agent.capturing.capture import JobCapture
from hangwatch.agent.capturing.trail import Trail
from hangwatch.model.beats import Beat, BeatGroup
from hangwatch.model.capture import Gap, Job, RankIdentity
from support import JobRunner, wait_for

_PROGRAM = "import os, sys; print('ready', flush=True); sys.stdin.readline(); os.execvp('sleep', ['sleep', '600'])"


def test_an_old_stack_does_not_pass_for_the_current_one(jobs: JobRunner) -> None:
    """A process whose stack could be read, and cannot any more, has no stack and a gap that says so."""
    job = jobs.start([sys.executable, "-c", _PROGRAM], stdin=subprocess.PIPE)
    job.wait_for_output("ready")
    rank = RankIdentity(0, job.pid, psutil.Process(job.pid).create_time())
    trail = Trail()
    before = asyncio.run(JobCapture(Job("job"), [rank], reader=None, trail=trail).take())
    assert len(before.ranks[0].stacks) == 2

    assert job.process.stdin is not None
    job.process.stdin.write(b"\n")
    job.process.stdin.flush()
    wait_for(lambda: Path(f"/proc/{job.pid}/comm").read_text() == "sleep\n", what="the process to be another program")
    after = asyncio.run(JobCapture(Job("job"), [rank], reader=None, trail=trail).take())
    assert after.ranks[0].stacks == ()
    assert len(after.ranks[0].processes) == 4
    assert [gap.rank for gap in after.gaps if gap.source == "stacks"] == [0]


class _JoiningWhileCaptured:
    """Beats of a process that has no group yet when they are read for the first ``reads`` times."""

    def __init__(self, pid: int, reads: int) -> None:
        self._pid = pid
        self._left = reads

    def read(self) -> tuple[dict[int, Beat], tuple[Gap, ...]]:
        self._left -= 1
        joined = self._left < 0
        groups = (BeatGroup("0", (0, 1), 1, "default_pg"),) if joined else ()
        beat = Beat(1, self._pid, 0, 1, 0, rank=0, initialized=joined, groups=groups, problems=("not to be asked",))
        return {self._pid: beat}, ()

    def last_of(self, _ranks: Iterable[RankIdentity]) -> dict[int, Beat]:
        return {}


@pytest.mark.parametrize(
    ("reads", "reason"),
    [(1, "not to be asked"), (2, "the first group was created after the recorders were read")],
)
def test_a_group_made_during_the_capture_has_a_record_or_a_reason(jobs: JobRunner, reads: int, reason: str) -> None:
    """A rank that joins its first group while it is captured is asked for its record, or it is said that it was not."""
    job = jobs.start([sys.executable, "-c", "print('ready', flush=True); import time; time.sleep(600)"])
    job.wait_for_output("ready")
    rank = RankIdentity(0, job.pid, psutil.Process(job.pid).create_time())
    reader = _JoiningWhileCaptured(job.pid, reads)
    capture = asyncio.run(JobCapture(Job("job"), [rank], reader=reader).take())
    assert [gap.reason for gap in capture.gaps if gap.source == "flight recorder"] == [reason]
