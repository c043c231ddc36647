"""Several groups at once: faults side by side, groups being created, and counts that hold more than collectives."""

from __future__ import annotations

import msgspec

from hangwatch.analysis.case import build_case
from hangwatch.analysis.operations.alignment import mixed_groups
from hangwatch.analysis.stacks.waits import read_wait
from hangwatch.model.capture import RankCapture
from hangwatch.model.collectives import Group, GroupProgress
from hangwatch.model.stacks import Frame
from worlds import collective_frames, operation, rank, world

C10D = "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
LEFT, RIGHT = Group("1", (0, 1, 2)), Group("2", (3, 4, 5))
WORLD4 = Group("0", (0, 1, 2, 3), "default_pg")
WAITING = collective_frames("all_reduce")


def creation(members: tuple[int, ...], name: str = "3") -> tuple[Frame, ...]:
    """The main thread inside ``new_group`` of these members."""
    listed = "list[int]=[" + ",".join(map(str, members)) + "]"
    reported = {"global_ranks_in_group": listed, "group_name": f"str={name}", "group_size": f"int={len(members)}"}
    return (
        Frame("_new_process_group_helper", C10D, 2169, locals=reported),
        Frame("new_group", C10D, 5863, locals={"ranks": listed}),
        Frame("<module>", "/srv/train/train.py", 12),
    )


def with_progress(capture: RankCapture, group: Group, enqueued: int) -> RankCapture:
    """The rank with another count of what it has enqueued in a group, in its record and in its beat."""
    progress = (GroupProgress(group, enqueued, -1, enqueued),)
    assert capture.flight is not None
    flight = msgspec.structs.replace(capture.flight, progress=progress)
    return msgspec.structs.replace(capture, flight=flight, progress=progress)


def test_two_faults_side_by_side_are_two() -> None:
    """In each of two groups that have nothing in common one rank is in another operation: both are named."""
    ranks = []
    for group, odd in ((LEFT, 1), (RIGHT, 5)):
        for number in group.ranks:
            op = "barrier" if number == odd else "all_reduce"
            ranks.append(rank(number, (operation(0, group, 1, op, done=False),), WAITING))
    blame = build_case(world(*ranks)).blame
    assert blame.culprits == (1, 5)
    assert blame.waiting == (0, 2, 3, 4)


def test_a_wrong_pair_elsewhere_takes_no_blame_off_a_root() -> None:
    """One group has a mismatch; in the other a rank is stuck outside of any collective: each sink has its own culprit."""
    reading = (Frame("read", "/srv/train/data.py", 5, "return pipe.read()"),)
    left = [
        rank(r, (operation(0, LEFT, 1, "barrier" if r == 0 else "all_reduce", done=False),), WAITING)
        for r in LEFT.ranks
    ]
    right = [rank(r, (operation(0, RIGHT, 1, done=False),), WAITING) for r in (3, 4)]
    case = build_case(world(*left, *right, rank(5, (), reading, channel="pipe_read")))
    assert case.blame.culprits == (0, 5)


def test_of_several_groups_the_one_that_holds_the_circle_tells_the_sides() -> None:
    """Two ranks went to the world's collective, the others to those of two smaller groups, whichever came first."""
    everyone = Group("0", (0, 1, 2, 3, 4, 5), "default_pg")
    even, odd = Group("1", (0, 2, 4)), Group("2", (1, 3, 5))
    ranks = []
    for number in everyone.ranks:
        group, record = (everyone, 9) if number < 2 else (odd if number % 2 else even, 1)
        ranks.append(rank(number, (operation(record, group, 1, done=False),), WAITING))
    assert build_case(world(*ranks)).blame.culprits == (0, 1)


def test_a_group_is_awaited_from_its_members_alone() -> None:
    """Rank 0 creates a group with rank 1, which is in a collective of all: those two wait for each other, 2 and 3 for 0."""
    pending = (operation(0, WORLD4, 1, done=False),)
    case = build_case(world(rank(0, (), creation((0, 1))), *(rank(r, pending, WAITING) for r in (1, 2, 3))))
    assert [(e.waiters, e.awaited) for e in case.graph.edges if 0 in e.waiters] == [((0,), (1,))]
    assert case.graph.sinks == ((0, 1),)
    assert case.blame.culprits == (0, 1)
    assert case.blame.waiting == (2, 3)


def test_pairs_that_are_created_in_a_ring_wait_for_each_other() -> None:
    """Each rank creates the group with its neighbour first: a circle, proven, and nobody is on a smaller side."""
    ranks = [rank(r, (), creation(tuple(sorted((r, (r + 1) % 4))), name=str(r))) for r in range(4)]
    blame = build_case(world(*ranks)).blame
    assert blame.culprits == (0, 1, 2, 3)
    assert blame.proof is not None


