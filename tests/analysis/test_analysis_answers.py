"""A rank that awaits an answer from a process beside the job: that one holds up the job, if it is in the middle of something."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import pytest

from hangwatch.analysis.case import build_case
from hangwatch.analysis.patience import fixed_patience
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.capture import Capture, RankCapture, RankIdentity
from hangwatch.model.collectives import Group
from hangwatch.model.incident import Verdict
from hangwatch.model.numbers import guest_number
from hangwatch.model.processes import ExitStatus, ProcessSample, ThreadSample
from hangwatch.model.stacks import Block, Frame, StackSample, ThreadStack
from worlds import NOW_NS, SECOND_NS, collective_frames, operation, rank, samples, world

PAIR = Group("0", (0, 1), "default_pg")
STDLIB = "/usr/lib/python3.11"
SERVER, SERVER_PID = guest_number("process 500", 0), 500
ASKS = (
    Frame("SocketIO.readinto", f"{STDLIB}/socket.py", 706),
    Frame("HTTPConnection.getresponse", f"{STDLIB}/http/client.py", 1386),
    Frame("scores", "/srv/train/train.py", 31, "reply = connection.getresponse()"),
)
SERVES = (
    Frame("_PollLikeSelector.select", f"{STDLIB}/selectors.py", 415),
    Frame("BaseServer.serve_forever", f"{STDLIB}/socketserver.py", 233),
    Frame("main", "/srv/reward/reward.py", 80, "server.serve_forever()"),
)
HANDLES = (
    Frame("score", "/srv/reward/reward.py", 41, "with self.lock:"),
    Frame("BaseHTTPRequestHandler.handle", f"{STDLIB}/http/server.py", 436),
    Frame("ThreadingMixIn.process_request_thread", f"{STDLIB}/socketserver.py", 691),
)
EVENTS = (
    Frame("EpollSelector.select", f"{STDLIB}/selectors.py", 468),
    Frame("BaseEventLoop._run_once", f"{STDLIB}/asyncio/base_events.py", 1884),
    Frame("main", "/srv/reward/reward.py", 80, "asyncio.run(serve())"),
)
BLOCKS_THE_LOOP = (Frame("score", "/srv/reward/reward.py", 41, "self.model.load()"), *EVENTS[1:])
COMMANDS = (
    Frame("Connection._recv", f"{STDLIB}/multiprocessing/connection.py", 395),
    Frame("main", "/srv/reward/reward.py", 21, "call = calls.recv()", blocks=(Block("while", 20, "while True:"),)),
)
ONE_THREAD = (
    Frame("score", "/srv/reward/reward.py", 41, "time.sleep(600)"),
    Frame("main", "/srv/reward/reward.py", 80),
)


@dataclass(frozen=True)
class Beside:
    """Where the server's main thread is, its other thread, and whom it reads from itself."""

    main: tuple[Frame, ...] = SERVES
    other: tuple[Frame, ...] = HANDLES
    reads_from: int | None = None


def asking(number: int, operations: int = 1) -> RankCapture:
    """A rank without anything in flight, in a read of which the server has the other end."""
    made = rank(number, tuple(operation(n + 1, PAIR, n + 1) for n in range(operations)), ASKS, channel="sk_wait_data")
    read = [
        msgspec.structs.replace(p, syscall="recvfrom", blocked_on="socket:[7]", server=SERVER_PID)
        for p in made.processes
    ]
    return msgspec.structs.replace(made, processes=tuple(read))


def server(beside: Beside) -> RankCapture:
    """The process beside the job."""
    threads = (
        ThreadStack(500, "MainThread", True, False, False, beside.main, ident=1),
        *((ThreadStack(501, "Thread-4", False, False, False, beside.other, ident=2),) if beside.other else ()),
    )
    own = ThreadSample(501, "S", switches=7, wait_channel="futex_do_wait", syscall="futex")
    call = "epoll_wait" if beside.main in {SERVES, EVENTS} else "read"
    seen = [
        msgspec.structs.replace(p, threads=(own,), syscall=call, server=beside.reads_from)
        for p in samples(SERVER_PID, channel="ep_poll")
    ]
    stacks = tuple(StackSample(p.at_ns, threads) for p in seen)
    return RankCapture(RankIdentity(SERVER, SERVER_PID, 1.0, "node-0", world="reward[500]"), tuple(seen), stacks)


def waiting_job(beside: Beside) -> Capture:
    """Rank 0 asks the server, rank 1 is in a collective that rank 0 has not joined."""
    one = rank(1, (operation(1, PAIR, 1), operation(2, PAIR, 2, done=False)), collective_frames("all_reduce"))
    capture = world(asking(0), one, server(beside))
    return msgspec.structs.replace(capture, job=msgspec.structs.replace(capture.job, world_size=2))


def verdict(capture: Capture) -> Verdict:
    """What is said ten seconds after the last collective, at a patience of six."""
    return diagnose(capture, patience=fixed_patience(6.0)).verdict


