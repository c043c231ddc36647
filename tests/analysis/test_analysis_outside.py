"""Groups with members that no rank of the job says it is: nothing is proven over them, and no rank is blamed for them."""

from __future__ import annotations

import msgspec
import pytest

from hangwatch.analysis.case import build_case
from hangwatch.analysis.patience import OUTSIDE_FLOOR_S, fixed_patience
from hangwatch.analysis.stacks.waits import read_wait
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.capture import Capture
from hangwatch.model.collectives import Group, GroupProgress
from hangwatch.model.numbers import guest_number
from hangwatch.model.stacks import Frame
from hangwatch.model.transforms.packing import pack, unpack
from worlds import TORCH, collective_frames, operation, rank, world

WORLD = Group("0", (0, 1), "default_pg")
#: Trainer 0 and an engine; before anybody asked who claims it, place 1 passed for rank 1.
WEIGHTS, MISTAKEN = Group("weights", (0,), outside=(1,)), Group("weights", (0, 1))


def late_engine(group: Group) -> Capture:
    """Rank 0 is in a barrier of the group, rank 1 in the next collective of the world."""
    zero = rank(
        0,
        (operation(1, WORLD, 1), operation(2, group, 1, "barrier", done=False)),
        collective_frames("barrier", 20),
    )
    one = rank(1, (operation(1, WORLD, 1), operation(2, WORLD, 2, done=False)), collective_frames("all_reduce", 30))
    unused = GroupProgress(MISTAKEN, 0, -1, 0)
    return world(zero, msgspec.structs.replace(one, progress=(*(one.progress or ()), unused)))


def test_what_looked_like_a_circle_is_no_proof_without_the_claim() -> None:
    """With place 1 taken for rank 1 there was a proof; where nobody claims it, nobody is named."""
    assert diagnose(late_engine(MISTAKEN)).verdict.proven
    found = diagnose(late_engine(WEIGHTS), patience=fixed_patience(6.0)).verdict
    assert (found.kind, found.severity, found.proven, found.culprit_ranks) == ("straggler", "warning", False, ())
    assert "group weights" in found.summary
    assert "no process that hangwatch sees has that place" in found.summary


@pytest.mark.parametrize("group", [Group("weights", ()), MISTAKEN], ids=["members-unknown", "rank-1-knows-nothing"])
def test_a_member_that_does_not_know_the_group_is_no_proof(group: Group) -> None:
    """A record may be newer than any beat that has the group, and who is in it is not known then: not everyone is.

    Rank 1 says which groups it is in, and this is none of them: its place may be another process's.
    """
    capture = late_engine(group)
    zero, one = capture.ranks
    own = msgspec.structs.replace(one, progress=(one.progress or ())[:1])
    assert not diagnose(msgspec.structs.replace(capture, ranks=(zero, own))).verdict.proven


@pytest.mark.parametrize("hidden", [False, True], ids=["a library's", "names hidden by torch"])
def test_a_group_without_a_name_is_no_group_of_the_job(hidden: bool) -> None:
    """torchft 0.2 makes a Gloo backend itself for each quorum: rank 0 of this job meets rank 0 of another one there.

    It was said of the ranks of one job that all had joined. With TORCH_DISTRIBUTED_DEBUG=DETAIL no group has a name.
    """
    own = Group("", ())
    ranks = [
        msgspec.structs.replace(
            rank(r, (operation(1, own, 1), operation(2, own, 2, done=False)), collective_frames("all_reduce")),
            progress=(),
            unrecorded=hidden,
        )
        for r in (0, 1)
    ]
    found = diagnose(world(*ranks)).verdict
    assert (found.proven, found.culprit_ranks) == (False, ())
    assert ("a group without a name, and no process" in found.summary) is not hidden


def test_it_is_not_reported_within_the_patience() -> None:
    """Ten seconds are within the default patience: nothing is said at all."""
    assert diagnose(late_engine(WEIGHTS), patience=fixed_patience(30.0)).verdict.kind == "healthy"


def test_what_cannot_be_seen_is_no_hang_for_half_an_hour() -> None:
    """Only after half an hour an unseen member is called stuck, whatever patience was asked for."""
    capture = late_engine(WEIGHTS)
    for waited_s, kind in ((OUTSIDE_FLOOR_S - 60, "straggler"), (OUTSIDE_FLOOR_S + 60, "stall")):
        later = msgspec.structs.replace(capture, at_ns=capture.at_ns + int(waited_s * 1e9))
        found = diagnose(later, patience=fixed_patience(6.0)).verdict
        assert (found.kind, found.proven, found.culprit_ranks) == (kind, False, ())


def test_a_rank_that_hangs_by_itself_is_blamed_beside_an_unknown_member() -> None:
    """Rank 2 is nowhere to be seen waiting: it holds the world up, and not the engine."""
    everyone = Group("0", (0, 1, 2), "default_pg")
    capture = world(
        rank(0, (operation(1, WEIGHTS, 1, "barrier", done=False),), collective_frames("barrier", 20)),
        rank(1, (operation(1, everyone, 1, done=False),), collective_frames("all_reduce", 30)),
        rank(2, (), (Frame("load", "/srv/train/train.py", 7),), channel="pipe_read"),
    )
    assert diagnose(capture, patience=fixed_patience(6.0)).verdict.culprit_ranks == (2,)


