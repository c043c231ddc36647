"""Exceptions as the cause: one that ended a thread, one that is being handled where the rank is stuck."""

from __future__ import annotations

import msgspec
import pytest

from corpus.catalogue import load_capture, load_catalogue
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.capture import Capture, RankCapture
from hangwatch.model.incident import Verdict
from hangwatch.model.stacks import Block, Frame, StackSample, ThreadStack
from recorded import first_match, load

REPORTED = ("scale (/srv/train/data.py:12)", "ValueError: batch 4 is constant")
THREAD = (
    "thread tracker: TimeoutError",
    "thread metrics: ValueError: dict contains fields, in write (/srv/train/log.py:9)",
)
EXCEPT, FINALLY, WITH = (
    Block("except", 30, "except Exception:"),
    Block("finally", 40, "finally:"),
    Block("with", 1, "with x:"),
)
BARE, MISS = Block("except", 30, "except:"), Block("except", 30, "except KeyError:")


def changed(capture: Capture, culprit: int, **values: object) -> Capture:
    """The capture with parts of one rank's changed."""
    ranks = tuple(msgspec.structs.replace(r, **values) if r.rank == culprit else r for r in capture.ranks)
    return msgspec.structs.replace(capture, ranks=ranks)


def standing_in(rank: RankCapture, *frames: Frame) -> tuple[StackSample, ...]:
    """Samples of a main thread that stands in these frames."""
    main = ThreadStack(rank.identity.pid, "MainThread", True, False, False, frames)
    return tuple(StackSample(sample.at_ns, (main,)) for sample in rank.stacks)


def handler(*frames: Frame, reported: tuple[str, ...] = REPORTED) -> Capture:
    """Rank 1 handles an exception in these frames, asleep in the kernel."""
    capture = load("stopped_rank")
    (rank,) = (r for r in capture.ranks if r.rank == 1)
    asleep = tuple(
        msgspec.structs.replace(p, state="S", wait_channel="hrtimer_nanosleep", syscall="clock_nanosleep", cpu_s=1.0)
        for p in rank.processes
    )
    module = Frame("<module>", "/srv/train/train.py", 60)
    outermost = Frame("<module>", "<string>", 1) if frames[-1].function == "spawn_main" else module
    stacks = standing_in(rank, *frames, outermost)
    return changed(capture, 1, stacks=stacks, processes=asleep, handled_error=reported)


def verdict_of_handler(*frames: Frame, reported: tuple[str, ...] = REPORTED) -> Verdict:
    """What is said of that."""
    return diagnose(handler(*frames, reported=reported)).verdict


def frame(function: str, *blocks: Block) -> Frame:
    """A frame of the user's own code."""
    return Frame(function, "/srv/train/train.py", 35, "keep_node()", blocks=blocks)


@pytest.mark.parametrize(
    ("frames", "sure"),
    [
        ((frame("keep_node"), frame("main", EXCEPT)), True),
        ((frame("keep_node"), frame("main", BARE)), True),
        ((frame("fetch", MISS), frame("main")), False),
        ((frame("main", FINALLY),), True),
        ((Frame("__exit__", "/usr/lib/python3.11/concurrent/futures/_base.py", 647), frame("main")), True),
        ((frame("main", WITH),), False),
        ((frame("main"),), False),
    ],
)
def test_handled_exception_is_the_cause_of_a_rank_that_stands_in_its_handler(
    frames: tuple[Frame, ...], sure: bool
) -> None:
    """Nearly certain under ``finally``, an ``except`` of anything, or leaving a ``with``; less so where it may be ordinary."""
    cause = verdict_of_handler(*frames).cause
    assert cause is not None
    assert cause.id == "rank-raised"
    assert (first_match(handler(*frames)).level == "certain") is sure
    assert any(REPORTED[1] in e.says for e in cause.evidence)


@pytest.mark.parametrize(("given", "found"), [("KeyError", True), ("None", False), ("?", False)])
def test_stack_alone_shows_an_exception_on_the_way_out_of_a_with(given: str, found: bool) -> None:
    """Without the probe: ``__exit__`` is given the exception, or None where the block has just ended."""
    file = "/usr/lib/python3.11/concurrent/futures/_base.py"
    leaving = Frame("Executor.__exit__", file, 647, locals={"exc_type": "type", "exc_val": given})
    verdict = verdict_of_handler(leaving, frame("main"), reported=())
    assert verdict.cause is not None
    assert (verdict.cause.id == "rank-raised") is found
    assert ("KeyError" in verdict.cause.explanation) is found


