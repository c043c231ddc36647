"""Since when two ranks are out of step, though all that they called has met: by the lines from which they called it."""

from __future__ import annotations

import msgspec
import pytest

from hangwatch.analysis.case import build_case
from hangwatch.analysis.divergence.call_sites import first_difference
from hangwatch.model.collectives import Group, Operation
from hangwatch.model.stacks import Frame
from worlds import collective_frames, operation, rank, world

PAIR = Group("0", (0, 1), "default_pg")
#: What library and program call an operation through, whoever calls it.
HELPER = Frame("reduce", "/srv/train/helper.py", 3)


def _record(places: str, last: str, *, helper: bool) -> tuple[Operation, ...]:
    """An operation at each place, which a letter stands for; the last is in flight."""
    found = []
    for number, place in enumerate(places, 1):
        torch, *program = collective_frames("all_reduce", ord(place))
        frames = (torch, *((HELPER,) if helper else ()), *program)
        done = number < len(places)
        one = operation(number, PAIR, number, "all_reduce" if done else last, done=done)
        found.append(msgspec.structs.replace(one, frames=frames))
    return tuple(found)


@pytest.mark.parametrize("helper", [False, True])
@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("AAAXAAAAAA", "AAAAAAAAAZ", (4, "X", "A")),  # a call too many in a loop with one operation
        ("ABABXABABA", "ABABABABAB", (5, "X", "A")),  # in one with two
        ("ABABBABABA", "ABABABABAB", (5, "B", "A")),  # one of the two was left out
        ("AXAXAXAXAA", "AYAYAYAYAZ", None),  # each has a line of its own
        ("AXYAXYAXYA", "AYXAYXAYXZ", None),  # they take turns
        ("AAAAAAAAAA", "AAAAAAAAAZ", None),
    ],
)
def test_the_first_difference(first: str, second: str, expected: tuple[int, str, str] | None, helper: bool) -> None:
    """It is the number since which they have not come to each place equally often, be all numbers since alike."""
    records = (_record(first, "all_reduce", helper=helper), _record(second, "barrier", helper=helper))
    case = build_case(world(*(rank(r, record, record[-1].frames or ()) for r, record in enumerate(records))))
    found = first_difference(case, 0, 1)
    lines = (
        [next(chr(f.line) for f in path if f.function == "train") for path in (found.ours, found.theirs)]
        if found
        else []
    )
    assert ((found.seq, *lines) if found is not None else None) == expected