def test_two_names_for_one_group_never_meet() -> None:
    """The name holds a count that differs between the two: they wait for each other for ever."""
    blame = build_case(world(*(rank(r, (), creation((0, 1), name=str(7 + r))) for r in (0, 1)))).blame
    assert blame.culprits == (0, 1)
    assert blame.proof is not None


def test_the_group_being_created_is_read_from_the_innermost_frame_that_tells() -> None:
    """Members and name; a stack without them tells neither."""
    wait = read_wait(creation((0, 2), name="5"))
    assert wait is not None
    assert (wait.kind, wait.peers, wait.group) == ("group_creation", (0, 2), "5")
    bare = read_wait(tuple(msgspec.structs.replace(f, locals=None) for f in creation((0, 2))))
    assert bare is not None
    assert (bare.peers, bare.group) == ((), "")


def test_counts_with_sends_among_them_are_not_compared_with_collectives() -> None:
    """Gloo counts sends and receives that it does not record: a rank 40 operations ahead by count has not joined number 3."""
    done = (operation(0, WORLD4, 1), operation(1, WORLD4, 2))
    ahead = with_progress(rank(3, done, (Frame("read", "/srv/train/data.py", 5),), channel="pipe_read"), WORLD4, 40)
    assert mixed_groups(ahead) == {WORLD4.key}
    pending = (*done, operation(2, WORLD4, 3, done=False))
    case = build_case(world(*(rank(r, pending, WAITING) for r in range(3)), ahead))
    assert case.blame.culprits == (3,)
    assert case.blame.waiting == (0, 1, 2)


def test_print_blocked_in_its_write_is_no_wait_for_the_device() -> None:
    """``print(loss)`` copies a tensor and then writes: the call says in which of the two it is."""
    frame = Frame("train", "/srv/train/train.py", 20, source="print(loss)", locals={"loss": "Tensor"})
    stuck = rank(1, (), (frame,), channel="pipe_write")
    writing = tuple(msgspec.structs.replace(p, syscall="write") for p in stuck.processes)
    pending = (operation(0, Group("0", (0, 1), "default_pg"), 1, done=False),)
    views = build_case(world(rank(0, pending, WAITING), msgspec.structs.replace(stuck, processes=writing))).views
    assert views[1].wait is None
    assert views[1].waits_for_no_rank


def test_a_recorder_that_is_off_says_nothing_of_the_counts() -> None:
    """No entry on the record, and a count: the count is all there is, and the rank is not called absent."""
    pending = (operation(0, WORLD4, 3, done=False),)
    off = with_progress(rank(3, (), WAITING), WORLD4, 3)
    assert mixed_groups(off) == frozenset()
    case = build_case(world(*(rank(r, pending, WAITING) for r in range(3)), off))
    assert all(e.reason != "absent" for e in case.graph.edges)


def test_by_stacks_alone_a_step_apart_in_one_loop_is_one_side() -> None:
    """Without a recorder: two ranks in different collectives of the same loop, one at a barrier behind it, which is named."""

    def at(op: str, *lines: int) -> RankCapture:
        frames = (
            Frame(op, C10D, 100, locals={"group": "None"}),
            *(Frame("train", "/srv/train/train.py", n) for n in lines),
        )
        return msgspec.structs.replace(rank(len(ranks), (), frames), flight=None, progress=None, beat_age_s=None)

    ranks: list[RankCapture] = []
    for op, lines in (("broadcast", (31, 20)), ("all_reduce", (32, 20)), ("barrier", (25,))):
        ranks.append(at(op, *lines))
    assert build_case(world(*ranks)).blame.culprits == (2,)


def among(members: tuple[int, ...], tag: dict[str, str], *deeper: Frame) -> tuple[Frame, ...]:
    """The main thread inside ``new_group`` of these members, with ``_new_group_with_tag`` and what is deeper than that."""
    helper, *outer = creation(members)
    within = Frame("_new_group_with_tag", C10D, 6069, locals=tag)
    return (*(deeper or (helper,)), within, *outer)


def test_a_list_of_members_that_is_cut_proves_nothing() -> None:
    """The stack shows the beginning of a long list only: who is awaited is not known, unless it is everybody."""
    cut = {"ranks": "list[int, ...]", "group_world_size": "int=2", "global_world_size": "int=4"}
    helper = Frame("_new_process_group_helper", C10D, 2169, locals={"global_ranks_in_group": "list[int, ...]"})
    pending = (operation(0, WORLD4, 1, done=False),)

    def proof_of(tag: dict[str, str]) -> str | None:
        frames = (helper, Frame("_new_group_with_tag", C10D, 6069, locals=tag), *collective_frames("new_group")[1:])
        case = build_case(world(rank(0, (), frames), *(rank(r, pending, WAITING) for r in (1, 2, 3))))
        assert 0 in case.blame.culprits
        return case.blame.proof

    assert proof_of(cut) is None
    assert proof_of({**cut, "group_world_size": "int=4"}) is not None