def test_exception_that_the_waiting_ranks_handle_too_says_nothing() -> None:
    """The whole program may run in a handler: in that of an optional import that failed, say."""
    capture = load("blocked_io")
    (culprit,) = diagnose(capture).verdict.culprit_ranks
    ranks = tuple(msgspec.structs.replace(r, handled_error=REPORTED) for r in capture.ranks)
    verdict = diagnose(msgspec.structs.replace(capture, ranks=ranks)).verdict
    assert verdict.culprit_ranks == (culprit,)
    assert all(c is not None and c.id != "rank-raised" for c in (verdict.cause, *verdict.alternatives))


def test_exception_that_is_handled_by_a_rank_at_work_says_nothing() -> None:
    """It has gone on: what it computes is no failure."""
    capture = load("rank0_work")
    verdict = diagnose(changed(capture, 0, handled_error=REPORTED)).verdict
    assert all(c is not None and c.id != "rank-raised" for c in (verdict.cause, *verdict.alternatives))


def test_exception_that_ended_a_thread_is_the_cause_of_a_wait_for_it() -> None:
    """The wait itself comes second: what has to be repaired is the exception."""
    verdict = diagnose(changed(load("thread_died"), 2, thread_error=THREAD)).verdict
    assert verdict.cause is not None
    assert verdict.cause.id == "rank-raised"
    assert [e.says for e in verdict.cause.evidence[:2]] == list(THREAD)
    assert f"a thread of rank 2 ({THREAD[1]})" in verdict.cause.explanation
    assert verdict.alternatives[0] is not None
    assert verdict.alternatives[0].id == "thread-stall"


@pytest.mark.parametrize("name", ["blocked_io", "dataloader", "debugger", "rank_conditional", "thread_future"])
def test_exception_of_another_thread_does_not_explain_other_hangs(name: str) -> None:
    """Threads die in jobs that run on: only a wait for a thread makes it the first explanation."""
    capture = load(name)
    before = diagnose(capture).verdict
    ranks = tuple(msgspec.structs.replace(r, thread_error=THREAD) for r in capture.ranks)
    after = diagnose(msgspec.structs.replace(capture, ranks=ranks)).verdict
    assert before.cause is not None
    assert after.cause is not None
    assert after.cause.id == before.cause.id


@pytest.mark.parametrize(
    ("status", "cause"), [("int=1", "rank-raised"), ("int=0", "early-exit"), ("int", "early-exit")]
)
def test_status_of_a_child_of_multiprocessing_tells_a_failure_from_an_early_exit(status: str, cause: str) -> None:
    """It prints the exception itself and has no traceback left, but it knows how it is going to end the process."""
    file = "/usr/lib/python3.11/"
    shutdown = Frame("_shutdown", file + "threading.py", 1553)
    bootstrap = Frame("BaseProcess._bootstrap", file + "multiprocessing/process.py", 330, locals={"exitcode": status})
    verdict = verdict_of_handler(
        shutdown, bootstrap, Frame("spawn_main", file + "multiprocessing/spawn.py", 122), reported=()
    )
    assert verdict.cause is not None
    assert verdict.cause.id == cause


def test_exception_on_its_way_out_of_the_program_is_a_failure_and_no_early_exit() -> None:
    """The interpreter's end may begin before the exception is printed: where multiprocessing joins its children, say."""
    file = "/usr/lib/python3.11/multiprocessing/"
    frames = (
        Frame("_exit_function", file + "util.py", 360), Frame("BaseProcess._bootstrap", file + "process.py", 317),
        Frame("spawn_main", file + "spawn.py", 122),
    )  # fmt: skip
    cause = verdict_of_handler(*frames).cause
    assert cause is not None
    assert cause.id == "rank-raised"


def test_rank_that_waits_in_its_clean_up_may_wake_now_and_then() -> None:
    """A collective that is polled is no work: its rank is blocked in the ``finally`` that the exception led to."""
    (entry,) = load_catalogue(["tile-without-moisture"])
    capture = load_capture(entry)
    assert diagnose(capture).case.views[1].motion.state == "busy"
    verdict = diagnose(capture).verdict
    assert verdict.cause is not None
    assert verdict.cause.id == "rank-raised"
