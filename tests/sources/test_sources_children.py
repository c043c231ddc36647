"""Children of a rank: who was forked, how many threads they have, and their stacks where the rank waits for them."""

from __future__ import annotations

import asyncio
import sys

import msgspec
import psutil

from hangwatch.agent.capturing.relatives import add_child_stacks
from hangwatch.model.capture import RankIdentity
from hangwatch.model.processes import ChildProcess, ProcessSample
from hangwatch.model.stacks import Frame, StackSample, ThreadStack
from hangwatch.sources.proc.samples import sample_process
from hangwatch.sources.stacks.locals import describe_group, name_groups
from support import JobRunner, wait_for

FORKING = """
import os, subprocess, threading
lock = threading.Lock()
lock.acquire()
child = os.fork()
if child == 0:
    lock.acquire()
other = subprocess.Popen(["sleep", "600"])
print("forked", flush=True)
os.waitpid(child, 0)
"""


def _stack(*frames: Frame) -> StackSample:
    return StackSample(1, (ThreadStack(1, "MainThread", True, False, False, frames),))


def test_a_forked_child_is_distinguished_from_another_program(jobs: JobRunner) -> None:
    """The one has its parent's command line; its stack is read where the parent waits for no rank, or another rank sleeps."""
    job = jobs.start([sys.executable, "-c", FORKING])
    wait_for(lambda: "forked" in job.stdout_path.read_text(), what="the fork")
    identity = RankIdentity(0, job.pid, psutil.Process(job.pid).create_time())
    process = sample_process(identity, deep=True)
    assert {c.name: c.forked for c in process.children if c.name == "sleep"} == {"sleep": False}
    forked = next(c for c in process.children if c.forked)
    assert forked.threads == 1
    waits = _stack(Frame("<module>", "/srv/train/train.py", 11, source="os.waitpid(child, 0)"))
    # A busy machine may not get to read it in the time there is.
    found = wait_for(lambda: asyncio.run(add_child_stacks({job.pid: (process, waits)})), what="the child's stack")
    reported = next(c for c in found[job.pid].children if c.pid == forked.pid)
    assert reported.stack[0] == "<module> (<string>:7): lock.acquire()"
    assert reported.side_threads == ()
    torch = "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
    joined = {job.pid: (process, _stack(Frame("all_reduce", torch, 100)))}
    assert asyncio.run(add_child_stacks(joined)) == {}
    asleep = ProcessSample(1, 1, "S", syscall="clock_nanosleep")
    joined[1] = (asleep, _stack(Frame("<module>", "/srv/train/train.py", 11, source="time.sleep(1)")))
    found = wait_for(lambda: asyncio.run(add_child_stacks(joined)), what="the child's stack")
    assert next(c for c in found[job.pid].children if c.pid == forked.pid).stack == reported.stack


def test_a_pid_that_is_no_child_s_any_more_has_no_stack(jobs: JobRunner) -> None:
    """Another process may have it by the time its stack is read."""
    rank, stranger = (
        jobs.start([sys.executable, "-c", "import time; print('ready', flush=True); time.sleep(600)"]) for _ in "ab"
    )
    for job in (rank, stranger):
        job.wait_for_output("ready")
    identity = RankIdentity(0, rank.pid, psutil.Process(rank.pid).create_time())
    process = sample_process(identity, deep=True)
    process = msgspec.structs.replace(process, children=(ChildProcess(stranger.pid, "python", "S", 0.1),))
    waits = _stack(Frame("<module>", "/srv/train/train.py", 11, source="os.waitpid(child, 0)"))
    assert asyncio.run(add_child_stacks({rank.pid: (process, waits)})) == {}


def test_the_group_that_torch_creates_is_recognised_by_value() -> None:
    """Its ranks, and its name where that is a number or a digest; nothing else that is called so."""
    assert describe_group("global_ranks_in_group", "[0, 1, 5]") == "list[int]=[0,1,5]"
    assert describe_group("ranks", "[0, 1, ...]") is None
    assert describe_group("ranks", '["a"]') is None
    assert describe_group("group_name", '"3"') == "str=3"
    assert (
        describe_group("group_name", '"4a2ad14e7181d5235b64cf37fcd715cb5ce5c8e7"')
        == "str=4a2ad14e7181d5235b64cf37fcd715cb5ce5c8e7"
    )
    assert describe_group("group_name", '"customers"') is None
    assert describe_group("sizes", "[0, 1]") is None
    assert describe_group("group", "<torch._C._distributed_c10d.ProcessGroup at 0x7f10>") == "ProcessGroup@0x7f10"
    assert describe_group("group", "<ProcessGroup at 0x7f10>") == "ProcessGroup@0x7f10"
    assert describe_group("group", "<Mesh at 0x7f10>") is None


def test_a_group_s_address_is_turned_into_its_name_or_dropped() -> None:
    """Nobody could compare addresses of two processes."""

    def named(address: str, names: dict[int, str]) -> str:
        stack = _stack(Frame("send", "/opt/torch/distributed/distributed_c10d.py", 1, locals={"group": address}))
        (thread,) = name_groups(stack, names).threads
        return (thread.frames[0].locals or {})["group"]

    assert named("ProcessGroup@0x7f10", {0x7F10: "3", 1: "4"}) == "ProcessGroup=3"
    assert named("ProcessGroup@0x7f10", {}) == "ProcessGroup"
    assert named("None", {0x7F10: "3"}) == "None"
