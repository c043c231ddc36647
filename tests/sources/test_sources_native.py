"""Native stacks, of real processes and of recorded ones."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

from hangwatch.model.capture import Gap
from hangwatch.model.stacks import StackSample
from hangwatch.sources.stacks.native import parse_pystack, sample_native
from support import JobRunner, wait_for

RECORDED = Path(__file__).resolve().parent.parent / "fixtures" / "pystack" / "nccl_item.txt"

#: One thread of Python's, and one that only the C library knows, in ``nanosleep``.
PROGRAM = """
import ctypes, time

def rest():
    print("rests", flush=True)
    time.sleep(600)

libc, thread = ctypes.CDLL(None), ctypes.c_void_p()
start = ctypes.cast(libc.sleep, ctypes.c_void_p)
libc.pthread_create(ctypes.byref(thread), None, start, ctypes.c_void_p(600))
rest()
"""


def sample(pid: int, timeout_s: float = 60.0) -> StackSample | Gap:
    """One process's native stacks."""
    return asyncio.run(sample_native([pid], timeout_s=timeout_s))[pid]


def test_recorded_rank_on_nccl() -> None:
    """A rank in ``.item()``: torch's and NCCL's own threads are there, the main one with what is below its Python frames."""
    threads = {thread.name: thread for thread in parse_pystack(RECORDED.read_text(), pid=7099)}
    assert list(threads) == ["python", "simulated-dev", "pt_nccl_heartbt", "pt_nccl_watchdg"]
    main = threads["python"]
    assert [thread.is_main for thread in threads.values()] == [True, False, False, False]
    called = [frame.function for frame in main.frames]
    assert called.index("cudaStreamSynchronize") < called.index("main") < called.index("<module>")
    synchronize, item = main.frames[called.index("cudaStreamSynchronize")], main.frames[called.index("main")]
    assert (synchronize.file, synchronize.line) == ("libcudart.so.13", 0)
    assert (item.file, item.line) == ("/opt/train/jobs/late_shard.py", 32)
    watchdog = [frame.function for frame in threads["pt_nccl_watchdg"].frames]
    assert "c10d::ProcessGroupNCCL::Watchdog::runLoop()" in watchdog
    assert max(len(function) for function in called) <= 160


def test_lines_of_others_are_left_out() -> None:
    """Warnings, source lines and an output that was cut off cost what they say, and nothing else."""
    text = 'WARNING: x\n    (C) File "a", line 1, in lost (/lib/a.so)\n' + RECORDED.read_text()[:1500]
    (main,) = parse_pystack(text, pid=7099)
    assert "lost" not in {frame.function for frame in main.frames}
    assert list(parse_pystack("", pid=1)) == []


def test_real_process_is_read_and_goes_on(jobs: JobRunner) -> None:
    """Threads that run no Python are there, and none is left stopped."""
    job = jobs.start([sys.executable, "-c", PROGRAM])
    job.wait_for_output("rests")
    found = sample(job.pid)
    assert isinstance(found, StackSample)
    main, other = sorted(found.threads, key=lambda thread: not thread.is_main)
    assert "rest" in {frame.function for frame in main.frames}
    assert any(frame.file.startswith("libc") for frame in main.frames)
    assert any("sleep" in frame.function for frame in other.frames)
    states = {psutil.Process(thread.os_thread_id).status() for thread in found.threads}
    assert states == {psutil.STATUS_SLEEPING}


def test_stopped_process_is_read_and_stays_stopped(jobs: JobRunner) -> None:
    """A rank that somebody has stopped is not started by the look at it."""
    job = jobs.start([sys.executable, "-c", PROGRAM])
    job.wait_for_output("rests")
    job.send(signal.SIGSTOP)
    wait_for(lambda: psutil.Process(job.pid).status() == psutil.STATUS_STOPPED)
    assert isinstance(sample(job.pid), StackSample)
    wait_for(lambda: psutil.Process(job.pid).status() == psutil.STATUS_STOPPED)


def test_each_failure_is_a_gap(jobs: JobRunner) -> None:
    """A program that runs no Python, and a process that is gone; the reasons are one line each."""
    job = jobs.start(["sleep", "600"])
    gone = 2**22 + 1
    found = asyncio.run(sample_native([job.pid, gone]))
    assert found[gone] == Gap("native stacks", f"process {gone} is gone")
    assert found[job.pid] == Gap("native stacks", f"process {job.pid} runs no Python that pystack recognizes")


@pytest.mark.usefixtures("real")
def test_a_reader_that_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And said to be late."""
    slow = tmp_path / "pystack"
    slow.write_text("#!/bin/sh\nexec sleep 600\n")
    slow.chmod(0o755)
    monkeypatch.setattr("hangwatch.sources.stacks.native.find_program", lambda _name: str(slow))
    reason = f"process {os.getpid()} could not be read within 1 s"
    assert sample(os.getpid(), timeout_s=1.0) == Gap("native stacks", reason)


def test_absent_reader_is_a_gap_with_its_repair(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pystack there is one line that says how to get it."""
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    monkeypatch.setenv("PATH", "/nowhere")
    assert sample(7) == Gap("native stacks", "pystack is not installed", hint="pip install 'pystack>=1.5'")
