"""Who is in a group that ``new_group`` did not make: those that say so, and nobody by number alone."""

from __future__ import annotations

from hangwatch.model.beats import Beat, BeatGroup
from hangwatch.sources.beats.memberships import resolve_members

HOME = "tcp://10.0.0.1:29500"
AWAY = "tcp://10.0.0.1:41000"


def beat(pid: int, rank: int | None, *groups: BeatGroup, store: str = HOME) -> Beat:
    world = BeatGroup("0", (0, 1, 2, 3), description="default_pg")
    return Beat(1, pid, 1, 1, 1, rank=rank, world_size=4, initialized=True, groups=(world, *groups), store=store)


def away(place: int, size: int = 3, *, foreign: bool = True) -> BeatGroup:
    ranks = tuple(range(size))
    return BeatGroup("weights", ranks, place=place, size=size, store=AWAY, foreign=foreign)


def members(beats: dict[int, Beat], pid: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    group = resolve_members(beats)[pid].groups[-1]
    return group.ranks, group.outside


def test_places_that_no_rank_claims_are_outside() -> None:
    """Trainer 0 is in a group of three with two engines: its numbers 1 and 2 are not ranks 1 and 2."""
    assert members({10: beat(10, 0, away(0)), 11: beat(11, 1)}, 10) == ((0,), (1, 2))


def test_ranks_of_one_world_that_claim_places_are_the_members() -> None:
    """Rank 0 and rank 3 are places 0 and 1 of the group, and place 2 is nobody's."""
    beats = {10: beat(10, 0, away(0)), 13: beat(13, 3, away(1)), 11: beat(11, 1)}
    assert members(beats, 10) == members(beats, 13) == ((0, 3), (2,))


def test_a_process_of_another_world_is_no_rank_of_this_one() -> None:
    """The engine, rank 0 of its own world, claims place 1: this says nothing of this world's rank 0."""
    beats = {10: beat(10, 0, away(0, 2)), 20: beat(20, 0, away(1, 2), store="tcp://10.0.0.1:5000")}
    assert members(beats, 10) == ((0,), (1,))
    assert members(beats, 20) == ((0,), (0,))


def test_a_world_whose_store_is_not_known_claims_nothing_for_others() -> None:
    """Without knowing where two processes met they are not taken for ranks of one world."""
    beats = {10: beat(10, 0, away(0, 2), store=""), 11: beat(11, 1, away(1, 2), store="")}
    assert members(beats, 10) == ((0,), (1,))


def test_two_claims_of_one_place_count_for_none() -> None:
    """Nobody can say which of two ranks has the place."""
    beats = {10: beat(10, 0, away(0)), 11: beat(11, 1, away(1)), 12: beat(12, 2, away(1))}
    assert members(beats, 10) == ((0,), (1, 2))


def test_one_member_that_knows_the_numbers_to_be_foreign_is_enough() -> None:
    """Rank 0 has number 0 in the group too and may take its numbers for ranks; rank 3, with number 1, knows better."""
    beats = {10: beat(10, 0, away(0, 2, foreign=False)), 13: beat(13, 3, away(1, 2))}
    assert members(beats, 10) == ((0, 3), ())


def test_a_listed_rank_that_is_seen_and_does_not_know_the_group_is_no_member() -> None:
    """Rank 1 lives, has a world, and no such group: number 1 is somebody else."""
    group = away(0, 2, foreign=False)
    assert members({10: beat(10, 0, group), 11: beat(11, 1)}, 10) == ((0,), (1,))
    assert members({10: beat(10, 0, group)}, 10) == ((0, 1), ())


def test_groups_of_new_group_are_left_as_they_are() -> None:
    """Nothing is taken from a group that torch made over the whole world, whoever else has it yet."""
    beats = {10: beat(10, 0, BeatGroup("1", (0, 1))), 11: beat(11, 1)}
    assert resolve_members(beats) == beats


def test_an_absurd_size_is_not_counted_out() -> None:
    """A beat that says a group has a billion members costs no memory."""
    huge = BeatGroup("weights", (), place=0, size=10**9, foreign=True)
    ranks, outside = members({10: beat(10, 0, huge)}, 10)
    assert ranks == (0,)
    assert len(outside) < 1 << 16
