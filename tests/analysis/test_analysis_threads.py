"""A rank is seen from the thread whose collectives matter, and waits only where that thread waits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec
import pytest

from hangwatch.analysis.case import Case, build_case
from hangwatch.analysis.patience import fixed_patience
from hangwatch.analysis.ranks.threads import is_idle_worker, may_join
from hangwatch.diagnosis.registry import explain
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.capture import Capture, RankCapture
from hangwatch.model.collectives import Group, Operation
from hangwatch.model.processes import ThreadSample
from hangwatch.model.stacks import PROBE_THREAD, Block, Frame, StackSample, ThreadStack
from worlds import SECOND_NS, TORCH, operation, world
from worlds import rank as bare_rank

PAIR = Group("0", (0, 1), "default_pg")
SAVERS = Group("1", (0, 1), "savers")
FILE = "/srv/serve/service.py"
LIBRARY = "/usr/lib/python3.11/"
RUN = Frame("train", FILE, 30, "step(job)")
BEGIN = (Frame("Thread.run", LIBRARY + "threading.py", 982), Frame("Thread._bootstrap", LIBRARY + "threading.py", 1002))
POOL = (
    RUN,
    Frame("_WorkItem.run", LIBRARY + "concurrent/futures/thread.py", 58),
    Frame("_worker", LIBRARY + "concurrent/futures/thread.py", 83),
    *BEGIN,
)
IDLE = (
    Frame("_worker", LIBRARY + "concurrent/futures/thread.py", 81),
    *BEGIN,
)
LOOP = (
    Frame("EpollSelector.select", LIBRARY + "selectors.py", 468),
    Frame("BaseEventLoop._run_once", LIBRARY + "asyncio/base_events.py", 1884),
    Frame("run", LIBRARY + "asyncio/runners.py", 190),
    Frame("<module>", FILE, 90, "asyncio.run(serve())"),
)
JOIN = (
    Frame("Thread._wait_for_tstate_lock", LIBRARY + "threading.py", 1139),
    Frame("Thread.join", LIBRARY + "threading.py", 1119),
    Frame("main", FILE, 60, "saver.join()"),
)
MAIN, WORKER, SECOND = 7000, 7001, 7002


def inside(op: str = "all_reduce") -> tuple[Frame, ...]:
    """A pool's thread in a collective."""
    return (Frame(op, TORCH, 100), Frame("step", FILE, 20, f"dist.{op}(x)"), *POOL)


def asleep(line: str = "time.sleep(600)") -> tuple[Frame, ...]:
    """A pool's thread in a call of the program."""
    return (Frame("step", FILE, 18, line), *POOL)


@dataclass(frozen=True)
class Thread:
    """A side thread in all samples, and what the kernel says of it."""

    frames: tuple[Frame, ...]
    ident: int = WORKER
    channel: str = "futex_do_wait"
    call: str = "futex"
    cpu_s: float = 0.0
    name: str = "train_0"
    on: str | None = None


SLEEPS = Thread(asleep(), channel="hrtimer_nanosleep", call="clock_nanosleep")


def called_by(thread: int, *operations: Operation) -> tuple[Operation, ...]:
    """The operations with the thread that called them on record."""
    return tuple(msgspec.structs.replace(o, thread=thread) for o in operations)


def rank(
    number: int,
    operations: tuple[Operation, ...],
    main: tuple[Frame, ...],
    threads: Sequence[Thread] = (),
    *,
    channel: str = "ep_poll",
    cpu_s: float = 0.0,
) -> RankCapture:
    """A rank with side threads, three samples of each; ``cpu_s`` and ``Thread.cpu_s``: used between two samples."""
    plain = bare_rank(number, operations, main, channel=channel)
    stacks, processes = [], []
    for i, (stack, process) in enumerate(zip(plain.stacks, plain.processes, strict=True)):
        first = msgspec.structs.replace(stack.threads[0], ident=MAIN)
        others = (ThreadStack(t.ident, t.name, False, False, False, t.frames, t.ident) for t in threads)
        stacks.append(StackSample(stack.at_ns, (first, *others)))
        kernel = tuple(ThreadSample(t.ident, "S", t.cpu_s * i, None, 3, t.channel, t.call, t.on) for t in threads)
        processes.append(msgspec.structs.replace(process, threads=kernel, cpu_s=1.0 + cpu_s * i))
    return msgspec.structs.replace(plain, stacks=tuple(stacks), processes=tuple(processes))


def service(other: RankCapture) -> Capture:
    """Rank 0's pool is in the second all_reduce, under an event loop; rank 1 is as given."""
    done = called_by(WORKER, operation(1, PAIR, 1), operation(2, PAIR, 2, done=False))
    return world(rank(0, done, LOOP, [Thread(inside())]), other)


