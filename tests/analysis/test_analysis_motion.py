"""Whether a rank moves, and since when it has not."""

from __future__ import annotations

import msgspec

from hangwatch.analysis.patience import fixed_patience
from hangwatch.analysis.ranks.motion import read_motion, still_since_ns
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.capture import RankCapture
from hangwatch.model.stacks import Block, Frame, Iterations, StackSample, ThreadStack
from recorded import load
from worlds import NOW_NS, SECOND_NS, collective_frames, rank


def test_a_thread_that_is_ready_to_run_is_not_stuck_though_it_gets_no_processor() -> None:
    """On an overloaded machine a rank at work may use less CPU time than one that waits usually does."""
    capture = rank(0, (), collective_frames("all_reduce"), state="R", channel="")
    assert read_motion(capture).state == "busy"
    once = tuple(msgspec.structs.replace(p, state="S" if i == 2 else "R") for i, p in enumerate(capture.processes))
    assert read_motion(msgspec.structs.replace(capture, processes=once)).state == "stuck"


def test_a_call_that_polls_has_stood_since_its_frames_have() -> None:
    """It sleeps and wakes all the time: that dates a loop of the program, and not one call of a library."""
    capture = rank(0, (), collective_frames("init_process_group"))
    waking = tuple(msgspec.structs.replace(p, switches=i) for i, p in enumerate(capture.processes))
    capture = msgspec.structs.replace(capture, processes=waking)
    assert still_since_ns(capture) == NOW_NS
    assert still_since_ns(capture, polls=True) == NOW_NS - SECOND_NS


def test_the_sample_before_the_window_counts() -> None:
    """Samples are seconds apart: what moved between the last one before the window and its first has moved in the window."""
    capture = rank(0, (), collective_frames("all_reduce"))
    busy = (msgspec.structs.replace(capture.processes[0], cpu_s=0.0), *capture.processes[1:])
    capture = msgspec.structs.replace(capture, processes=busy)
    assert read_motion(capture, NOW_NS - SECOND_NS // 2 - 1).state == "busy"
    assert read_motion(capture, NOW_NS - SECOND_NS // 2).state == "stuck"


def test_what_a_rank_did_before_its_wait_is_no_motion_in_it() -> None:
    """However far the window reaches back: a job that loaded for minutes before it hung is not busy for the next ones."""
    capture = rank(0, (), collective_frames("all_reduce"))
    first, last = capture.processes[0].at_ns, capture.processes[-1].at_ns
    busy = (msgspec.structs.replace(capture.processes[0], cpu_s=0.0), *capture.processes[1:])
    capture = msgspec.structs.replace(capture, processes=busy)
    assert read_motion(capture).state == "busy"
    assert read_motion(capture, began_ns=first - 1).state == "busy"
    assert read_motion(capture, began_ns=first).state == "stuck"
    both = tuple(msgspec.structs.replace(p, cpu_s=float(i)) for i, p in enumerate(busy))
    assert read_motion(msgspec.structs.replace(capture, processes=both), began_ns=last).state == "busy"


def test_a_proof_does_not_wait_for_what_came_before() -> None:
    """A rank that was seen at work before it came to its wait is proven to hang as soon as it is seen in it."""
    capture = load("group_order")

    def earlier(taken: RankCapture) -> RankCapture:
        process = msgspec.structs.replace(
            taken.processes[0], at_ns=taken.processes[0].at_ns - 600 * SECOND_NS, cpu_s=0.0
        )
        loading = ThreadStack(process.pid, "MainThread", True, True, False, collective_frames("load", 5))
        stack = StackSample(process.at_ns, (loading,))
        return msgspec.structs.replace(taken, processes=(process, *taken.processes), stacks=(stack, *taken.stacks))

    capture = msgspec.structs.replace(capture, ranks=tuple(earlier(one) for one in capture.ranks))
    assert diagnose(capture, patience=fixed_patience(3600.0)).verdict.proven


def test_who_will_try_again_is_not_stuck() -> None:
    """It sleeps in a handler, inside a loop, and wakes: each round is an attempt. One that never wakes has given up moving."""
    sleep = Frame(
        "fetch", "/srv/train/data.py", 20, "time.sleep(wait)",
        blocks=(Block("while", 15, "while True:"), Block("try", 16, "try:"), Block("except", 18, "except OSError:")),
    )  # fmt: skip
    capture = rank(0, (), (sleep, Frame("<module>", "/srv/train/train.py", 90)))
    waking = tuple(msgspec.structs.replace(p, switches=i) for i, p in enumerate(capture.processes))
    assert read_motion(msgspec.structs.replace(capture, processes=waking)).state == "busy"
    assert read_motion(capture).state == "stuck"
    once = msgspec.structs.replace(sleep, blocks=sleep.blocks[1:])
    ended = rank(0, (), (once, Frame("<module>", "/srv/train/train.py", 90)))
    assert read_motion(msgspec.structs.replace(ended, processes=waking)).state == "stuck"


def _looping(text: str, iterations: Iterations, numbers: tuple[int, int]) -> RankCapture:
    """A rank that sleeps in a loop, seen in two iterations."""
    captured = rank(0, (), ())

    def stack(number: int, at_ns: int) -> StackSample:
        block = Block(text.partition(" ")[0], 15, text, iterations)
        frame = Frame(
            "put", "/srv/train/data.py", 20, "time.sleep(wait)", locals={"i": f"int={number}"}, blocks=(block,)
        )
        return StackSample(at_ns, (ThreadStack(captured.identity.pid, "MainThread", True, False, False, (frame,)),))

    stacks = tuple(stack(n, p.at_ns) for n, p in zip(numbers, captured.processes[-2:], strict=True))
    return msgspec.structs.replace(captured, stacks=stacks)


def test_who_is_in_a_later_iteration_has_got_on() -> None:
    """Where the number of iterations alone ends the loop. One that something else may end polls, however it is counted."""
    paced = Iterations("i", 15, breaks=False, bounded=True)
    assert read_motion(_looping("for i in range(n):", paced, (3, 4))).state == "busy"
    assert read_motion(_looping("for i in range(n):", paced, (4, 4))).state == "stuck"
    polling = Iterations("i", 15, breaks=True)
    assert read_motion(_looping("for i in range(n):", polling, (3, 4))).state == "stuck"
    counted = Iterations("i", 16, breaks=False)
    assert read_motion(_looping("while not ready():", counted, (3, 4))).state == "stuck"
