"""The live view of a job: fronts and who is behind them, from beats."""

from __future__ import annotations

import random

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from hangwatch.analysis.progress import live_job, word_state
from hangwatch.model.beats import BEAT_VERSION, Beat, BeatGroup
from hangwatch.model.capture import Job, RankIdentity
from hangwatch.model.live import LiveJob

NOW_NS = 2_000_000_000


def beat(rank: int, *groups: BeatGroup) -> Beat:
    """A beat of one second ago."""
    return Beat(BEAT_VERSION, 100 + rank, 1, 1, NOW_NS - 1_000_000_000, rank=rank, initialized=True, groups=groups)


def view(beats: dict[int, Beat], order: list[int] | None = None) -> LiveJob:
    """The view of ranks with these beats."""
    ranks = [RankIdentity(rank, 100 + rank, 0.0) for rank in (order or sorted(beats))]
    by_pid = {100 + rank: one for rank, one in beats.items()}
    return live_job(Job("j", len(beats)), ranks, by_pid, dict.fromkeys(beats, "running"), NOW_NS)


def group(
    enqueued: int, completed: int, ranks: tuple[int, ...] = (0, 1), name: str = "0", description: str = "dp"
) -> BeatGroup:
    """A group as a beat has it, unmoved for two seconds."""
    return BeatGroup(name, ranks, 0, description, "gloo", enqueued, -1, completed, 2.0)


def test_the_front_is_the_furthest_member() -> None:
    """Front, slowest, completed by all, who is behind, and for how long the oldest has been in flight (its beat's age counts)."""
    job = view({0: beat(0, group(9, 8)), 1: beat(1, group(7, 7))})
    (front,) = job.groups
    assert (front.label, front.ranks, front.front, front.slowest, front.completed) == ("dp", (0, 1), 9, 7, 7)
    assert (front.behind, front.in_flight_s) == ((1,), 3.0)
    assert [(front.behind_by(p), p.in_flight_s) for rank in job.ranks for p in rank.groups] == [(0, 3.0), (2, None)]


def test_groups_of_one_name_are_distinguished() -> None:
    """Two groups "1" of other ranks are two, each behind nobody; two of one description and the same ranks are, too."""
    halves = {0: beat(0, group(5, 5, (0,), "1")), 1: beat(1, group(2, 2, (1,), "1"))}
    assert {front.label for front in view(halves).groups} == {"dp [0]", "dp [1]"}
    assert all(front.behind == () for front in view(halves).groups)
    twins = {0: beat(0, group(5, 5, (0,), "1"), group(5, 5, (0,), "2"))}
    assert {front.label for front in view(twins).groups} == {"dp (group 1)", "dp (group 2)"}


def test_groups_stay_in_order_until_one_waits_for_long() -> None:
    """Waits of a job that is well change with every beat, and the page must not swap its groups with them."""

    def order(wait_s: float) -> list[str]:
        slow = msgspec.structs.replace(group(9, 8, (1, 2), "2", "b"), unmoved_s=wait_s)
        return [front.label[0] for front in view({1: beat(1, group(9, 8, (0, 1), "1", "a"), slow), 2: beat(2)}).groups]

    assert order(0.5) == order(3.0) == ["a", "b"]
    assert order(30.0) == ["b", "a"]


def test_a_group_of_two_backends_is_there_twice() -> None:
    """``cpu:gloo,cuda:nccl`` counts in each backend by itself: two fronts of one name, so that neither number is compared with
    the other's."""
    both = {rank: beat(rank, group(9, 9), group(7 - rank, 5)) for rank in (0, 1)}
    fronts = {front.label: front for front in view(both).groups}
    assert {label: (front.front, front.behind) for label, front in fronts.items()} == {"dp": (9, ()), "dp#2": (7, (1,))}


def test_a_rank_without_a_beat_is_there_without_numbers() -> None:
    """It has a state and no group; a group of others does not wait for it to be shown."""
    ranks = [RankIdentity(0, 100, 0.0), RankIdentity(1, 101, 0.0)]
    job = live_job(
        Job("j"), ranks, {100: beat(0, group(3, 3))}, {0: "running", 1: "unprobed"}, NOW_NS, {101: "f (a.py:1)"}
    )
    assert [(r.state, len(r.groups), r.beat_age_s, r.frame) for r in job.ranks] == [
        ("running", 1, 1.0, None), ("unprobed", 0, None, "f (a.py:1)"),
    ]  # fmt: skip


def test_a_state_is_one_word() -> None:
    """The kernel's word comes first: a stopped process writes no beat, and the last one says nothing."""
    flying = beat(0, group(9, 8))
    assert [word_state(flying, letter) for letter in ("S", "T", "t", "Z", "gone", None)] == [
        "communicating", "stopped", "stopped", "lost", "lost", "communicating",
    ]  # fmt: skip
    assert [word_state(beat(0, group(8, 8))), word_state(None)] == ["running", "unprobed"]


@given(st.lists(st.tuples(st.integers(-1, 50), st.integers(-1, 50)), min_size=1, max_size=8), st.randoms())
def test_the_order_of_ranks_changes_nothing(numbers: list[tuple[int, int]], chance: random.Random) -> None:
    """Fronts are the same however ranks are listed, and nobody is behind who is at the front."""
    members = tuple(range(len(numbers)))
    beats = {rank: beat(rank, group(a, min(a, b), members)) for rank, (a, b) in enumerate(numbers)}
    order = list(members)
    chance.shuffle(order)
    shuffled = view({rank: beats[rank] for rank in order}, order)
    assert shuffled.groups == view(beats).groups
    (front,) = shuffled.groups
    assert front.slowest <= front.front
    assert set(front.behind) == {rank for rank, (a, _) in enumerate(numbers) if max(a, 0) < front.front}
