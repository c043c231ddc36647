"""When the agent captures a job: the state machine, driven by a clock of the test's own."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hangwatch.agent.job.suspicion import FIRST_SPACING_S, SPARE_CAPTURE_S, Suspector
from hangwatch.analysis.patience import Cadence
from hangwatch.model.beats import Beat, BeatGroup
from hangwatch.model.progress import RankProgress, read_progress

SECOND_NS = 1_000_000_000


def beat(at_s: float, enqueued: int, completed: int, unmoved_s: float) -> Beat:
    """One rank's beat in one group of two."""
    group = BeatGroup("0", (0, 1), 0, "default_pg", "gloo", enqueued, -1, completed, unmoved_s)
    return Beat(1, 100, 1, 1, int(at_s * SECOND_NS), 0, 2, 0, True, groups=(group,))


def progress(at_s: float, *states: tuple[int, int, float]) -> list[RankProgress]:
    """The progress of several ranks now, each from (enqueued, completed, seconds unmoved)."""
    return [read_progress(r, beat(at_s, *state), int(at_s * SECOND_NS)) for r, state in enumerate(states)]


def test_an_operation_in_flight_is_suspicious_after_a_moment() -> None:
    """Not at once, but before a second is over; and no longer once it has completed."""
    suspector = Suspector()
    assert suspector.update(progress(10.0, (5, 4, 0.2), (4, 4, 0.2)), unprobed=False, lost=False, now_s=10.0) is None
    found = suspector.update(progress(10.7, (5, 4, 0.9), (4, 4, 0.9)), unprobed=False, lost=False, now_s=10.7)
    assert found is not None
    assert found.since_s == 10.7 - 0.9
    assert suspector.update(progress(11.0, (6, 6, 0.0), (6, 6, 0.0)), unprobed=False, lost=False, now_s=11.0) is None


def slow_steps(suspector: Suspector, now_s: float, count: int) -> tuple[float, int]:
    """Steps in which every rank but one waits 1.5 s, each captured once where it is suspicious: then, and how many were."""
    captures = 0
    for step in range(1, count):
        waits = progress(now_s, (step, step - 1, 1.5), (step - 1, step - 1, 0.1))
        if suspector.update(waits, unprobed=False, lost=False, now_s=now_s) is not None:
            suspector.captured(now_s, 30.0)
            captures += 1
        now_s += 0.5
        suspector.update(progress(now_s, (step, step, 0.0), (step, step, 0.0)), unprobed=False, lost=False, now_s=now_s)
        now_s += 1.0
    return now_s, captures


def test_a_slow_job_teaches_longer_waits() -> None:
    """Once some captures have been in vain, only a wait beyond the ordinary 1.5 s is worth another."""
    suspector = Suspector()
    now_s, _ = slow_steps(suspector, 100.0, 30)
    now = progress(now_s, (31, 30, 1.6), (30, 30, 0.1))
    assert suspector.update(now, unprobed=False, lost=False, now_s=now_s) is None
    now = progress(now_s, (31, 30, 4.0), (30, 30, 0.1))
    assert suspector.update(now, unprobed=False, lost=False, now_s=now_s) is not None


def test_captures_of_ordinary_waits_are_rare_in_the_long_run() -> None:
    """Ten are to spare; then they are earned slowly, whatever the job does."""
    suspector = Suspector()
    now_s, captures = slow_steps(suspector, 100.0, 2000)
    assert 10 <= captures <= 11 + (now_s - 100.0) / SPARE_CAPTURE_S


def test_a_job_that_never_waited_for_long_is_captured_soon() -> None:
    """A slow start teaches long waits, but a hang that comes after quick steps is captured within a second."""
    suspector = Suspector()
    now_s, _ = slow_steps(suspector, 100.0, 30)
    now_s += 10 * SPARE_CAPTURE_S
    suspector.update(progress(now_s, (31, 31, 0.0), (31, 31, 0.0)), unprobed=False, lost=False, now_s=now_s)
    now = progress(now_s, (32, 31, 0.8), (31, 31, 0.8))
    assert suspector.update(now, unprobed=False, lost=False, now_s=now_s) is not None


def test_a_wait_beyond_the_users_patience_is_captured_however_ordinary() -> None:
    """Waits that grow from step to step are never far beyond the ones before; the patience that was asked for counts."""
    suspector = Suspector(cadence=Cadence())
    for _ in range(10):
        suspector.captured(5.0, 30.0)
    for step in range(10):
        suspector.cadence.learn(0.6 + 0.45 * step)
    now = progress(5.0, (7, 6, 4.0), (6, 6, 0.1))
    assert suspector.update(now, unprobed=False, lost=False, now_s=5.0) is None
    assert suspector.update(now, unprobed=False, lost=False, now_s=5.0, limit_s=5.0) is None
    assert suspector.soonest_s() == 1.0
    assert suspector.update(now, unprobed=False, lost=False, now_s=5.0, limit_s=2.5) is not None


