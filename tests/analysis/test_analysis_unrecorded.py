"""Ranks of which there is no record: their stacks say what they are in, their beats how many collectives they have called."""

from __future__ import annotations

import msgspec
import pytest

from hangwatch.analysis.case import build_case
from hangwatch.diagnosis.verdict import diagnose
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


LOADS = (Frame("load_data", "/srv/train/data.py", 30, "time.sleep(60)"), Frame("train", "/srv/train/train.py", 8))


def connecting(*, recorded: bool, spins: bool, group: str = "default_pg") -> RankCapture:
    """Rank 0 in its first collective, in which NCCL connects: it takes a core, or wakes all the while."""
    inside = Frame(
        "all_reduce", TORCH, 90, "work = group.allreduce([tensor], opts)", {"group": f"ProcessGroup={group}"}
    )
    one = rank(0, (), (inside, Frame("train", "/srv/train/train.py", 10)), busy=spins, state="R" if spins else "S")
    wakes = (msgspec.structs.replace(p, switches=7 if spins else 1000 * n) for n, p in enumerate(one.processes))
    known = msgspec.structs.replace(one.flight, operations=()) if recorded and one.flight is not None else None
    return msgspec.structs.replace(
        one, processes=tuple(wakes), flight=known, progress=() if recorded else None, unrecorded=recorded
    )


@pytest.mark.parametrize("spins", [True, False], ids=["spins", "sleeps"])
@pytest.mark.parametrize("recorded", [True, False], ids=["empty-record", "no-probe"])
def test_who_connects_waits_for_a_rank_that_stands_still(recorded: bool, spins: bool) -> None:
    """Neither record nor beat knows the group before its communicator is made; the stack shows the call."""
    away = rank(1, (), LOADS, channel="hrtimer_nanosleep")
    verdict = diagnose(world(connecting(recorded=recorded, spins=spins), away), min_wait_s=0.9).verdict
    assert (verdict.kind, verdict.culprit_ranks, verdict.waiting_ranks) == ("stall", (1,), (0,))


@pytest.mark.parametrize("busy", [True, False], ids=["works", "has-just-come-there"])
def test_who_goes_on_holds_up_nobody(busy: bool) -> None:
    """Without a record, a rank that wakes in one collective after another looks the same as one that waits."""
    away = rank(1, (), LOADS, busy=busy)
    if not busy:
        moved = tuple(msgspec.structs.replace(p, switches=n // 2) for n, p in enumerate(away.processes))
        away = msgspec.structs.replace(away, processes=moved)
    verdict = diagnose(world(connecting(recorded=False, spins=False), away), min_wait_s=0.9).verdict
    assert (verdict.kind, verdict.culprit_ranks) == ("healthy", ())


@pytest.mark.parametrize(("others", "kind"), [(1, "stall"), (2, "healthy")])
def test_a_group_that_is_not_known_has_another_member(others: int, kind: str) -> None:
    """If all other ranks stand still, one of them is awaited; else the two that are in a collective may go on together."""
    first = connecting(recorded=False, spins=False, group="")
    again = msgspec.structs.replace(first, identity=msgspec.structs.replace(first.identity, rank=2, pid=1002))
    away = rank(1, (), LOADS, channel="hrtimer_nanosleep")
    ranks = (first, away, again)[: 1 + others]
    assert diagnose(world(*ranks), min_wait_s=0.9).verdict.kind == kind
