"""An engine that nobody asks is idle; a rank that reads in the middle of its step hangs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec
import pytest

from hangwatch.analysis.case import build_case
from hangwatch.analysis.idle import find_idleness
from hangwatch.analysis.patience import fixed_patience
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.capture import Capture
from hangwatch.model.collectives import Group
from hangwatch.model.numbers import guest_number
from hangwatch.model.processes import ChildProcess
from hangwatch.model.stacks import Block, Frame
from worlds import TORCH, operation, rank, world

PAIR = Group("0", (0, 1), "default_pg")
FILE = "/srv/serve/engine.py"
FOREVER = (Block("while", 20, "while True:"),)
READ = Frame("follow", FILE, 21, "command = commands.get()", blocks=FOREVER)
FOLLOW = Frame("follow", FILE, 22, "dist.broadcast_object_list(command, src=0)", blocks=FOREVER)
QUEUE = (
    Frame("Connection._recv", "/usr/lib/python3.11/multiprocessing/connection.py", 395),
    Frame("Queue.get", "/usr/lib/python3.11/multiprocessing/queues.py", 103),
)


#: Who started the workers, captured with them.
CALLER = guest_number("serve", 0)


@dataclass(frozen=True)
class Engine:
    """Where worker 0 reads and from whom, and what worker 1 is in."""

    above: tuple[Frame, ...] = QUEUE
    read: Frame = READ
    on: str | None = "pipe:[7] from 4000 python"
    call: str = "read"
    op: str = "broadcast"
    src: int = 0
    follow: Frame = FOLLOW
    children: tuple[ChildProcess, ...] = ()


IDLE = Engine()


def capture_of(engine: Engine) -> Capture:
    """Both workers of an engine, ten seconds after the last request."""
    zero = rank(0, (operation(1, PAIR, 1),), (*engine.above, engine.read), channel="anon_pipe_read")
    reading = tuple(
        msgspec.structs.replace(p, syscall=engine.call, blocked_on=engine.on, children=engine.children)
        for p in zero.processes
    )
    inside = Frame(engine.op, TORCH, 3151, locals={"src": f"int={engine.src}"})
    one = rank(1, (operation(1, PAIR, 1), operation(2, PAIR, 2, engine.op, done=False)), (inside, engine.follow))
    return world(msgspec.structs.replace(zero, processes=reading), one)


@pytest.mark.parametrize("patience_s", [1.0, 6.0])
def test_an_engine_that_nobody_asks_is_healthy_at_any_patience(patience_s: float) -> None:
    """Worker 0 reads its queue at the head of an endless loop, worker 1 is in what it will send: no incident."""
    found = diagnose(capture_of(IDLE), patience=fixed_patience(patience_s)).verdict
    assert found.kind == "healthy"
    assert "waits for a request" in found.summary
    later = msgspec.structs.replace(capture_of(IDLE), at_ns=capture_of(IDLE).at_ns + 86_400 * 10**9)
    assert diagnose(later, patience=fixed_patience(patience_s)).verdict.kind == "healthy"


def with_caller(capture: Capture, on: str) -> Capture:
    """The same with the process at the other end of worker 0's pipe, which is stuck itself ``on`` a pipe."""
    caller = rank(CALLER, (), (*QUEUE, Frame("serve", FILE, 51, "answers.get()")), channel="anon_pipe_read")
    identity = msgspec.structs.replace(caller.identity, pid=4000, world="serve", world_rank=None)
    blocked = tuple(msgspec.structs.replace(p, syscall="read", blocked_on=on) for p in caller.processes)
    zero, one = capture.ranks
    asking = (*zero.processes[:-1], msgspec.structs.replace(zero.processes[-1], servers=(4000, one.identity.pid)))
    beside = msgspec.structs.replace(caller, identity=identity, processes=blocked, flight=None, progress=None)
    return msgspec.structs.replace(capture, ranks=(msgspec.structs.replace(zero, processes=asking), one, beside))


