"""Who is to blame, and what is proven, in worlds built by hand."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hangwatch.analysis.case import build_case
from hangwatch.analysis.patience import fixed_patience
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.capture import Capture, Job
from hangwatch.model.collectives import Group
from hangwatch.model.stacks import Frame
from worlds import collective_frames, operation, rank, world

WORLD4 = Group("0", (0, 1, 2, 3), "default_pg")
WAITING = collective_frames("all_reduce")
ELSEWHERE = (Frame("read", "/srv/train/data.py", 5), Frame("<module>", "/srv/train/train.py", 90))


def test_one_rank_in_another_operation_is_the_culprit_and_proven() -> None:
    """Three ranks in all_reduce and one in barrier at the same number: the one is named, and it is a proof."""
    done = (operation(0, WORLD4, 1),)
    others = (*done, operation(1, WORLD4, 2, done=False))
    odd = (*done, operation(1, WORLD4, 2, "barrier", done=False))
    blame = build_case(world(*(rank(r, odd if r == 2 else others, WAITING) for r in range(4)))).blame
    assert blame.culprits == (2,)
    assert blame.waiting == (0, 1, 3)
    assert blame.proof is not None


def test_of_two_that_do_not_meet_both_are_named_whoever_came_last() -> None:
    """One in all_reduce, one in barrier: the one that has not waited for long enough yet is no more to blame than the other."""
    pair = Group("0", (0, 1), "default_pg")
    early, late = operation(0, pair, 2, done=False), operation(3000, pair, 2, "barrier", done=False)
    case = build_case(world(rank(0, (early,), WAITING), rank(1, (late,), WAITING)), min_wait_s=8.0)
    assert [edge.waiters for edge in case.graph.edges] == [(0,)]
    assert case.blame.culprits == (0, 1)
    assert case.blame.proof is not None


@pytest.mark.parametrize("unseen", [0, 1, 3])
def test_a_rank_that_nobody_saw_is_not_blamed_for_what_others_were_seen_to_do(unseen: int) -> None:
    """All wait for it, too, as its node has no agent: the one that was seen in another operation is named all the same."""
    others = (operation(1, WORLD4, 2, done=False),)
    odd = (operation(1, WORLD4, 2, "barrier", done=False),)
    seen = world(*(rank(r, odd if r == 2 else others, WAITING) for r in range(4) if r != unseen))
    blame = build_case(msgspec.structs.replace(seen, job=msgspec.structs.replace(seen.job, world_size=4))).blame
    assert blame.culprits == (2,)
    assert blame.proof is not None


def test_blame_passes_through_groups_to_the_root() -> None:
    """0 waits for 1 in one group, 1 for 2 in another, 2 is stuck reading: only 2 is named, and nothing is proven."""
    first, second = Group("1", (0, 1)), Group("2", (1, 2))
    case = build_case(
        world(
            rank(0, (operation(0, first, 1, done=False),), WAITING),
            rank(1, (operation(0, second, 1, done=False),), WAITING),
            rank(2, (), ELSEWHERE, channel="pipe_read"),
        )
    )
    assert case.blame.culprits == (2,)
    assert case.blame.proof is None


def test_a_circle_of_groups_names_all_of_it() -> None:
    """Three groups, each rank in the one its neighbour has not come to: all three, proven."""
    groups = [Group(str(i), (i, (i + 1) % 3)) for i in range(3)]
    ranks = [rank(i, (operation(0, groups[i], 1, done=False),), WAITING) for i in range(3)]
    blame = build_case(world(*ranks)).blame
    assert blame.culprits == (0, 1, 2)
    assert blame.shape == "cycle"
    assert blame.proof is not None


def test_a_circle_with_a_rank_that_computes_is_no_proof() -> None:
    """The same circle, but one rank uses CPU time outside of any wait: its operation is asynchronous, and it is the root."""
    groups = [Group(str(i), (i, (i + 1) % 3)) for i in range(3)]
    ranks = [rank(i, (operation(0, groups[i], 1, done=False),), WAITING) for i in (0, 1)]
    ranks.append(rank(2, (operation(0, groups[2], 1, done=False),), ELSEWHERE, busy=True))
    blame = build_case(world(*ranks)).blame
    assert blame.culprits == (2,)
    assert blame.proof is None


def test_the_first_difference_counts_and_not_the_pending_one() -> None:
    """A wrong pair went through at number 2; whoever differed there is named, though another rank differs now."""
    usual = (operation(0, WORLD4, 1), operation(1, WORLD4, 2), operation(2, WORLD4, 3, done=False))
    extra = (
        operation(0, WORLD4, 1),
        operation(1, WORLD4, 2, sizes=(2,)),
        operation(2, WORLD4, 3, "barrier", done=False),
    )
    case = build_case(world(*(rank(r, extra if r == 1 else usual, WAITING) for r in range(4))))
    assert case.blame.culprits == (1,)
    assert case.blame.diverged_at is not None
    assert case.blame.diverged_at.seq == 2


def test_a_stopped_rank_holds_up_even_what_it_has_joined() -> None:
    """A stopped process serves no transfer: those who are in the operation with it wait for it."""
    pending = (operation(0, WORLD4, 1, done=False),)
    case = build_case(world(*(rank(r, pending, WAITING, state="T" if r == 3 else "S") for r in range(4))))
    assert case.blame.culprits == (3,)


def test_all_in_the_same_operation_is_nobodys_fault() -> None:
    """Everybody joined and nothing completes: no rank is named."""
    pending = (operation(0, WORLD4, 1, done=False),)
    case = build_case(world(*(rank(r, pending, WAITING) for r in range(4))))
    assert case.blame.culprits == ()
    assert case.blame.shape == "together"


@pytest.mark.parametrize(("busy", "kind"), [(False, "stall"), (True, "straggler")])
def test_what_cannot_be_proven_takes_patience(busy: bool, kind: str) -> None:
    """A rank elsewhere is nothing within the patience; beyond it a stall if it is stuck, a straggler if it moves."""
    pending = (operation(0, WORLD4, 1, done=False),)
    ranks = [rank(r, pending, WAITING) for r in range(3)] + [rank(3, (), ELSEWHERE, busy=busy, channel="pipe_read")]
    assert diagnose(world(*ranks), patience=fixed_patience(60)).verdict.kind == "healthy"
    verdict = diagnose(world(*ranks), patience=fixed_patience(6)).verdict
    assert verdict.kind == kind
    assert verdict.culprit_ranks == (3,)
    assert not verdict.proven
    later = " It counts as a hang once the wait has lasted 300 s."
    assert verdict.summary.endswith(later) is (kind == "straggler")


def _renamed(capture: Capture, names: Sequence[int]) -> Capture:
    """The same capture with rank i called ``names[i]``, everywhere."""

    def group(g: Group) -> Group:
        return Group(g.name, tuple(sorted(names[r] for r in g.ranks)), g.description)

    ranks = []
    for one in capture.ranks:
        assert one.flight is not None
        assert one.progress is not None
        operations = tuple(msgspec.structs.replace(o, group=group(o.group)) for o in one.flight.operations)
        progress = tuple(msgspec.structs.replace(p, group=group(p.group)) for p in one.progress)
        ranks.append(
            msgspec.structs.replace(
                one,
                identity=msgspec.structs.replace(one.identity, rank=names[one.rank]),
                flight=msgspec.structs.replace(one.flight, operations=operations, progress=progress),
                progress=progress,
            )
        )
    return msgspec.structs.replace(capture, ranks=tuple(ranks))


@settings(max_examples=60, deadline=None)
@given(
    behind=st.lists(st.sampled_from(["same", "barrier", "absent", "gone", "reading"]), min_size=2, max_size=6),
    order=st.randoms(use_true_random=False),
)
def test_names_of_ranks_never_change_a_verdict(behind: list[str], order: object) -> None:
    """Whatever each rank does: called by other numbers, the same ranks are named, and the kind is the same."""
    everyone = Group("0", tuple(range(len(behind))), "default_pg")
    done = (operation(0, everyone, 1),)
    ranks = []
    for number, does in enumerate(behind):
        if does in {"same", "barrier"}:
            op = "all_reduce" if does == "same" else "barrier"
            ranks.append(rank(number, (*done, operation(1, everyone, 2, op, done=False)), collective_frames(op)))
        elif does == "absent":
            ranks.append(rank(number, done, ELSEWHERE, busy=True))
        else:
            ranks.append(rank(number, done, ELSEWHERE, state="gone" if does == "gone" else "S", channel="pipe_read"))
    capture = world(*ranks)
    names = list(range(len(behind)))
    order.shuffle(names)  # type: ignore[attr-defined]
    plain, other = (diagnose(c, patience=fixed_patience(6)).verdict for c in (capture, _renamed(capture, names)))
    assert other.kind == plain.kind
    assert other.proven == plain.proven
    assert other.culprit_ranks == tuple(sorted(names[r] for r in plain.culprit_ranks))


def test_ranks_of_other_nodes_are_not_called_stuck() -> None:
    """Two ranks wait for two that this node does not have: a warning, for those may be at work where nobody looks."""
    pending = (operation(0, WORLD4, 1, done=False),)
    capture = msgspec.structs.replace(world(rank(0, pending, WAITING), rank(1, pending, WAITING)), job=Job("job", 4))
    verdict = diagnose(capture, patience=fixed_patience(6)).verdict
    assert verdict.kind == "straggler"
    assert verdict.culprit_ranks == (2, 3)
