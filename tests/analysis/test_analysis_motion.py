"""Whether a rank moves, and since when it has not."""

from __future__ import annotations

import msgspec

from hangwatch.analysis.motion import read_motion, still_since_ns
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