FIRST = called_by(WORKER, operation(1, PAIR, 1))


def case_of(capture: Capture) -> Case:
    return build_case(capture)


def test_a_rank_under_an_event_loop_waits_in_its_pool_thread() -> None:
    """Its main thread polls for events: that is no reason to say that it waits for no rank."""
    case = case_of(service(rank(1, FIRST, LOOP, [SLEEPS])))
    assert (case.blame.shape, case.blame.culprits, case.blame.waiting) == ("root", (1,), (0,))
    assert case.views[0].wait is not None
    assert case.views[0].wait.op == "all_reduce"
    assert case.views[0].who == "thread train_0"


def test_a_culprit_is_seen_from_the_thread_that_is_to_join() -> None:
    """It is asleep in the program, while the main thread could poll for ever."""
    view = case_of(service(rank(1, FIRST, LOOP, [SLEEPS]))).views[1]
    assert view.frames[0].source == "time.sleep(600)"
    assert view.capture.processes[-1].syscall == "clock_nanosleep"
    assert view.motion.state == "stuck"


def test_the_cpu_time_of_another_thread_is_no_motion() -> None:
    """The main thread computes at full speed, and the thread that the others wait for sleeps."""
    view = case_of(service(rank(1, FIRST, LOOP, [SLEEPS], cpu_s=0.5))).views[1]
    assert view.motion.state == "stuck"


def test_a_pool_thread_that_computes_is_busy() -> None:
    """A slow thread that goes on is no hang."""
    computes = replace(SLEEPS, channel="", call="", cpu_s=0.5)
    capture = service(rank(1, FIRST, LOOP, [computes]))
    assert case_of(capture).views[1].motion.state == "busy"
    assert diagnose(capture, patience=fixed_patience(6.0)).verdict.kind == "straggler"


def test_where_its_thread_is_idle_the_rank_is_in_its_main_thread() -> None:
    """The pool has nothing to do: what should give it something is the event loop."""
    view = case_of(service(rank(1, FIRST, LOOP, [Thread(IDLE)]))).views[1]
    assert view.thread is None
    assert diagnose(service(rank(1, FIRST, LOOP, [Thread(IDLE)])), patience=fixed_patience(6.0)).verdict.kind == "stall"


def test_where_its_thread_has_ended_one_in_the_same_part_of_the_program_joins() -> None:
    """Each save has a thread of its own; its number is on no record."""
    view = case_of(service(rank(1, FIRST, LOOP, [Thread(IDLE, 7003), replace(SLEEPS, ident=SECOND)]))).views[1]
    assert view.thread is not None
    assert view.thread.ident == SECOND


def test_without_a_record_of_threads_the_one_in_the_same_part_joins() -> None:
    """Older recorders do not tell which thread called."""
    plain = (operation(1, PAIR, 1),)
    here = rank(0, (*plain, operation(2, PAIR, 2, done=False)), LOOP, [Thread(inside())])
    case = case_of(world(here, rank(1, plain, LOOP, [SLEEPS])))
    assert case.blame.culprits == (1,)
    assert case.views[1].frames[0].source == "time.sleep(600)"


def test_a_main_thread_that_does_the_collectives_stays_the_one() -> None:
    """A thread of the program that sleeps is none of the others' business."""
    reads = (Frame("load", FILE, 40, "file.read()"), Frame("<module>", FILE, 90))
    mine = called_by(MAIN, operation(1, PAIR, 1), operation(2, PAIR, 2, done=False))
    main = (Frame("all_reduce", TORCH, 100), Frame("<module>", FILE, 91))
    case = case_of(
        world(
            rank(0, mine, main, [SLEEPS], channel="futex_do_wait"),
            rank(1, called_by(MAIN, operation(1, PAIR, 1)), reads, [SLEEPS], channel="pipe_read"),
        )
    )
    assert case.blame.culprits == (1,)
    assert [v.thread for v in case.views.values()] == [None, None]


def test_a_main_thread_that_waits_for_its_thread_is_where_the_rank_is() -> None:
    """It goes on when that one does; where ranks differ is seen on the way of the program."""
    done = called_by(WORKER, operation(1, PAIR, 1), operation(2, PAIR, 2, done=False))
    conditions = (Frame("all_reduce", TORCH, 100), Frame("<module>", FILE, 91))
    other = (operation(1, PAIR, 1), *called_by(MAIN, operation(3, SAVERS, 1, done=False)))
    case = case_of(
        world(
            rank(0, done, JOIN, [Thread(inside())], channel="futex_do_wait"),
            rank(1, other, conditions, channel="futex_do_wait"),
        )
    )
    assert case.views[0].thread is None
    assert case.views[0].frames == JOIN
    assert any(0 in edge.waiters for edge in case.graph.edges)


