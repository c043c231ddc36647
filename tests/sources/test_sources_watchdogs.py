"""Whether torch's watchdogs of NCCL run, by their threads' names and context switches: read from a real process."""

from __future__ import annotations

import sys

from hangwatch.sources.proc.samples import find_watchdogs
from support import JobRunner, wait_for

#: Two threads of the name, one of which looks every tenth of a second and one of which hangs, and one of another name.
PROGRAM = """
import ctypes, os, threading, time
def run(name, pause):
    ctypes.CDLL(None).prctl(15, name, 0, 0, 0)
    print(threading.get_native_id(), flush=True)
    while True:
        time.sleep(pause)
for name, pause in ((b"pt_nccl_watchdg", 0.1), (b"pt_nccl_watchdg", 3600), (b"pt_nccl_heartbt", 3600)):
    threading.Thread(target=run, args=(name, pause), daemon=True).start()
    time.sleep(0.2)
print("pid", os.getpid(), flush=True)
time.sleep(3600)
"""


def test_a_watchdog_that_runs_is_told_from_one_that_hangs(jobs: JobRunner) -> None:
    """The second's switches stay, the first's grow; the third is none."""
    job = jobs.start([sys.executable, "-c", PROGRAM])
    *threads, pid = (int(n) for n in job.wait_for_output("pid").replace("pid ", "").split())
    before = wait_for(lambda: found if len(found := find_watchdogs(pid)) == 2 else None)
    assert {one.thread for one in before} == set(threads[:2])

    def moved() -> bool:
        after = {one.thread: one.switches for one in find_watchdogs(pid)}
        return after.get(threads[0], 0) > next(one.switches for one in before if one.thread == threads[0])

    wait_for(moved)
    assert [one for one in find_watchdogs(pid) if one in before] == [one for one in before if one.thread == threads[1]]


def test_a_process_that_is_gone_has_none() -> None:
    """No such process."""
    assert find_watchdogs(2**22 + 1) == ()
