"""When a job's steps take longer than before, and why: what a rank waits for now, and did not wait for then."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from hangwatch.diagnosis.slow import describe_lateness, diagnose_slow
from hangwatch.model.devices import Gpu
from hangwatch.model.slowness import Profile, ProfiledStack
from hangwatch.model.stacks import Frame
from hangwatch.slow.past import Past, Pasts, StepTimes, find_step_times
from hangwatch.slow.timeline import Call

MS = 1_000_000
MINUTE_NS = 60_000 * MS
LOAD = (Frame("load", "/srv/train/data.py", 12, "read(shard)"), Frame("main", "/srv/train/train.py", 30))
STEP = (Frame("main", "/srv/train/train.py", 40),)
BEFORE = Profile(0, 250, (ProfiledStack(LOAD, 0.1), ProfiledStack(STEP, 0.9)), reading=0.1, running=0.9)
READS = Profile(0, 250, (ProfiledStack(LOAD, 0.5), ProfiledStack(STEP, 0.5)), reading=0.5, running=0.5)
COMPUTES = Profile(0, 250, (ProfiledStack(STEP, 1.0),), reading=0.0, running=1.0)


def calls(steps_ms: Sequence[int], names: Sequence[str] = ("gather", "reduce")) -> list[Call]:
    """The calls of one rank, two in a step."""
    at_ns, found = 0, []
    for ms in steps_ms:
        for number, name in enumerate(names):
            at = at_ns + number * ms * MS // len(names)
            found.append(Call("all", len(found), (0, 1, 2), name, at))
        at_ns += ms * MS
    return found


def times(ms: float, least_ms: float | None = None, operations: str = "reduce") -> StepTimes:
    """Steps that take as long."""
    return StepTimes(frozenset({operations}), MS * (least_ms if least_ms is not None else 0.95 * ms), MS * ms)


def test_the_pace_of_a_rank() -> None:
    """By the quartiles of its steps; an evaluation is no part of them, and too few steps have none."""
    steps = calls([100, 110, 120, 130] * 8)
    evaluation = msgspec.structs.replace(steps[30], name="evaluation")
    for seen in (steps, [*steps[:31], evaluation, *steps[31:]]):
        found = find_step_times(seen)
        assert found is not None
        assert found.operations == {"gather", "reduce"}
        assert (found.least_ns / MS, found.usual_ns / MS) == pytest.approx((104, 115), abs=5)
    assert find_step_times(steps[:40]) is None
    assert find_step_times([]) is None


def look(past: Past, *paces: StepTimes) -> list[bool]:
    """A look every two and a half minutes, and whether the job is slow by then."""
    seen = []
    for number, one in enumerate(paces, 1):
        past.look(one, number * 5 * MINUTE_NS // 2)
        seen.append(past.is_slow_for_long(number * 5 * MINUTE_NS // 2))
    return seen


def test_a_slower_pace_has_to_last() -> None:
    """Five minutes, in three quarters of the steps; and it is over once half of them are fast."""
    past = Past()
    paces = (100, None), (150, 100), (150, 140), (150, 140), (150, 140), (130, 100), (110, 100)
    assert look(past, *(times(ms, least) for ms, least in paces)) == [False, False, False, False, True, True, False]


def test_faster_steps_are_compared_to_from_then_on() -> None:
    """A job is slow when it starts."""
    past = Past(times(100), BEFORE)
    past.look(times(90), MINUTE_NS)
    assert past == Past(times(90))


def test_each_kind_of_steps_has_a_past() -> None:
    """Training and evaluation, in turn; of many kinds the one that was seen last is kept."""
    pasts, train, evaluate = Pasts(), times(100), times(300, operations="gather")
    first = pasts.look(train, 0)
    assert pasts.look(evaluate, MINUTE_NS) is not first
    assert pasts.look(times(200), 2 * MINUTE_NS) is first
    assert (first.times, first.slow_since_ns) == (train, 2 * MINUTE_NS)
    for size in range(20):
        pasts.look(times(100, operations=f"reduce {size}"), 3 * MINUTE_NS)
    assert pasts.look(train, 4 * MINUTE_NS) == Past(train)


def slow() -> Past:
    """A job that was fast, with its profile, and has been slow since the first minute."""
    past = Past(times(100), BEFORE)
    past.look(times(200), MINUTE_NS)
    return past


def test_all_ranks_wait_for_their_input() -> None:
    """The line is in the verdict, and no rank is accused."""
    found = slow().compare(times(200), READS, ())
    assert found is not None
    verdict, onset_ns = diagnose_slow(found, 3 * MINUTE_NS)
    assert (verdict.kind, verdict.severity, verdict.culprit_ranks, verdict.waiting_ranks) == ("slow", "warning", (), ())
    assert onset_ns == MINUTE_NS
    assert verdict.summary == "Steps take 2.0 times as long as before: 0.2 s instead of 0.1 s."
    assert verdict.cause is not None
    assert verdict.cause.id == "slow-job"
    assert verdict.cause.explanation == (
        "Rank 0 waits for input (a DataLoader, a file, a pipe or a connection): it spends 40 percentage points more of its"
        " time at train/data.py:12 than before."
    )
    assert verdict.divergence is not None
    assert verdict.divergence.culprit is not None
    assert verdict.divergence.culprit.source == "read(shard)"
    assert describe_lateness(found) is None


def test_more_to_compute_is_the_new_pace() -> None:
    """Longer sequences may be by design; what comes later is compared to them."""
    past = slow()
    assert past.compare(times(200), COMPUTES, ()) is None
    assert past == Past(times(200), COMPUTES)


def test_clocks_that_are_held_down() -> None:
    """Of the same GPU, now and before."""
    past = slow()
    past.gpus = (Gpu(0, clock_mhz=1980),)
    found = past.compare(times(200), BEFORE, (Gpu(0, clock_mhz=990, slowed_by=("heat",)),))
    assert found is not None
    cause = diagnose_slow(found, 0)[0].cause
    assert cause is not None
    assert cause.explanation == (
        "Rank 0 has a GPU that runs at 990 MHz, because of heat (1980 MHz before): no single line of the program accounts for"
        " the extra time."
    )


def test_without_a_profile_of_before_nothing_is_said() -> None:
    """The first one is kept."""
    past = Past(times(100))
    assert past.compare(times(100), BEFORE, ()) is None
    assert past == Past(times(100), BEFORE)
