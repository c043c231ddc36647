"""A worker that nobody has called is not blocked: it awaits its next call. One that reads within a step is blocked."""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec
import pytest

from hangwatch.analysis.patience import fixed_patience
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.capture import Capture
from hangwatch.model.collectives import Group
from hangwatch.model.incident import Verdict
from hangwatch.model.numbers import guest_number
from hangwatch.model.processes import CallerProcess, ChildProcess
from hangwatch.model.stacks import Block, Frame, ThreadStack
from worlds import TORCH, operation, rank, world

PAIR = Group("0", (0, 1), "default_pg")
FILE = "/srv/serve/executor.py"
LOOP = Block("while", 20, "while True:")
READ = Frame("Worker.loop", FILE, 21, "call = self.calls.recv()", blocks=(LOOP,))
STEP = Frame("Worker.loop", FILE, 24, "self.run(call)", blocks=(LOOP,))
HEADER = "for call in iter(calls.get, None):"
IN_FOR = Frame("f", FILE, 21, "run(call)", blocks=(Block("for", 20, HEADER),))
RUN = Frame("Worker.run", FILE, 31, "dist.all_reduce(hidden)")
PIPE = (Frame("Connection._recv", "/usr/lib/python3.11/multiprocessing/connection.py", 395),)
SITE = "/srv/env/lib/python3.11/site-packages"
RAY = Frame("Worker.main_loop", f"{SITE}/ray/_private/worker.py", 1069, "self.core_worker.run_task_loop()")
TASK = Frame("executor.<locals>.actor_method_executor", f"{SITE}/ray/_private/function_manager.py", 740)
SERVER = (
    Frame("_PollLikeSelector.select", "/usr/lib/python3.11/selectors.py", 415),
    Frame("BaseServer.serve_forever", "/usr/lib/python3.11/socketserver.py", 233),
)
EVENTS = (
    Frame("EpollSelector.select", "/usr/lib/python3.11/selectors.py", 468),
    Frame("BaseEventLoop._run_once", "/usr/lib/python3.11/asyncio/base_events.py", 1884),
)
CALLER = CallerProcess(900, "python", stack=("main (executor.py:70): answers = [c.recv() for c in calls]",))


@dataclass(frozen=True)
class Worker:
    """Where worker 1 is, who else is in its process, and where its last collective was called. Worker 0 is in the all_reduce."""

    stack: tuple[Frame, ...] = (*PIPE, READ)
    call: str = "read"
    on: str | None = "socket:[7]"
    threads: tuple[ThreadStack, ...] = ()
    children: tuple[ChildProcess, ...] = ()
    called_at: tuple[Frame, ...] = (RUN, STEP)
    other: tuple[Frame, ...] = (RUN, STEP)
    #: CPU seconds of who started it from sample to sample; None where that one is not seen.
    caller_s: float | None = 0.0


UNCALLED = Worker()


def capture_of(worker: Worker) -> Capture:
    """Worker 0 in an all_reduce that worker 1 does not come to."""
    inside = Frame("all_reduce", TORCH, 3151)
    zero = rank(0, (operation(1, PAIR, 1), operation(2, PAIR, 2, done=False)), (inside, *worker.other))
    last = msgspec.structs.replace(operation(1, PAIR, 1), frames=(inside, *worker.called_at))
    one = rank(1, (last,), worker.stack, channel="unix_stream_read_generic")
    stacks = [msgspec.structs.replace(s, threads=(*s.threads, *worker.threads)) for s in one.stacks]
    used = [None if worker.caller_s is None else 5.0 + worker.caller_s * n for n in range(len(one.processes))]
    processes = [
        msgspec.structs.replace(
            p, syscall=worker.call, blocked_on=worker.on, children=worker.children, caller=caller(s)
        )
        for p, s in zip(one.processes, used, strict=True)
    ]
    return world(zero, msgspec.structs.replace(one, processes=tuple(processes), stacks=tuple(stacks)))


def caller(cpu_s: float | None) -> CallerProcess | None:
    """Who started the worker."""
    return None if cpu_s is None else msgspec.structs.replace(CALLER, cpu_s=cpu_s)


def verdict_of(worker: Worker) -> Verdict:
    """What is said of it after ten seconds, which is more than its patience."""
    return diagnose(capture_of(worker), patience=fixed_patience(6.0)).verdict


def cause_of(worker: Worker) -> str:
    """The cause that comes first."""
    found = verdict_of(worker)
    assert found.cause is not None
    assert found.culprit_ranks == (1,)
    return found.cause.id


