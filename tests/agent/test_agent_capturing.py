"""What a capture takes from processes that end while it is made."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Collection

import psutil
import pytest

from hangwatch.agent.capturing import capture
from hangwatch.agent.capturing.source_health import SourceHealth
from hangwatch.agent.capturing.trail import Trail
from hangwatch.config.settings import Settings
from hangwatch.model.capture import RankIdentity
from hangwatch.model.stacks import StackSample


def test_the_stack_of_a_pid_that_was_given_away_meanwhile_is_not_taken(
    real: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader takes a while to start, and by then the process may have ended and another one have its pid."""
    processes = [
        subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
        for _ in range(2)
    ]
    ranks = [RankIdentity(n, p.pid, psutil.Process(p.pid).create_time()) for n, p in enumerate(processes)]

    async def sample_stacks(pids: Collection[int], **_: bool) -> dict[int, StackSample]:
        processes[1].kill()
        processes[1].wait()
        return {pid: StackSample(time.time_ns(), ()) for pid in pids}

    monkeypatch.setattr(capture, "sample_stacks", sample_stacks)
    trail = Trail()
    try:
        asyncio.run(capture.sample_ranks(ranks, trail, SourceHealth(), Settings()))
    finally:
        for one in processes:
            one.communicate()
    assert [len(trail.processes[one.pid]) for one in ranks] == [1, 1]
    assert [len(trail.stacks_since(one.pid, 0)) for one in ranks] == [1, 0]