def _crossing(side: tuple[Thread, ...] = ()) -> Capture:
    """Two main threads, each in a group where the other is not."""

    def main(op: str) -> tuple[Frame, ...]:
        return (Frame(op, TORCH, 100), Frame("<module>", FILE, 91))

    one = called_by(MAIN, operation(1, PAIR, 1), operation(2, SAVERS, 1), operation(3, PAIR, 2, done=False))
    two = called_by(MAIN, operation(1, PAIR, 1), operation(2, SAVERS, 1), operation(3, SAVERS, 2, done=False))
    return world(
        rank(0, one, main("all_reduce"), side, channel="futex_do_wait"),
        rank(1, two, main("all_reduce"), channel="futex_do_wait"),
    )


TIMER = (Frame("Event.wait", LIBRARY + "threading.py", 622), Frame("Timer.run", LIBRARY + "threading.py", 1376))
TQDM = (
    Frame("Event.wait", LIBRARY + "threading.py", 622),
    Frame("TMonitor.run", "/opt/venv/lib/python3.11/site-packages/tqdm/_monitor.py", 60),
)


@pytest.mark.parametrize(
    ("side", "proven"),
    [
        ((), True),
        ((SLEEPS,), False),
        ((Thread(inside()),), False),
        ((Thread(TIMER),), False),
        ((Thread(IDLE),), True),
        ((Thread(TQDM),), True),
        ((Thread(asleep(), name=PROBE_THREAD),), True),
    ],
    ids=["alone", "a thread asleep", "a thread inside", "a timer", "an idle pool", "a progress bar", "the probe"],
)
def test_nothing_is_proven_where_another_thread_could_still_join(side: tuple[Thread, ...], proven: bool) -> None:
    """A thread of the program may call the very collective that the other rank waits for."""
    case = case_of(_crossing(side))
    assert case.blame.shape == "cycle"
    assert (case.blame.proof is not None) == proven


def test_pool_threads_in_a_circle_prove_nothing() -> None:
    """The event loop may give the pool another job at any time."""
    one = called_by(WORKER, operation(1, PAIR, 1), operation(2, SAVERS, 1), operation(3, PAIR, 2, done=False))
    two = called_by(WORKER, operation(1, PAIR, 1), operation(2, SAVERS, 1), operation(3, SAVERS, 2, done=False))
    case = case_of(
        world(rank(0, one, LOOP, [Thread(inside())]), rank(1, two, LOOP, [Thread(inside())])),
    )
    assert case.blame.shape == "cycle"
    assert case.blame.proof is None


def test_what_two_threads_have_in_flight_is_in_no_order() -> None:
    """The younger of two operations does not wait behind the older one of another thread."""
    slow = called_by(WORKER, operation(2, SAVERS, 1, done=False))
    young = called_by(MAIN, operation(3, PAIR, 2, done=False))
    both = (*called_by(MAIN, operation(1, PAIR, 1)), *slow, *young)
    main = (Frame("all_reduce", TORCH, 100), Frame("<module>", FILE, 91))
    other = (*called_by(MAIN, operation(1, PAIR, 1)), *called_by(MAIN, operation(2, PAIR, 2, done=False)))
    case = case_of(world(rank(0, both, main, [Thread(inside())]), rank(1, other, main, channel="futex_do_wait")))
    assert not [e for e in case.graph.edges if e.reason == "queued"]
    alone = tuple(msgspec.structs.replace(o, thread=0) for o in both)
    case = case_of(world(rank(0, alone, main, channel="futex_do_wait"), rank(1, other, main, channel="futex_do_wait")))
    assert [e.reason for e in case.graph.edges if e.awaited == (0,)] == ["queued"]


def _saving(after_s: float) -> Capture:
    """Rank 1's saver is stuck for nine seconds; the main threads have completed a step ``after_s`` seconds ago."""

    def step(number: int) -> Operation:
        created = msgspec.structs.replace(operation(4, PAIR, 2), created_ns=1000 * SECOND_NS - int(after_s * SECOND_NS))
        return msgspec.structs.replace(created, thread=MAIN, seq=number)

    computes = (Frame("forward", FILE, 70, "model(x)"), Frame("<module>", FILE, 90))
    first = (*called_by(MAIN, operation(1, PAIR, 1)), *called_by(WORKER, operation(2, SAVERS, 1)))
    waits = (*first, *called_by(WORKER, operation(3, SAVERS, 2, done=False)), step(2))
    return world(
        rank(0, waits, computes, [Thread(inside("all_gather"))], channel="", cpu_s=0.5),
        rank(1, (*first, step(2)), computes, [SLEEPS], channel="", cpu_s=0.5),
    )


