"""Children of a rank: who was forked, how many threads they have, and their stacks where the rank waits for them."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

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


STARTING = """
import multiprocessing, os, subprocess, sys, time

def wait_for_work():
    time.sleep(600)

def serve(child):
    if child == "monitor":
        os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(600)", "/ray/_private/log_monitor.py"])
    wait_for_work()

if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=serve, args=(child,)) for child in ("worker", "monitor")]
    for child in children:
        child.start()
    print("started", *(child.pid for child in children), flush=True)
    children[0].join()
"""


def test_a_child_of_multiprocessing_has_its_own_line_and_ray_s_services_are_no_children(
    jobs: JobRunner, tmp_path: Path
) -> None:
    """What is below the start of a forked child is its parent's. Ray's monitors move whatever the program does."""
    script = tmp_path / "train.py"
    script.write_text(STARTING)
    job = jobs.start([sys.executable, script])
    wait_for(lambda: "started" in job.stdout_path.read_text(), what="the children")
    worker, monitor = map(int, job.stdout_path.read_text().split()[1:])
    wait_for(lambda: "log_monitor" in " ".join(psutil.Process(monitor).cmdline()), what="the service")
    identity = RankIdentity(0, job.pid, psutil.Process(job.pid).create_time())
    process = sample_process(identity, deep=True)
    assert [child.pid for child in process.children] == [worker]
    waits = _stack(Frame("<module>", "/srv/train/train.py", 11, source="child.join()"))

    def own_line() -> str | None:
        found = asyncio.run(add_child_stacks({job.pid: (process, waits)}))
        return found[job.pid].children[0].own_line if found else None

    assert str(wait_for(own_line, what="the child's stack")).endswith("train.py:5): time.sleep(600)")


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