@pytest.mark.parametrize(
    ("beside", "line"),
    [
        (Beside(), "score"),
        (Beside(ONE_THREAD, ()), "score"),
        (Beside(BLOCKS_THE_LOOP, ()), "score"),
    ],
    ids=["thread", "one-thread", "event-loop"],
)
def test_a_server_in_a_request_is_named(beside: Beside, line: str) -> None:
    """The verdict names the server and its line. It is none of the job's ranks, so it is a warning and no hang."""
    found = verdict(waiting_job(beside))
    assert found.culprit_ranks == (SERVER,)
    assert found.kind == "straggler"
    assert not found.proven
    assert found.divergence is not None
    assert found.divergence.culprit is not None
    assert line in found.divergence.culprit.function
    assert "rank 0 waits in a request for reward[500], which has not answered" in found.waits
    assert "because of reward[500]" in found.summary


@pytest.mark.parametrize(
    "beside",
    [Beside(EVENTS, ()), Beside(SERVES, ()), Beside(COMMANDS, ()), Beside((), ())],
    ids=["event-loop", "server", "commands", "no-stack"],
)
def test_an_idle_server_is_not_named(beside: Beside) -> None:
    """One that awaits requests may never have had this one: then the rank that asks is what is known."""
    assert verdict(waiting_job(beside)).culprit_ranks == (0,)


@pytest.mark.parametrize(("works", "kind"), [(True, "straggler"), (False, "stall")])
def test_who_has_the_lock_on_a_file_may_work_under_it(works: bool, kind: str) -> None:
    """It serves nobody (``python -c``). Who waits for the lock is late while that gets on, and hangs where it does not."""
    locked = (Frame("read_table", "/srv/train/train.py", 31, "fcntl.flock(handle, fcntl.LOCK_SH)"),)
    job = waiting_job(Beside((Frame("<module>", "<string>", 12, "time.sleep(0.01)"),), ()))
    asks, other, has = job.ranks
    waits = tuple(msgspec.structs.replace(p, syscall="flock", blocked_on="/data/lock") for p in asks.processes)
    stacks = rank(0, (), locked).stacks
    asks = msgspec.structs.replace(asks, processes=waits, stacks=stacks)
    has = msgspec.structs.replace(has, processes=samples(SERVER_PID, busy=works))
    found = verdict(msgspec.structs.replace(job, ranks=(asks, other, has)))
    assert (found.culprit_ranks, found.kind) == ((0,), kind)


def test_two_sides_that_wait_for_each_other() -> None:
    """Each is in the middle of its program, and blocked on what the other has: both are named, and nothing is proven."""
    found = verdict(waiting_job(Beside(ONE_THREAD, (), reads_from=1000)))
    assert found.culprit_ranks == (0, SERVER)
    assert (found.kind, found.proven) == ("stall", False)
    assert found.cause is not None
    assert found.cause.id == "request-cycle"
    assert "rank 0 waits for reward[500], which waits for rank 0" in found.cause.explanation.replace("Rank", "rank")


def shared(*pids: int) -> RankCapture:
    """Rank 0 in a read of a queue, whose other end these processes have."""
    one = asking(0)
    seen = tuple(msgspec.structs.replace(p, server=None, servers=pids) for p in one.processes)
    return msgspec.structs.replace(one, processes=seen)


def keeper(frames: tuple[Frame, ...], call: str) -> RankCapture:
    """The program that has started all of them."""
    made = server(Beside(frames, ()))
    identity = RankIdentity(SERVER + 1, 501, 1.0, "node-0", world="main[501]")
    seen = tuple(msgspec.structs.replace(p, pid=501, syscall=call) for p in made.processes)
    return msgspec.structs.replace(made, identity=identity, processes=seen)


def with_queue(*beside: RankCapture) -> Capture:
    """Rank 0 reads a queue that the server and its keeper have, rank 1 is in a collective."""
    one = rank(1, (operation(1, PAIR, 1), operation(2, PAIR, 2, done=False)), collective_frames("all_reduce"))
    capture = world(shared(500, 501), one, *beside)
    return msgspec.structs.replace(capture, job=msgspec.structs.replace(capture.job, world_size=2))


def test_who_shares_a_queue() -> None:
    """Of two that have the other end one waits for its children: the other one is meant."""
    joins = (Frame("Popen.poll", f"{STDLIB}/multiprocessing/popen_fork.py", 27), *ONE_THREAD)
    found = verdict(with_queue(server(Beside(ONE_THREAD, ())), keeper(joins, "wait4")))
    assert found.culprit_ranks == (SERVER,)


def test_several_who_share_a_queue() -> None:
    """Both are at work: which of them is to fill the queue, nothing tells."""
    found = verdict(with_queue(server(Beside(ONE_THREAD, ())), keeper(ONE_THREAD, "read")))
    assert found.culprit_ranks == (0,)