def test_ranks_in_flight_in_different_places_are_captured_whatever_the_cadence() -> None:
    """All in flight, none moving, and not at the same number: worth a capture at once even in a slow job."""
    suspector = Suspector(cadence=Cadence())
    for _ in range(20):
        suspector.captured(5.0, 30.0)
        suspector.cadence.learn(20.0)
    same = suspector.update(progress(5.0, (7, 6, 1.0), (7, 6, 1.0)), unprobed=False, lost=False, now_s=5.0)
    apart = suspector.update(progress(5.0, (7, 6, 1.0), (8, 7, 1.0)), unprobed=False, lost=False, now_s=5.0)
    assert same is None
    assert apart is not None


def test_quiet_without_anything_in_flight_is_captured() -> None:
    """Point-to-point waits are in no recorder: if nothing moves at all, the stacks are read."""
    suspector = Suspector()
    assert suspector.update(progress(1.0, (3, 3, 9.0), (3, 3, 9.0)), unprobed=False, lost=False, now_s=1.0) is None
    assert suspector.update(progress(2.5, (3, 3, 9.0), (3, 3, 9.0)), unprobed=False, lost=False, now_s=2.5) is not None


def test_captures_come_further_apart_but_one_when_the_patience_ends() -> None:
    """1, 2, 4 .. seconds apart, and a capture right after the patience is over."""
    suspector = Suspector()
    suspicion = suspector.update(progress(0.0, (1, 0, 1.0), (0, 0, 1.0)), unprobed=False, lost=False, now_s=1.0)
    assert suspicion is not None
    captures, now_s = [], 1.0
    while now_s < 60:
        suspicion.captured(now_s, 30.0)
        now_s = suspicion.next_capture_s
        captures.append(now_s)
    gaps = [b - a for a, b in zip([1.0, *captures], captures, strict=False)]
    assert gaps[0] < gaps[1] < gaps[2]
    assert any(30.0 < at_s < 30.5 for at_s in captures)


def test_patience_grows_with_the_job_and_keeps_its_bounds() -> None:
    """Four times the longest ordinary wait, 30 s at the least and 30 min at the most; and it says why."""
    cadence = Cadence()
    assert (cadence.patience().stall_s, cadence.patience().why) == (30.0, "the minimum")
    cadence.learn(20.0)
    assert cadence.patience().stall_s == 80.0
    assert cadence.patience().why == "four times the longest of its last waits, 20 s"
    assert (cadence.patience(9000.0).stall_s, cadence.patience(9000.0).why) == (1800.0, "the maximum")


@given(waits_s=st.lists(st.floats(0.0, 5000.0), max_size=5), phase_s=st.floats(0.0, 5000.0))
def test_a_phase_delays_no_report_by_more_than_four_times_its_length(waits_s: list[float], phase_s: float) -> None:
    """And what the job's last waits have taught, or a culprit that moves, is given no less time, and no more than that."""
    cadence = Cadence()
    for wait_s in waits_s:
        cadence.learn(wait_s)
    lately, here = cadence.patience(), cadence.patience(phase_s)
    assert lately.stall_s <= here.stall_s <= max(lately.stall_s, min(4 * phase_s, 1800.0))
    assert here.busy_s == max(lately.busy_s, here.stall_s)
    assert here.blocked_s == lately.blocked_s


def test_another_reason_is_captured_soon() -> None:
    """Captures of a job that sleeps grow rare; an operation that is stuck afterwards does not wait for the next one."""
    suspector = Suspector()
    now_s = 50.0
    for _ in range(40):  # nothing in flight, nothing moves
        found = suspector.update(
            progress(now_s, (5, 5, now_s - 40), (5, 5, now_s - 40)), unprobed=False, lost=False, now_s=now_s
        )
        if found is not None and now_s >= found.next_capture_s:
            suspector.captured(now_s, 60.0)
        now_s += 1.0
    assert found is not None
    assert found.next_capture_s > now_s + FIRST_SPACING_S
    stuck = suspector.update(progress(now_s, (6, 5, 0.9), (5, 5, 3.0)), unprobed=False, lost=False, now_s=now_s)
    assert stuck is found
    assert stuck.next_capture_s <= now_s + FIRST_SPACING_S
