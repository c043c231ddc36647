"""Sources of one rank that were read at different times: nothing is proven over what one lacks, and who went on does not wait."""

from __future__ import annotations

import msgspec
import pytest

from hangwatch.analysis.case import build_case
from hangwatch.analysis.patience import fixed_patience
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.capture import Capture
from hangwatch.model.collectives import Group, GroupProgress
from hangwatch.model.stacks import Frame
from recorded import without_group
from worlds import NOW_NS, SECOND_NS, TORCH, collective_frames, operation, rank, world

WORLD = Group("0", (0, 1, 2), "default_pg")


def two_sides() -> Capture:
    """Rank 2 is in a barrier where ranks 0 and 1 are in an all_reduce: it is named, with a proof."""
    done = operation(1, WORLD, 1)
    here = (rank(r, (done, operation(2, WORLD, 2, done=False)), collective_frames("all_reduce")) for r in (0, 1))
    return world(
        *here, rank(2, (done, operation(2, WORLD, 2, "barrier", done=False)), collective_frames("barrier", 30))
    )


@pytest.mark.parametrize("parts", [("flight",), ("progress",), ("flight", "progress")], ids=" and ".join)
@pytest.mark.parametrize("torn", [0, 1, 2])
def test_a_rank_without_the_group_in_its_record_is_not_proven_to_be_absent(torn: int, parts: tuple[str, ...]) -> None:
    """One of the other side could turn the majority; of rank 2 itself it is not known where it is."""
    whole = diagnose(two_sides()).verdict
    assert (whole.proven, whole.culprit_ranks) == (True, (2,))
    found = diagnose(without_group(two_sides(), WORLD, torn, frozenset(parts))).verdict
    assert not found.proven or found.culprit_ranks == (2,)
    assert found.proven is (parts == ("progress",))


def goes_on(called_s: float, *, known_done: bool) -> Capture:
    """Rank 0's stack is in an all_reduce; by its record, an all_gather called ``called_s`` ago is the last, in flight or done.

    Its beat, after that, says that nothing is. Rank 1 is at work, and rank 2 in another thread's frames.
    """
    inside = (
        Frame("all_reduce", TORCH, 100, source="work.wait()"),
        Frame("train", "/srv/train/train.py", 20),
    )
    last = operation(2, WORLD, 2, "all_gather", done=known_done)
    last = msgspec.structs.replace(last, created_ns=NOW_NS - int(called_s * SECOND_NS))
    zero = rank(0, (operation(1, WORLD, 1), last), inside)
    zero = msgspec.structs.replace(zero, progress=(GroupProgress(WORLD, 2, -1, 2),))
    return world(zero, *(rank(r, (operation(1, WORLD, 1),), (Frame("load", "/srv/data.py", 5),)) for r in (1, 2)))


@pytest.mark.parametrize(
    ("called_s", "known_done", "waits"),
    [(0.1, True, False), (9.0, False, False), (9.0, True, True)],
    ids=["it has called another since", "it was in flight and is not", "it has long been here"],
)
def test_a_rank_that_went_on_while_it_was_captured_waits_for_nobody(
    called_s: float, known_done: bool, waits: bool
) -> None:
    """Its stack is of before. A healthy job that had waited for longer than the patience was stopped for that."""
    assert (build_case(goes_on(called_s, known_done=known_done)).blame.waiting == (0,)) is waits


@pytest.mark.parametrize(("joined", "kind"), [(False, "stall"), (True, "healthy")], ids=["is absent", "has just come"])
def test_a_rank_that_comes_while_it_is_captured_is_in_no_hang(joined: bool, kind: str) -> None:
    """Rank 0 calls what rank 1 waits in after its stack and its record were read, and before its beat was.

    Rank 1 had waited longer than its patience. A healthy engine that got its next command in that moment was stopped for that.
    """
    pair = Group("0", (0, 1), "default_pg")
    zero = rank(0, (operation(1, pair, 1),), (Frame("read", "/srv/queue.py", 5), Frame("serve", "/srv/engine.py", 23)))
    if joined:
        zero = msgspec.structs.replace(zero, progress=(GroupProgress(pair, 2, -1, 1),))
    called = (operation(1, pair, 1), operation(2, pair, 2, "broadcast", done=False))
    found = diagnose(world(zero, rank(1, called, collective_frames("broadcast"))), patience=fixed_patience(0.5)).verdict
    assert found.kind == kind
