"""What a Gloo rank has really completed, from a recorder whose own number lags."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from hangwatch.probe.completion import Completion, parse_unfinished
from hangwatch.probe.recorder import Progress

ENTRIES = st.lists(
    st.fixed_dictionaries(
        {
            "collective_seq_id": st.integers(1, 50),
            "input_sizes": st.lists(st.lists(st.integers(0, 9), max_size=2), max_size=2),
            "is_p2p": st.booleans(),
            "pg_id": st.integers(0, 3),
            "process_group": st.lists(st.text(max_size=4), min_size=2, max_size=2),
            "retired": st.booleans(),
            "state": st.just("scheduled"),
        }
    )
)


@settings(deadline=None)
@given(ENTRIES, st.booleans())
def test_unfinished_operations_are_found_whatever_the_form_of_the_dump(entries: list[dict], as_torch: bool) -> None:
    """The quick way through torch's sorted, compact JSON agrees with decoding everything."""
    text = json.dumps({"entries": entries}, separators=(",", ":") if as_torch else None, ensure_ascii=False)
    expected: dict[int, int] = {}
    for entry in entries:
        if not entry["retired"] and not entry["is_p2p"]:
            expected[entry["pg_id"]] = min(entry["collective_seq_id"], expected.get(entry["pg_id"], 99))
    if as_torch or not entries:
        assert parse_unfinished(text.encode()) == expected


def _dump(*unfinished: int) -> bytes:
    entries = [
        {"collective_seq_id": n, "is_p2p": False, "pg_id": 0, "retired": False, "state": "x"} for n in unfinished
    ]
    return json.dumps({"entries": entries}, separators=(",", ":")).encode()


def test_a_number_that_moves_is_never_looked_into() -> None:
    """A rank that works has operations in flight all the time: they cost nothing."""
    completion = Completion()
    for step in range(20):
        assert not completion.wants_entries({0: Progress(step + 2, -1, step)}, now=0.5 * step)


def test_a_number_that_lags_is_put_right_by_the_entries() -> None:
    """All retired: everything is completed, until the group moves again."""
    completion = Completion()
    lagging = Progress(5, -1, 3)
    assert not completion.wants_entries({0: lagging}, now=0.0)
    assert completion.correct(0, lagging) == lagging
    assert completion.wants_entries({0: lagging}, now=1.0)
    completion.settle(_dump(), now=1.0)
    assert completion.correct(0, lagging) == Progress(5, -1, 5)
    moved = Progress(6, -1, 5)
    assert not completion.wants_entries({0: moved}, now=1.5)
    assert completion.correct(0, moved) == moved


def test_an_operation_in_flight_stays_in_flight_and_is_asked_for_ever_more_rarely() -> None:
    """What is not retired is not completed, also where the dump is newer than the status."""
    completion = Completion()
    waiting = Progress(5, -1, 3)
    asked = []
    for tick in range(400):
        if completion.wants_entries({0: waiting}, now=0.5 * tick):
            completion.settle(_dump(5, 6), now=0.5 * tick)
            asked.append(0.5 * tick)
    assert completion.correct(0, waiting) == Progress(5, -1, 4)
    assert asked[0] <= 1.0
    assert len(asked) < 12
    completion.settle(_dump(9), now=200.0)
    assert completion.correct(0, waiting) == Progress(5, -1, 5)


def test_a_group_that_is_gone_is_forgotten() -> None:
    """No doubt outlives its group."""
    completion = Completion()
    completion.wants_entries({0: Progress(5, -1, 3)}, now=0.0)
    assert not completion.wants_entries({}, now=60.0)