def thread(*frames: Frame, name: str = "pool") -> ThreadStack:
    """A thread beside the main one."""
    return ThreadStack(77, name, is_main=False, active=False, owns_gil=False, frames=frames)


def test_a_worker_at_the_head_of_its_loop_has_not_been_called() -> None:
    """It, who was to call it and where that one is are named; it is no read that is blocked."""
    found = verdict_of(UNCALLED)
    assert (found.kind, found.proven) == ("stall", False)
    assert found.cause is not None
    assert found.cause.id == "waits-for-request"
    assert "the ranks that wait for it have had their calls" in found.cause.explanation
    assert "Process 900 (python)" in found.cause.explanation
    assert "main (executor.py:70)" in found.cause.explanation
    unseen = verdict_of(replace(UNCALLED, caller_s=None)).cause
    assert unseen is not None
    assert "not visible" in unseen.explanation


def test_a_worker_that_was_not_called_hangs_also_where_its_caller_is_captured_beside_the_job() -> None:
    """It reads its calls from a socket, as one does that awaits an answer; what it awaits is no answer that may take long."""
    calls = (Frame("main", FILE, 70, "answers = [c.recv() for c in calls]"),)
    caller = rank(guest_number("process 900", 0), (), calls, channel="unix_stream_read_generic")
    caller = msgspec.structs.replace(caller, flight=None, progress=None)
    capture = capture_of(UNCALLED)
    capture = msgspec.structs.replace(capture, ranks=(*capture.ranks, caller))
    found = diagnose(capture, patience=fixed_patience(6.0)).verdict
    assert (found.kind, found.culprit_ranks) == ("stall", (1,))


@pytest.mark.parametrize(
    "worker",
    [
        replace(UNCALLED, stack=(RAY,), call="futex", on=None, other=(RUN, TASK, RAY)),
        replace(UNCALLED, stack=(*SERVER, Frame("serve", FILE, 50)), call="poll", on="socket:[7] listening on port 80"),
        replace(UNCALLED, stack=(*EVENTS, Frame("serve", FILE, 50)), call="epoll_wait", on="socket:[7] listening on port 80"),
        replace(UNCALLED, stack=(*PIPE, Frame("f", FILE, 20, HEADER)), called_at=(RUN, IN_FOR), other=(RUN, IN_FOR)),
        replace(UNCALLED, on="pipe:[7] from 900 python"),
    ],
    ids=["ray", "server", "event-loop", "iter", "queue"],
)  # fmt: skip
def test_other_places_where_calls_are_taken(worker: Worker) -> None:
    """Ray's task loop, servers, and loops over what a queue gives."""
    assert cause_of(worker) == "waits-for-request"


HELPER = ChildProcess(950, "python", "S", 1.0, stack=("work (feed.py:3): out.send(batch)",))


@pytest.mark.parametrize(
    "worker",
    [
        # It has done a collective in this iteration already.
        replace(UNCALLED, called_at=(msgspec.structs.replace(STEP, line=20 + 1, source="dist.all_reduce(flag)"),),
                stack=(*PIPE, msgspec.structs.replace(READ, line=23))),
        # The loop is one over data.
        replace(UNCALLED, stack=(*PIPE, msgspec.structs.replace(READ, blocks=(Block("for", 20, "for step in steps:"),)))),
        # A child of its own is to answer.
        replace(UNCALLED, children=(HELPER,)),
        replace(UNCALLED, on="pipe:[7] from 950 python", children=(HELPER,)),
        # It awaits an answer itself, as far as can be seen.
        replace(UNCALLED, stack=(*EVENTS, Frame("ask", FILE, 50)), call="epoll_wait", on="socket:[7] to 10.0.0.1:80"),
        # A thread of it runs a task.
        replace(UNCALLED, stack=(RAY,), call="futex", on=None, threads=(thread(RUN, TASK),)),
    ],
    ids=["middle-of-a-step", "loop-over-data", "child", "child-writes", "client", "ray-thread"],
)  # fmt: skip
def test_what_looks_alike_is_something_else(worker: Worker) -> None:
    """A read within a step, of a child's answer or of a reply is no wait for a call."""
    assert cause_of(worker) != "waits-for-request"


def test_a_caller_that_computes_may_yet_call() -> None:
    """Then it is late, which is a warning and no hang, until ten times the patience."""
    assert verdict_of(UNCALLED).kind == "stall"
    late = replace(UNCALLED, caller_s=0.3)
    assert verdict_of(late).kind == "straggler"
    capture = capture_of(late)
    for_long = msgspec.structs.replace(capture, at_ns=capture.at_ns + 86_400 * 10**9)
    assert diagnose(for_long, patience=fixed_patience(6.0)).verdict.kind == "stall"