def test_the_barrier_after_a_creation_is_for_every_rank() -> None:
    """With TORCH_DIST_INIT_BARRIER=1 non-members are awaited too, unless only members take part in the creation."""

    def awaited(count: int) -> tuple[int, ...]:
        barrier = Frame("_store_based_barrier", C10D, 1050, locals={"rendezvous_count": f"int={count}"})
        wait = read_wait(among((0, 1), {"ranks": "list[int]=[0,1]"}, barrier))
        assert wait is not None
        assert wait.kind == "group_creation"
        assert wait.exact
        return wait.peers

    assert awaited(4) == ()
    assert awaited(2) == (0, 1)


def test_a_split_takes_the_ranks_of_the_group_that_is_split() -> None:
    """NCCL makes a group out of the default one's communicator; ``split_group`` out of one that the stack does not name."""
    helper, outer, main = creation((0, 1))
    split = msgspec.structs.replace(helper, locals={**(helper.locals or {}), "split_from": "ProcessGroupNCCL"})
    wait = read_wait((split, outer, main))
    assert wait is not None
    assert (wait.peers, wait.exact) == ((), True)
    wait = read_wait((Frame("split_group", C10D, 5700, locals={"split_ranks": "list[list, ...]"}), outer, main))
    assert wait is not None
    assert (wait.peers, wait.exact) == ((), False)


def test_a_rank_stopped_in_the_same_creation_is_awaited() -> None:
    """It has come, but does not answer."""
    ranks = [rank(r, (), creation((0, 1, 2)), state="T" if r == 2 else "S") for r in range(3)]
    blame = build_case(world(*ranks)).blame
    assert blame.culprits == (2,)
    assert blame.waiting == (0, 1)


def test_a_rank_that_awaits_an_operation_in_a_destructor_is_part_of_the_circle() -> None:
    """``destroy_process_group`` has returned; the line of the call is all that the stack shows."""
    everyone, replicas = WORLD4, Group("1", WORLD4.ranks)
    line = (Frame("main", "/srv/train/train.py", 39, "dist.destroy_process_group()"),)
    leaving = rank(1, (operation(0, everyone, 1, done=False),), line)
    others = [rank(r, (operation(0, replicas, 9, done=False),), WAITING) for r in (0, 2, 3)]
    blame = build_case(world(leaving, *others)).blame
    assert blame.culprits == (1,)
    assert blame.proof is not None
    assert build_case(world(rank(1, (), line), *others)).views[1].wait is None


def test_a_rank_that_is_gone_proves_nothing_where_the_members_are_not_known() -> None:
    """It may have had no part in the group that is being created."""
    cut = Frame("_new_process_group_helper", C10D, 2169, locals={"global_ranks_in_group": "list[int, ...]"})
    frames = (cut, *collective_frames("new_group")[1:])
    case = build_case(world(*(rank(r, (), frames) for r in (0, 1)), rank(2, (), state="gone")))
    assert case.blame.proof is None
    assert any("may be the other end" in line for line in case.waits())
    known = build_case(world(*(rank(r, (), creation((0, 1, 2))) for r in (0, 1)), rank(2, (), state="gone")))
    assert known.blame.proof is not None


def test_of_two_names_for_one_group_the_rarer_is_to_blame() -> None:
    """Rank 3 has made a group more than the others, and counts on from there."""
    ranks = [rank(r, (), creation((0, 1, 2, 3), name="4" if r == 3 else "3")) for r in range(4)]
    blame = build_case(world(*ranks)).blame
    assert blame.culprits == (3,)
    assert blame.waiting == (0, 1, 2)
    assert blame.proof is not None


def test_a_group_of_everybody_is_known_by_its_name_too() -> None:
    """With ``use_local_synchronization`` it is a digest of the members and of how many groups a rank has made: one made more."""
    everybody = {"group_world_size": "int=4", "global_world_size": "int=4"}

    def inside(name: str) -> tuple[Frame, ...]:
        helper, called, module = creation((0, 1, 2, 3), name)
        return (helper, Frame("_new_group_with_tag", C10D, 5763, locals=everybody), called, module)

    ranks = [rank(r, (), inside("3dc4379e" if r == 3 else "3b64ef6b")) for r in range(4)]
    blame = build_case(world(*ranks)).blame
    assert (blame.culprits, blame.waiting) == ((3,), (0, 1, 2))
    assert blame.proof is not None
    assert build_case(world(*(rank(r, (), inside("3b64ef6b")) for r in range(4)))).blame.shape == "together"