def test_a_stuck_saver_beside_a_training_that_goes_on_is_no_hang() -> None:
    """Nothing waits for it but its own kind; it is reported late, and as a warning."""
    assert diagnose(_saving(0.5), patience=fixed_patience(3.0)).verdict.kind == "healthy"
    later = replace(fixed_patience(3.0), busy_s=5.0)
    assert diagnose(_saving(0.5), patience=later).verdict.kind == "straggler"


def test_a_stuck_saver_is_a_hang_once_training_has_stopped() -> None:
    """Nor is it forgotten that training went on before."""
    verdict = diagnose(_saving(6.0), patience=fixed_patience(3.0)).verdict
    assert (verdict.kind, verdict.culprit_ranks) == ("stall", (1,))


def _listening(training: tuple[Operation, ...]) -> Capture:
    """Rank 1's listener awaits the next command, which rank 0's sends when its queue has one; the main threads train."""
    forever = (Block("while", 50, "while True:"),)
    receives = (
        Frame("broadcast", TORCH, 100, locals={"src": "int=0"}),
        Frame("listen", FILE, 52, "dist.broadcast(command, src=0)", blocks=forever),
        *BEGIN,
    )
    reads = (
        Frame("Connection._recv", LIBRARY + "multiprocessing/connection.py", 395),
        Frame("Queue.get", LIBRARY + "multiprocessing/queues.py", 103),
        Frame("listen", FILE, 51, "command = commands.get()", blocks=forever),
        *BEGIN,
    )
    in_step = (Frame("all_reduce", TORCH, 100), Frame("<module>", FILE, 91))
    reading = (Frame("load", FILE, 40, "file.read()"), Frame("<module>", FILE, 90))
    before = called_by(WORKER, operation(1, SAVERS, 1))
    awaited = called_by(WORKER, operation(2, SAVERS, 2, "broadcast", done=False))
    reader = Thread(reads, channel="anon_pipe_read", call="read", on="pipe:[7] from 4000 python")
    return world(
        rank(0, (*before, *training[:1]), reading, [reader], channel="pipe_read"),
        rank(1, (*before, *awaited, *training), in_step, [Thread(receives)], channel="futex_do_wait"),
    )


def test_a_listener_without_commands_is_idle_and_hides_no_hang() -> None:
    """What it waits for is in flight for as long as there is no command; training may hang all the same."""
    step = called_by(MAIN, operation(3, PAIR, 1))
    hangs = _listening((*step, *called_by(MAIN, operation(4, PAIR, 2, done=False))))
    verdict = diagnose(hangs, patience=fixed_patience(3.0)).verdict
    assert (verdict.kind, verdict.culprit_ranks, verdict.waiting_ranks) == ("stall", (0,), (1,))
    assert verdict.collective is not None
    assert verdict.collective.op == "all_reduce"
    assert diagnose(_listening(step), patience=fixed_patience(3.0)).verdict.kind == "healthy"


def _opposite(second: bool, thread: int = SECOND) -> Capture:
    """Two threads a rank in one group: on rank 0 the all_gather came first, on rank 1 the all_reduce."""
    gather, reduce = ("all_gather", WORKER), ("all_reduce", thread)

    def calls(*order: tuple[str, int]) -> tuple[Operation, ...]:
        pending = (operation(2 + i, PAIR, 2 + i, op, done=False) for i, (op, _) in enumerate(order))
        return (*FIRST, *(called_by(t, o)[0] for o, (_, t) in zip(pending, order, strict=True)))

    threads = [Thread(inside("all_gather")), Thread(inside(), SECOND, name="train_1")]
    return world(
        rank(0, calls(gather, reduce) if second else calls(gather), LOOP, threads),
        rank(1, calls(reduce, gather), LOOP, threads),
    )


@pytest.mark.parametrize(("second", "level"), [(True, "certain"), (False, "strong")])
def test_threads_in_opposite_order_are_the_cause(second: bool, level: str) -> None:
    """Each rank calls both: it has skipped nothing."""
    case = case_of(_opposite(second))
    assert case.blame.proof is not None
    match = explain(case)[0]
    assert (match.cause, match.level) == ("thread-order", level)
    assert "thread train_1" in match.says


def test_one_thread_that_calls_them_in_another_order_is_no_matter_of_threads() -> None:
    """Then its own code has the order."""
    assert "thread-order" not in {m.cause for m in explain(case_of(_opposite(True, WORKER)))}


def test_which_threads_may_join_and_which_rest() -> None:
    """A pool's worker has something to do, or has not."""

    def stack(frames: tuple[Frame, ...]) -> ThreadStack:
        return ThreadStack(1, None, False, False, False, frames)

    assert is_idle_worker(stack(IDLE))
    assert not is_idle_worker(stack(POOL))
    assert [may_join(f) for f in (IDLE, POOL, TIMER, TQDM, ())] == [False, True, True, False, False]