def test_a_producer_that_has_failed() -> None:
    """Nobody who lives can be meant, and one process beside the job has failed: it is lost, once the patience is over."""
    joins = (Frame("Popen.poll", f"{STDLIB}/multiprocessing/popen_fork.py", 27), *ONE_THREAD)
    identity = RankIdentity(SERVER + 2, 502, 1.0, "node-0", world="maker[502]")
    lost = RankCapture(identity, (ProcessSample(NOW_NS, 502, "Z", exit=ExitStatus(code=1)),))
    found = verdict(with_queue(server(Beside(SERVES, ())), keeper(joins, "wait4"), lost))
    assert found.culprit_ranks == (SERVER + 2,)
    assert (found.kind, found.proven) == ("rank_lost", False)


def test_a_stopped_server() -> None:
    """A server that is stopped does not answer: a hang after the patience, and not after ten times that."""
    stopped = server(Beside())
    seen = tuple(msgspec.structs.replace(p, state="T") for p in stopped.processes)
    found = verdict(waiting_job_with(msgspec.structs.replace(stopped, processes=seen)))
    assert (found.kind, found.culprit_ranks) == ("stall", (SERVER,))


def waiting_job_with(beside: RankCapture) -> Capture:
    """Rank 0 asks that process, rank 1 is in a collective."""
    capture = waiting_job(Beside())
    return msgspec.structs.replace(capture, ranks=(*capture.ranks[:2], beside))


def test_the_other_end_elsewhere() -> None:
    """Where the other end is on no process of the node, that is said of the rank."""
    capture = waiting_job(Beside())
    one = capture.ranks[0]
    seen = tuple(msgspec.structs.replace(p, server=None, elsewhere="10.0.0.7:8000") for p in one.processes)
    found = verdict(
        msgspec.structs.replace(capture, ranks=(msgspec.structs.replace(one, processes=seen), capture.ranks[1]))
    )
    assert found.culprit_ranks == (0,)
    assert "rank 0 waits for 10.0.0.7:8000 on another node; the other end is not visible from here" in found.waits


def behind_a_thread(awaits: Frame, thread: tuple[Frame, ...]) -> Capture:
    """The job, where rank 0's main thread awaits what another thread gives it; that one reads from the server."""
    capture = waiting_job(Beside())
    one = capture.ranks[0]
    threads = (
        ThreadStack(1000, "MainThread", True, False, False, (awaits, ASKS[-1]), ident=1),
        ThreadStack(1001, "pool_0", False, False, False, thread, ident=2),
    )
    own = ThreadSample(1001, "S", switches=7, wait_channel="sk_wait_data", syscall="read", server=SERVER_PID)
    seen = tuple(msgspec.structs.replace(p, syscall="futex", server=None, threads=(own,)) for p in one.processes)
    stacks = tuple(StackSample(p.at_ns, threads) for p in seen)
    behind = msgspec.structs.replace(one, processes=seen, stacks=stacks)
    return msgspec.structs.replace(capture, ranks=(behind, *capture.ranks[1:]))


def test_a_pools_thread_asks() -> None:
    """The main thread awaits a thread's result, and that one an answer: the rank is seen from that one."""
    awaits = Frame("Future.result", f"{STDLIB}/concurrent/futures/_base.py", 451)
    assert verdict(behind_a_thread(awaits, ASKS)).culprit_ranks == (SERVER,)


def test_a_thread_that_takes_commands_asks_for_nothing() -> None:
    """It puts them into the queue of the main thread: the rank is where that one waits for the next."""
    case = build_case(behind_a_thread(Frame("Queue.get", f"{STDLIB}/queue.py", 171), COMMANDS))
    assert case.blame.culprits == (0,)
    assert case.views[0].thread is None


def test_all_ranks_ask() -> None:
    """Where every rank awaits an answer and none is in a collective, the server holds up all of them."""
    capture = world(asking(0), asking(1), server(Beside()))
    job = msgspec.structs.replace(capture.job, world_size=2)
    found = verdict(msgspec.structs.replace(capture, job=job, at_ns=NOW_NS + 10 * SECOND_NS))
    assert found.culprit_ranks == (SERVER,)
    assert found.waiting_ranks == (0, 1)


def test_a_rank_that_goes_on() -> None:
    """As long as one rank computes, and none waits for another, no rank is held up."""
    busy = rank(1, (operation(1, PAIR, 1),), ASKS[2:], busy=True)
    capture = world(asking(0), busy, server(Beside()))
    found = verdict(
        msgspec.structs.replace(capture, job=msgspec.structs.replace(capture.job, world_size=2), at_ns=NOW_NS)
    )
    assert found.kind == "healthy"


def test_a_person_is_asked_and_no_process() -> None:
    """Whoever has the other end of the standard input: the rank itself is named."""
    prompt = (Frame("create", "/srv/train/store.py", 26, 'answer = input("Replace it? [y/N] ")'), *ASKS[2:])
    capture = waiting_job(Beside())
    asks = capture.ranks[0]
    shown = tuple(
        msgspec.structs.replace(s, threads=tuple(msgspec.structs.replace(t, frames=prompt) for t in s.threads))
        for s in asks.stacks
    )
    found = verdict(
        msgspec.structs.replace(capture, ranks=(msgspec.structs.replace(asks, stacks=shown), *capture.ranks[1:]))
    )
    assert found.culprit_ranks == (0,)
    assert found.cause is not None
    assert found.cause.id == "debugger"
