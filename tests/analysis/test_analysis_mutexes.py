"""Where waits for mutexes lead within one rank."""

from __future__ import annotations

import pytest

from hangwatch.analysis.ranks.mutexes import find_cycles, follow, steady_waits
from hangwatch.model.capture import RankCapture, RankIdentity
from hangwatch.model.processes import MutexWait, ProcessSample


def captured(*samples: tuple[tuple[int, int], ...]) -> RankCapture:
    """A rank with such waits, thread and owner, in each of its samples."""
    waits = (tuple(MutexWait(t, o, "a", "b") for t, o in sample) for sample in samples)
    return RankCapture(RankIdentity(0, 1, 0.0), tuple(ProcessSample(i, 1, "S", mutexes=w) for i, w in enumerate(waits)))


@pytest.mark.parametrize(
    ("waits", "chain", "cycle"),
    [
        (((1, 2),), (1,), ()),
        (((1, 1),), (1,), (1,)),
        (((1, 2), (2, 1)), (1, 2), (1, 2)),
        (((1, 2), (2, 3), (3, 2)), (1, 2, 3), (2, 3)),
        (((4, 5),), None, None),
    ],
)
def test_a_chain_is_followed_to_its_end_or_its_circle(
    waits: tuple[tuple[int, int], ...], chain: object, cycle: object
) -> None:
    """From thread 1 on."""
    found = follow(steady_waits(captured(waits, waits)), 1)
    assert (found and tuple(w.thread for w in found.waits), found and tuple(w.thread for w in found.cycle)) == (
        chain,
        cycle,
    )


def test_what_another_thread_has_a_moment_later_is_merely_contended() -> None:
    """Nor does one sample alone tell."""
    assert not steady_waits(captured(((1, 2),), ((1, 3),)))
    assert not steady_waits(captured(((1, 2),)))


def test_each_circle_of_a_rank_is_found_once() -> None:
    """Also the one into which no other thread leads."""
    waits = ((1, 2), (2, 1), (3, 1), (7, 8), (8, 7))
    circles = find_cycles(captured(waits, waits))
    assert [{w.thread for w in circle} for circle in circles] == [{1, 2}, {7, 8}]
