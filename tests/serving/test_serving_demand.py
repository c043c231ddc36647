"""Demand against progress: when a serving engine is suspected, and when it only idles, reads a long prompt, or is slow."""

from __future__ import annotations

import msgspec
import pytest

from hangwatch.model.serving import EnginePart, EngineReading, EngineState
from hangwatch.serving.analysis.demand import ENGINE_FLOOR_S, DemandClock


def reading(running: int, waiting: int, *marks: float, part: str = "0") -> EngineReading:
    """What an engine with one scheduler answers."""
    return EngineReading("vllm", {part: EnginePart(running, waiting, marks[0] if marks else None, tuple(marks))})


def still_s(clock: DemandClock, now_s: float) -> float:
    """For how long nothing has come out."""
    worst = clock.worst(now_s)
    assert worst is not None
    return worst.still_s


def test_an_engine_without_requests_is_never_suspected() -> None:
    """However long it idles, before its first request and after its last."""
    clock = DemandClock()
    for now_s in range(0, 86_400, 600):
        clock.update(reading(0, 0, 500.0), now_s)
        assert still_s(clock, now_s) == 0.0
    assert not clock.cadence.waits_s


def test_the_clock_runs_from_the_first_request_on() -> None:
    """Not from the last token, which may have come hours before."""
    clock = DemandClock()
    clock.update(reading(0, 0, 500.0), 0.0)
    clock.update(reading(0, 3, 500.0), 7200.0)
    clock.update(reading(0, 12, 500.0), 7295.0)
    assert still_s(clock, 7295.0) == 95.0


@pytest.mark.parametrize("mark", range(3), ids=["tokens", "steps", "finished"])
def test_whatever_changes_is_progress(mark: int) -> None:
    """A streamed answer moves the tokens, a long prompt in parts the steps, a batch of short ones what is finished."""
    clock, marks = DemandClock(), [100.0, 20.0, 3.0]
    for now_s in range(0, 3600, 10):
        marks[mark] += 1
        clock.update(reading(1, 0, *marks), now_s)
        assert still_s(clock, now_s) == 0.0
    worst = clock.worst(3600.0)
    assert worst is not None
    assert worst.demand_s == 3600.0


def test_the_patience_is_learnt_from_the_engine_itself() -> None:
    """A prompt whose one step takes two minutes makes the next one of three minutes ordinary; the user's patience stands."""
    clock = DemandClock()
    assert clock.patience_s(None) == ENGINE_FLOOR_S
    clock.update(reading(1, 0, 1.0), 0.0)
    clock.update(reading(1, 0, 1.0), 60.0)
    clock.update(reading(1, 0, 2.0), 120.0)
    assert clock.patience_s(None) == 480.0
    assert clock.patience_s(10.0) == 10.0


def test_one_scheduler_of_several_is_seen_to_be_stuck() -> None:
    """In data parallelism the others go on."""
    clock = DemandClock()
    for now_s in (0.0, 50.0, 100.0):
        stuck, fine = EnginePart(2, 5, 7.0, (7.0,)), EnginePart(9, 0, now_s, (now_s,))
        clock.update(EngineReading("vllm", {"0": fine, "1": stuck}), now_s)
    worst = clock.worst(100.0)
    assert worst is not None
    assert (worst.still_s, worst.part.waiting) == (100.0, 5)


def test_a_counter_that_begins_anew_is_progress() -> None:
    """An engine that was started again has made no token yet, and is at it."""
    clock = DemandClock()
    clock.update(reading(1, 0, 900.0), 0.0)
    clock.update(reading(1, 0, 0.0), 90.0)
    assert still_s(clock, 90.0) == 0.0


STATE = EngineState("vllm", "127.0.0.1:8000", running=3, waiting=12, demand_s=95.0, still_s=95.0, patience_s=60.0)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({}, "12 requests wait and 3 run, no token for 95 s"),
        ({"running": 0, "waiting": 1}, "1 request waits, no token for 95 s"),
        ({"running": 1, "waiting": 0}, "1 request runs, no token for 95 s"),
        ({"silent_s": 40.0}, "12 requests wait and 3 run as of the last response, 40 s ago; no token for 95 s"),
    ],
)
def test_demand_and_progress_are_said_in_words(changed: dict[str, float], says: str) -> None:
    """How many wait, how many run, and since when nothing has come."""
    assert msgspec.structs.replace(STATE, **changed).says == says


@pytest.mark.parametrize(
    ("changed", "suspected", "stalled"),
    [
        ({}, True, True),
        ({"still_s": 31.0}, True, False),
        ({"still_s": 16.0}, False, False),
        ({"still_s": 16.0, "lost": True}, True, False),
        ({"running": 0, "waiting": 0}, False, False),
    ],
)
def test_suspicion_comes_before_the_verdict(changed: dict[str, float], suspected: bool, stalled: bool) -> None:
    """Half the patience is worth a look, a quarter where a process of the engine is gone; without requests nothing is."""
    state = msgspec.structs.replace(STATE, **changed)
    assert (state.suspected, state.stalled) == (suspected, stalled)
