"""Ranks of which there is no record: their stacks say what they are in, their beats how many collectives they have called."""

from __future__ import annotations

import msgspec
import pytest

from hangwatch.analysis.case import build_case
from hangwatch.model.capture import RankCapture
from hangwatch.model.collectives import Group, GroupProgress
from hangwatch.model.stacks import Frame
from worlds import TORCH, rank, world

EVERYONE = Group("0", (0, 1, 2, 3), "default_pg")


def within(number: int, op: str, called: int) -> RankCapture:
    """A rank in its collective number ``called`` of the default group."""
    inside = Frame(op, TORCH, 100, "work.wait()", {"group": "ProcessGroup=default_pg"})
    one = rank(number, (), (inside, Frame("train", "/srv/train/train.py", 10)))
    return msgspec.structs.replace(one, flight=None, progress=(GroupProgress(EVERYONE, called, -1, called - 1),))


@pytest.mark.parametrize(("numbers", "proven"), [((121, 121, 121, 121), True), ((121, 122, 121, 122), False)])
def test_only_what_has_one_number_is_proven_to_be_at_odds(numbers: tuple[int, ...], proven: bool) -> None:
    """A broadcast that met an all_reduce has gone through for two of them: rank 0 alone in it is not the one that differed."""
    ops = ("broadcast", "all_reduce", "all_reduce", "all_reduce")
    blame = build_case(world(*(within(n, ops[n], numbers[n]) for n in range(4)))).blame
    assert blame.shape == "cycle"
    assert (blame.proof is not None) is proven