def test_two_trainers_in_one_group_with_an_engine_prove_nothing_about_each_other() -> None:
    """Both trainers share the group with an engine; one skips a tensor and is in the world's next collective."""
    shared = Group("weights", (0, 1), outside=(2,))
    capture = world(
        rank(0, (operation(1, shared, 5, "broadcast", done=False),), collective_frames("broadcast", 20)),
        rank(
            1,
            (operation(1, shared, 4, "broadcast"), operation(2, WORLD, 1, done=False)),
            collective_frames("all_reduce", 30),
        ),
    )
    found = diagnose(capture).verdict
    assert (found.proven, found.culprit_ranks) == (False, ())
    assert diagnose(late_engine(MISTAKEN)).verdict.proven


def test_different_operations_at_one_number_prove_nothing_with_an_unknown_member() -> None:
    """Where some members are not known, a broadcast beside a barrier is no proof."""
    for group, proven in ((Group("weights", (0, 1), outside=(2,)), False), (MISTAKEN, True)):
        capture = world(
            rank(0, (operation(1, group, 5, "broadcast", done=False),), collective_frames("broadcast", 20)),
            rank(1, (operation(1, group, 5, "barrier", done=False),), collective_frames("barrier", 30)),
        )
        assert diagnose(capture).verdict.proven is proven


def test_a_rendezvous_of_a_rank_that_has_its_world_is_for_another_one() -> None:
    """Rank 0 awaits an engine in a rendezvous: rank 1, which waits for rank 0, shows no fault of it."""
    frames = (
        Frame(
            "_create_c10d_store", TORCH.replace("distributed_c10d", "rendezvous"), 190, locals={"world_size": "int=9"}
        ),
        Frame("join_group", "/srv/train/train.py", 25),
    )
    zero = msgspec.structs.replace(rank(0, (), frames), progress=(GroupProgress(WORLD, 0, -1, 0),))
    capture = world(zero, rank(1, (operation(1, WORLD, 1, done=False),), collective_frames("all_reduce", 30)))
    case = build_case(capture)
    assert case.world == (0, 1)
    assert (case.blame.shape, case.blame.culprits) == ("outside", ())


@pytest.mark.parametrize("listed", [{"global_ranks_in_group": "list[]"}, {"global_ranks_in_group": "?"}, {}])
def test_a_group_that_the_program_makes_itself_has_members_of_its_own(listed: dict[str, str]) -> None:
    """``_new_process_group_helper`` called by the program is no creation of a group of this world; by ``new_group`` it is.

    Also where its locals could not be read: a healthy job was called a stall for that, in the moment in which it went on.
    """
    helper = Frame("_new_process_group_helper", TORCH, 2100, locals=listed)
    wait = read_wait((helper, Frame("join_group", "/srv/train/train.py", 27)))
    assert wait is not None
    assert wait.outside
    within = read_wait((helper, Frame("new_group", TORCH, 5800), Frame("setup", "/srv/train/train.py", 27)))
    assert within is not None
    assert not within.outside


def test_a_send_to_a_number_of_a_group_with_unknown_members_is_to_no_rank_of_the_job() -> None:
    """Rank 0 receives from number 1 of the weights group, which its stack shows as ``src=1``: that is not rank 1."""
    receiving = (
        Frame("recv", TORCH, 2700, locals={"src": "int=1", "group": "ProcessGroup"}),
        Frame("train", "/srv/train/train.py", 20),
    )
    zero = msgspec.structs.replace(rank(0, (), receiving), progress=(GroupProgress(WEIGHTS, 0, -1, 0),))
    capture = world(zero, rank(1, (operation(1, WORLD, 1, done=False),), collective_frames("all_reduce", 30)))
    found = diagnose(capture).verdict
    assert (found.proven, found.culprit_ranks) == (False, ())


def test_without_a_record_a_stack_does_not_say_which_world_it_waits_for() -> None:
    """Rank 0 shares a group with an engine and is in a broadcast, rank 1 in a barrier: one without a recorder may be in either
    group, and is not taken to wait for rank 1. In a group of the world alone it is."""
    zero, one = rank(0, (), collective_frames("broadcast", 20)), rank(1, (), collective_frames("barrier", 30))
    own = GroupProgress(WORLD, 5, -1, 4)
    for members, blamed in (((0, guest_number("engines", 0)), False), ((0, 1), True)):
        shared = GroupProgress(Group("weights", members), 3, -1, 2)
        ranks = (msgspec.structs.replace(zero, progress=(own, shared)), msgspec.structs.replace(one, progress=(own,)))
        case = build_case(world(*(msgspec.structs.replace(one, flight=None) for one in ranks)))
        assert bool(case.blame.culprits) == blamed


def test_numbers_within_a_group_count_the_unknown_members_too() -> None:
    """Places 0 and 2 are ranks 4 and 7, place 1 is nobody's."""
    group = Group("weights", (4, 7), outside=(1,))
    assert [group.rank_at(place) for place in range(4)] == [4, None, 7, None]


def test_unknown_members_survive_the_way_to_another_node() -> None:
    """A packed capture says of its groups what the first one said."""
    capture = late_engine(WEIGHTS)
    assert unpack(pack(capture)) == capture
