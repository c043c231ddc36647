"""A rank's threads by their numbers in three sources: the flight recorder, py-spy and /proc."""

from __future__ import annotations

import asyncio
import sys

import msgspec

from hangwatch.model.stacks import StackSample, ThreadStack
from hangwatch.sources.flight.recorder import parse_flight
from hangwatch.sources.proc.threads import sample_threads
from hangwatch.sources.stacks.samples import sample_stacks
from support import JobRunner, find_free_port, wait_for

#: A rank whose thread has called a collective and reads a pipe, while its main thread computes.
PROGRAM = """
import os, sys, threading
import torch, torch.distributed as dist
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{sys.argv[1]}", rank=0, world_size=1)
dist.all_reduce(torch.ones(1))
def gather():
    dist.all_gather([torch.zeros(1)], torch.ones(1))
    print(torch._C._distributed_c10d._dump_fr_trace_json().decode(), flush=True)
    os.read(os.pipe()[0], 1)
threading.Thread(target=gather, name="gatherer", daemon=True).start()
while True:
    sum(range(1000))
"""


def stack_of(pid: int) -> StackSample:
    found = asyncio.run(sample_stacks([pid]))[pid]
    assert isinstance(found, StackSample), found
    return found


def test_one_thread_has_one_number_in_recorder_and_stack(jobs: JobRunner) -> None:
    """The recorder writes ``std::this_thread::get_id()``, py-spy Python's number: both are ``pthread_self``."""
    job = jobs.start([sys.executable, "-c", PROGRAM, str(find_free_port())])
    line = job.wait_for_output("entries")
    record = parse_flight(msgspec.json.decode(line.splitlines()[-1]), at_ns=0, source="json")
    by_op = {o.op: o.thread for o in record.operations}

    def gatherer() -> ThreadStack | None:
        threads = stack_of(job.pid).threads
        assert next(t for t in threads if t.is_main).ident == by_op["all_reduce"]
        return next((t for t in threads if not t.is_main and t.frames[0].function.endswith("gather")), None)

    thread = wait_for(gatherer)
    assert thread.ident == by_op["all_gather"] != by_op["all_reduce"]
    (sample,) = sample_threads(job.pid, {thread.os_thread_id})
    assert (sample.os_thread_id, sample.state, sample.syscall) == (thread.os_thread_id, "S", "read")
    assert (sample.blocked_on or "").startswith("pipe:[")
    (main,) = sample_threads(job.pid, {job.pid})
    assert main.cpu_s > sample.cpu_s


def test_a_thread_that_is_gone_is_left_out(jobs: JobRunner) -> None:
    """Threads end between two reads, and so do processes."""
    job = jobs.start([sys.executable, "-c", "import time; time.sleep(600)"])
    assert [t.os_thread_id for t in sample_threads(job.pid, {job.pid, 1})] == [job.pid]
    job.end()
    assert sample_threads(job.pid, {job.pid}) == ()
    assert sample_threads(job.pid, ()) == ()
