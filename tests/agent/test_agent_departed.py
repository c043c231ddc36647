"""Processes that were started beside a rank and have failed: remembered, and told from those that ended in good order."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from hangwatch.agent.capturing.departed import find_departed
from hangwatch.model.beats import Beat
from hangwatch.model.capture import RankIdentity
from hangwatch.sources.discovery.process_table import ProcessTable
from hangwatch.sources.proc.files import CLOCK_TICKS
from support import JobRunner, wait_for

#: Ends with the status of its second argument once there is the file of its first.
WAITS = """
import os, sys, time
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
raise SystemExit(int(sys.argv[2]))
"""

KEEPER = f"""
import subprocess, sys
helper = subprocess.Popen([sys.executable, "-c", {WAITS!r}, *sys.argv[1:], "--role", "maker"])
rank = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(helper.pid, rank.pid, flush=True)
rank.wait()
"""

RESTARTER = f"""
import subprocess, sys
former = subprocess.Popen([sys.executable, "-c", {WAITS!r}, *sys.argv[1:]])
print(former.pid, flush=True)
former.wait()
later = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(later.pid, flush=True)
later.wait()
"""


@pytest.mark.parametrize(("status", "names"), [(3, ["maker"]), (0, [])], ids=["failed", "ended"])
def test_what_has_failed_beside_a_rank(jobs: JobRunner, tmp_path: Path, status: int, names: list[str]) -> None:
    """A process that somebody above the rank has started is found by its role when it has failed, as long as nobody asked."""
    sign = tmp_path / "go"
    job = jobs.start([sys.executable, "-c", KEEPER, str(sign), str(status)])
    wait_for(lambda: len(job.stdout().split()) == 2, what="both")
    helper, rank = map(int, job.stdout().split())
    table = ProcessTable()
    identity = RankIdentity(rank=0, pid=rank, start_time=0.0)
    wait_for(lambda: table.refresh(job.pid, frozenset())[helper].python, what="the helper")
    assert find_departed(table.ended(), [identity], None) == ()
    sign.touch()
    wait_for(lambda: table.refresh(job.pid, frozenset()) and table.ended(), what="its end")
    found = find_departed(table.ended(), [identity], None)
    assert [(one.world, one.worldless) for one in found] == [(f"{name}[{helper}]", True) for name in names]


def test_an_earlier_life_of_a_rank(jobs: JobRunner, tmp_path: Path) -> None:
    """A rank that has failed and was started anew is not beside the job; one that nobody started anew is."""
    claim = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    sign = tmp_path / "go"
    job = jobs.start([sys.executable, "-c", RESTARTER, str(sign), "1"], env=claim)
    former = int(wait_for(job.stdout, what="the first life"))
    table = ProcessTable()
    wait_for(lambda: table.refresh(job.pid, frozenset())[former].claim, what="its claim")
    sign.touch()
    later = int(wait_for(lambda: job.stdout().split()[1:], what="the second life")[0])
    rank = RankIdentity(rank=0, pid=later, start_time=table.refresh(job.pid, frozenset())[later].start_time)
    ended = [process for process in table.ended() if process.pid == former]
    assert ended
    assert find_departed(ended, [rank], _Killed()) == ()
    ended[0].seen_ticks += 100 * CLOCK_TICKS
    assert [one.pid for one in find_departed(ended, [rank], _Killed())] == [former]


class _Killed:
    """Who has failed left a beat without its end."""

    def last_of(self, ranks: Iterable[RankIdentity]) -> dict[int, Beat]:
        return {rank.pid: Beat(1, rank.pid, start_ticks=0, counter=1, at_ns=0) for rank in ranks}
