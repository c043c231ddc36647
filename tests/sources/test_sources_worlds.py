"""Who is in a group that ``new_group`` did not make: those that say so, and nobody by number alone."""

from __future__ import annotations

import msgspec

from hangwatch.model.beats import Beat, BeatGroup
from hangwatch.model.numbers import is_guest
from hangwatch.sources.beats.worlds import Worlds

HOME = "tcp://10.0.0.1:29500"
AWAY = "tcp://10.0.0.1:41000"
ENGINES = "tcp://10.0.0.1:5000"


def beat(pid: int, rank: int | None, *groups: BeatGroup, store: str = HOME, world_size: int | None = 4) -> Beat:
    world = BeatGroup("0", (0, 1, 2, 3), description="default_pg")
    known = {"world_size": world_size, "initialized": True, "groups": (world, *groups), "store": store}
    return msgspec.structs.replace(Beat(1, pid, 1, 1, 1, rank=rank), **known)


def away(place: int, size: int = 3, *, foreign: bool = True) -> BeatGroup:
    ranks = tuple(range(size))
    return BeatGroup("weights", ranks, place=place, size=size, store=AWAY, foreign=foreign)


def members(beats: dict[int, Beat], pid: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    group = Worlds().resolve(beats)[pid].groups[-1]
    return group.ranks, group.outside


def test_places_that_no_rank_claims_are_outside() -> None:
    """Trainer 0 is in a group of three with two engines: its numbers 1 and 2 are not ranks 1 and 2."""
    assert members({10: beat(10, 0, away(0)), 11: beat(11, 1)}, 10) == ((0,), (1, 2))


def test_ranks_of_one_world_that_claim_places_are_the_members() -> None:
    """Rank 0 and rank 3 are places 0 and 1 of the group, and place 2 is nobody's."""
    beats = {10: beat(10, 0, away(0)), 13: beat(13, 3, away(1)), 11: beat(11, 1)}
    assert members(beats, 10) == members(beats, 13) == ((0, 3), (2,))


def test_a_process_of_another_world_has_a_number_that_no_rank_has() -> None:
    """The engine, rank 0 of its own world, claims place 1: this says nothing of this world's rank 0."""
    beats = {10: beat(10, 0, away(0, 2)), 20: beat(20, 0, away(1, 2), store=ENGINES, world_size=1)}
    found = Worlds().resolve(beats)
    engine = found[20].number
    assert engine is not None
    assert is_guest(engine)
    assert found[20].host == 10
    assert (found[10].number, found[10].host) == (None, None)
    assert [found[pid].groups[-1].ranks for pid in (10, 20)] == [(0, engine), (0, engine)]
    assert [found[pid].groups[0].ranks for pid in (10, 20)] == [(0, 1, 2, 3), tuple(engine + n for n in range(4))]


def test_a_process_without_a_world_is_known_by_what_it_claims() -> None:
    """An engine that has no default group, and the trainers that it takes weights from."""
    engine = msgspec.structs.replace(beat(20, None, store="", world_size=None), initialized=False, groups=(away(1, 2),))
    found = Worlds().resolve({10: beat(10, 0, away(0, 2)), 20: engine})
    number = found[20].number
    assert number is not None
    assert is_guest(number)
    assert (found[10].groups[-1].ranks, found[10].groups[-1].outside) == ((0, number), ())


def test_the_job_is_called_by_its_launchers_world() -> None:
    """Eight engine workers and two trainers of torchrun: the trainers keep their ranks."""
    trainer = msgspec.structs.replace(beat(10, 0, away(0, 2), world_size=2), local_rank=0)
    found = Worlds().resolve({10: trainer, 20: beat(20, 0, away(1, 2), store=ENGINES, world_size=8)})
    assert found[10].number is None
    assert found[20].host == 10


def test_this_machine_has_many_names_for_itself() -> None:
    """A trainer that was given ``localhost`` and an engine that was given ``127.0.0.1`` meet in one store."""
    mine = msgspec.structs.replace(away(0, 2), store="tcp://localhost:41000")
    theirs = msgspec.structs.replace(away(1, 2), store="tcp://127.0.0.1:41000")
    found = Worlds().resolve({10: beat(10, 0, mine), 20: beat(20, 0, theirs, store=ENGINES, world_size=1)})
    assert found[10].groups[-1].outside == ()


def test_worlds_stay_linked_when_their_group_is_destroyed() -> None:
    """Numbers do not change with every group that comes and goes."""
    worlds = Worlds()
    beats = {10: beat(10, 0, away(0, 2)), 20: beat(20, 0, away(1, 2), store=ENGINES, world_size=1)}
    number = worlds.resolve(beats)[20].number
    without = {10: beat(10, 0), 20: beat(20, 0, store=ENGINES, world_size=1)}
    assert worlds.resolve(without)[20].number == number
    assert worlds.resolve({10: without[10]})[10] == without[10]
    assert worlds.resolve({20: without[20]})[20] == without[20]


def test_the_claim_of_a_process_that_is_gone_stands_until_another_one_has_its_place() -> None:
    """Whoever waits for it waits for that process; an engine that is started anew takes its place."""
    worlds = Worlds()
    trainer = beat(10, 0, away(0, 2))
    first = worlds.resolve({10: trainer, 20: beat(20, 0, away(1, 2), store=ENGINES, world_size=1)})[20].number
    assert worlds.resolve({10: trainer})[10].groups[-1].ranks == (0, first)
    again = worlds.resolve({10: trainer, 21: beat(21, 0, away(1, 2), store="tcp://10.0.0.1:5001", world_size=1)})
    assert again[10].groups[-1].ranks == (0, again[21].number)
    assert again[21].number != first


def test_a_claim_that_is_given_up_counts_no_more() -> None:
    """The engine lives and has left the group: its place is nobody's."""
    worlds = Worlds()
    trainer = beat(10, 0, away(0, 2))
    worlds.resolve({10: trainer, 20: beat(20, 0, away(1, 2), store=ENGINES, world_size=1)})
    left = worlds.resolve({10: trainer, 20: beat(20, 0, store=ENGINES, world_size=1)})
    assert (left[10].groups[-1].ranks, left[10].groups[-1].outside) == ((0,), (1,))


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
    assert Worlds().resolve(beats) == beats


def test_an_absurd_size_is_not_counted_out() -> None:
    """A beat that says a group has a billion members costs no memory."""
    huge = BeatGroup("weights", (), place=0, size=10**9, foreign=True)
    ranks, outside = members({10: beat(10, 0, huge)}, 10)
    assert ranks == (0,)
    assert len(outside) < 1 << 16