def test_who_started_the_workers_may_be_captured_with_them() -> None:
    """It is at the other end of what worker 0 reads, and no member of its group."""
    capture = with_caller(capture_of(IDLE), "pipe:[9] from 4001 client")
    assert diagnose(capture, patience=fixed_patience(6.0)).verdict.kind == "healthy"


def test_a_caller_that_awaits_the_answer_is_not_who_holds_up_the_worker() -> None:
    """Worker 0 reads its queue in the middle of a request, and its caller reads what the workers are to answer."""
    deep = msgspec.structs.replace(READ, line=31, blocks=())
    capture = capture_of(replace(IDLE, op="all_reduce", read=deep))
    pids = [r.identity.pid for r in capture.ranks]
    waiting = with_caller(capture, f"pipe:[9] from {pids[0]} python, {pids[1]} python")
    assert diagnose(waiting, patience=fixed_patience(6.0)).verdict.culprit_ranks == (0,)


@pytest.mark.parametrize(
    "engine",
    [
        replace(IDLE, op="all_reduce"),
        replace(IDLE, src=1),
        replace(IDLE, on="pipe:[7]"),
        replace(IDLE, on="pipe:[7] from 1001 python"),
        replace(IDLE, children=(ChildProcess(4000, "python", "S", 0.0),)),
        replace(IDLE, on="/data/shard-7", above=()),
        replace(IDLE, read=Frame("train", FILE, 21, blocks=(Block("for", 20, "for batch in loader:"),))),
        replace(IDLE, read=Frame("train", FILE, 21), follow=Frame("train", FILE, 22)),
        replace(IDLE, above=(*QUEUE, Frame("_try_get_data", "/opt/site-packages/torch/utils/data/dataloader.py", 9))),
    ],
    ids=["all-reduce", "sent-by-another", "nobody-writes", "a-rank-writes", "a-child-writes", "a-file", "a-loop-over-data",
         "no-loop", "a-data-loader"],
)  # fmt: skip
def test_a_read_in_the_middle_of_a_step_is_a_stall(engine: Engine) -> None:
    """Whatever of it is missing, worker 0 hangs and holds up the other."""
    found = diagnose(capture_of(engine), patience=fixed_patience(6.0)).verdict
    assert (found.kind, found.culprit_ranks) == ("stall", (0,))


@pytest.mark.parametrize(
    "engine",
    [
        replace(IDLE, on="socket:[9] to 10.0.0.7:6379"),
        replace(IDLE, follow=Frame("follow", FILE, 62, blocks=(Block("while", 60, "while True:"),))),
        replace(IDLE, follow=Frame("Worker.run", FILE, 62, blocks=(Block("while", 60, "while self.lives:"),))),
    ],
    ids=["another-host", "another-loop", "another-function"],
)
def test_in_doubt_it_is_a_late_warning_and_never_a_hang(engine: Engine) -> None:
    """Who is at the other end is not known, or whether both are in one loop: a straggler after the longest patience."""
    capture = capture_of(engine)
    assert find_idleness(build_case(capture)) == "likely"
    assert diagnose(capture, patience=fixed_patience(6.0)).verdict.kind == "healthy"
    later = msgspec.structs.replace(capture, at_ns=capture.at_ns + 3600 * 10**9)
    found = diagnose(later, patience=fixed_patience(6.0)).verdict
    assert (found.kind, found.severity) == ("straggler", "warning")


@pytest.mark.parametrize(
    ("call", "on", "above"),
    [
        ("accept4", "socket:[9] listening on port 8000", ()),
        ("read", "socket:[9]", QUEUE),
        ("poll", "anon_inode:[eventfd]", ()),
    ],
    ids=["a-server", "a-duplex-pipe", "zeromq"],
)
def test_commands_come_by_other_ways_as_well(call: str, on: str, above: tuple[Frame, ...]) -> None:
    """A server that awaits a client, a pipe of two ends, ZeroMQ's wake-up of its reader: all are idle."""
    assert find_idleness(build_case(capture_of(replace(IDLE, call=call, on=on, above=above)))) == "idle"
