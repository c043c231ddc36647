"""A wait for a key of a store that other worlds may use: whom it is for is not known, and it is no hang of the own world."""

from __future__ import annotations

import msgspec
import pytest

from hangwatch.analysis.case import build_case
from hangwatch.analysis.patience import OUTSIDE_FLOOR_S, fixed_patience
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.capture import Capture, RankCapture
from hangwatch.model.collectives import Group
from hangwatch.model.stacks import Frame
from worlds import collective_frames, operation, rank, world

WORLD = Group("0", (0, 1, 2), "default_pg")
GET = Frame("take", "/srv/train/train.py", 25, source="return self.store.get(key)")
MAKE = Frame("join", "/srv/train/train.py", 20, source="self.store = TCPStore(host, port, 2, is_master=True)")
OWN_PORT, OTHER_PORT = 29500, 40100


def in_store(number: int, port: int, frame: Frame = GET) -> RankCapture:
    """A rank that has completed one collective of its world, and is in a call of a store at a port."""
    one = rank(number, (operation(1, WORLD, 1),), (frame, Frame("main", "/srv/train/train.py", 60)))
    polls = [
        msgspec.structs.replace(p, syscall="poll", blocked_on=f"socket:[7] to 127.0.0.1:{port}") for p in one.processes
    ]
    identity = msgspec.structs.replace(one.identity, meeting_port=OWN_PORT)
    return msgspec.structs.replace(one, identity=identity, processes=tuple(polls))


def in_collective(number: int) -> RankCapture:
    """A rank in the next collective of the world."""
    return rank(number, (operation(1, WORLD, 1), operation(2, WORLD, 2, done=False)), collective_frames("all_reduce"))


def said(capture: Capture, waited_s: float = 10.0) -> tuple[str, bool, tuple[int, ...]]:
    """Kind, whether proven, and culprits, with a patience of six seconds."""
    later = msgspec.structs.replace(capture, at_ns=capture.at_ns + int((waited_s - 10.0) * 1e9))
    found = diagnose(later, patience=fixed_patience(6.0)).verdict
    return found.kind, found.proven, found.culprit_ranks


@pytest.mark.parametrize("frame", [GET, MAKE], ids=["awaits-a-key", "makes-a-store"])
def test_who_uses_a_store_of_its_own_is_no_hang_for_half_an_hour(frame: Frame) -> None:
    """Rank 0 alone is in that store, the others wait for it in a collective: a warning that names nobody."""
    capture = world(in_store(0, OTHER_PORT, frame), in_collective(1), in_collective(2))
    assert said(capture) == ("straggler", False, ())
    assert said(capture, OUTSIDE_FLOOR_S + 60.0) == ("stall", False, ())
    found = diagnose(capture, patience=fixed_patience(6.0)).verdict
    assert "hangwatch cannot see who should set the key" in found.summary
    assert "rank 0 waits in a store read for a key that no known process is about to set" in found.waits


def test_a_key_of_the_own_worlds_store_is_for_its_ranks() -> None:
    """The store in which the world has met: a rank of it is to set the key, and all of them wait."""
    kind, proven, named = said(world(in_store(0, OWN_PORT), in_collective(1), in_collective(2)))
    assert (kind, proven) == ("stall", False)
    assert named


def test_several_ranks_of_one_world_in_one_store_wait_for_the_rest_of_it() -> None:
    """Ranks 0 and 1 await keys in a store of their own, rank 2 reads a pipe: it is named."""
    reads = rank(2, (operation(1, WORLD, 1),), (Frame("load", "/srv/train/train.py", 7),), channel="pipe_read")
    found = diagnose(world(in_store(0, OTHER_PORT), in_store(1, OTHER_PORT), reads)).verdict
    assert (found.proven, found.culprit_ranks, found.waiting_ranks) == (False, (2,), (0, 1))


def test_a_rank_makes_its_store_right_after_its_world() -> None:
    """Its own beat is older than the world, but another rank's has it in the default group."""
    late = msgspec.structs.replace(in_store(0, OTHER_PORT, MAKE), progress=(), flight=None)
    assert said(world(late, in_collective(1), in_collective(2))) == ("straggler", False, ())


def test_a_store_that_a_world_is_to_meet_in_is_for_its_ranks() -> None:
    """Before there is any group, who makes a store is on the way to its own world."""
    alone = msgspec.structs.replace(in_store(0, OTHER_PORT, MAKE), progress=(), flight=None)
    capture = world(alone, msgspec.structs.replace(in_store(1, OTHER_PORT, MAKE), progress=(), flight=None))
    assert all(view.wait is None for view in build_case(capture).views.values())


def test_who_makes_a_store_polls_and_waits_all_the_same() -> None:
    """A thread that sleeps between two looks at its clients switches all the time: it is in one wait, by its frames."""
    zero = in_store(0, OTHER_PORT, MAKE)
    polling = (msgspec.structs.replace(p, switches=n) for n, p in enumerate(zero.processes))
    capture = world(msgspec.structs.replace(zero, processes=tuple(polling)), in_collective(1), in_collective(2))
    found = diagnose(capture, patience=fixed_patience(6.0), min_wait_s=0.5).verdict
    assert (found.kind, found.culprit_ranks) == ("straggler", ())


def test_a_wait_that_ends_while_it_is_captured_is_none() -> None:
    """The stack was read in a long all_reduce, the record right after it: that has completed, and nothing else is in flight."""
    done = msgspec.structs.replace(operation(1, WORLD, 1), backend="gloo")
    elsewhere = msgspec.structs.replace(done, op="broadcast")
    called, *rest = collective_frames("all_reduce")
    for recorded, line, healthy in (
        (done, "work.wait()", True),
        (elsewhere, "work.wait()", False),
        (done, "work = group.allreduce([tensor], opts)", False),  # NCCL connects, after a collective on Gloo
    ):
        frames = (msgspec.structs.replace(called, source=line), *rest)
        capture = world(*(rank(r, (recorded,), frames) for r in range(3)))
        assert (diagnose(capture).verdict.kind == "healthy") is healthy


def test_nothing_is_proven_by_a_key_that_one_who_is_gone_may_have_set() -> None:
    """Ranks 0 and 1 await keys in their world's store, rank 2 is gone: it is named, and another process may set the keys yet."""
    gone = rank(2, (operation(1, WORLD, 1),), state="gone")
    assert said(world(in_store(0, OWN_PORT), in_store(1, OWN_PORT), gone)) == ("rank_lost", False, (2,))
