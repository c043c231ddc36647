"""Captures of one process that follow each other, and what they may not carry over."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import psutil

from hangwatch.agent.capturing.capture import capture_job
from hangwatch.agent.capturing.trail import Trail
from hangwatch.model.capture import Job, RankIdentity
from support import JobRunner, wait_for

_PROGRAM = "import os, sys; print('ready', flush=True); sys.stdin.readline(); os.execvp('sleep', ['sleep', '600'])"


def test_an_old_stack_does_not_pass_for_the_current_one(jobs: JobRunner) -> None:
    """A process whose stack could be read, and cannot any more, has no stack and a gap that says so."""
    job = jobs.start([sys.executable, "-c", _PROGRAM], stdin=subprocess.PIPE)
    job.wait_for_output("ready")
    rank = RankIdentity(0, job.pid, psutil.Process(job.pid).create_time())
    trail = Trail()
    before = asyncio.run(capture_job(Job("job"), [rank], reader=None, trail=trail))
    assert len(before.ranks[0].stacks) == 2

    assert job.process.stdin is not None
    job.process.stdin.write(b"\n")
    job.process.stdin.flush()
    wait_for(lambda: Path(f"/proc/{job.pid}/comm").read_text() == "sleep\n", what="the process to be another program")
    after = asyncio.run(capture_job(Job("job"), [rank], reader=None, trail=trail))
    assert after.ranks[0].stacks == ()
    assert len(after.ranks[0].processes) == 4
    assert [gap.rank for gap in after.gaps if gap.source == "stacks"] == [0]
