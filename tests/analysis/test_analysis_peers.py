"""Whom a send or receive waits for: a rank of all, or one within a group that the stack does not name."""

from __future__ import annotations

import msgspec
import pytest

from hangwatch.analysis.ranks.views import view_rank
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.collectives import Group, GroupProgress
from hangwatch.model.stacks import Frame
from hangwatch.sources.stacks.samples import describe_locals
from worlds import TORCH, rank, world

EVERYONE, PAIR = Group("0", (0, 1, 2, 3), "default_pg"), Group("1", (2, 3))
WRAPPER = Frame("_exception_logger.<locals>.wrapper", "/opt/torch/distributed/c10d_logger.py", 83)


def peers(frames: tuple[Frame, ...], *groups: Group) -> tuple[int, ...]:
    """Whom rank 2 waits for, a member of these groups."""
    capture = rank(2, (), (*frames, Frame("<module>", "/srv/train/train.py", 12)))
    progress = tuple(GroupProgress(g, 0, -1, 0) for g in groups)
    wait = view_rank(msgspec.structs.replace(capture, progress=progress)).wait
    assert wait is not None
    assert wait.kind == "point_to_point"
    return wait.peers


def send(**reported: int | str) -> Frame:
    """A frame of ``send`` with these variables."""
    texts = {name: f"int={value}" if isinstance(value, int) else value for name, value in reported.items()}
    return Frame("send", TORCH, 2700, "work.wait()", {"dst": "None", "group": "ProcessGroup", **texts})


def test_a_global_rank_is_taken_as_it_is() -> None:
    """Whatever the rank within the group is."""
    assert peers((send(dst=3, group_dst=1),), EVERYONE, PAIR) == (3,)


def test_a_rank_within_a_group_is_no_global_one() -> None:
    """It is known only where the rank is in one group, or where it is the default group's."""
    assert peers((send(group_dst=1),), EVERYONE, PAIR) == ()
    assert peers((send(group_dst=1),), EVERYONE) == (1,)
    assert peers((send(group_dst=1, group="None"),), EVERYONE, PAIR) == (1,)


def test_a_group_that_is_named_says_who_is_meant() -> None:
    """Its name is put on the stack where the beat has its object's address."""
    assert peers((send(group_dst=1, group="ProcessGroup=1"),), EVERYONE, PAIR) == (3,)
    assert peers((send(group_dst=1, group="ProcessGroup=7"),), EVERYONE, PAIR) == ()
    assert peers((send(group_dst=1, group="ProcessGroup=default_pg"),), EVERYONE, PAIR) == (1,)


@pytest.mark.parametrize(
    ("groups", "apart"),
    [
        (("ProcessGroup=1", "ProcessGroup=2"), True),
        (("None", "ProcessGroup=2"), True),
        (("ProcessGroup=1", "ProcessGroup=1"), False),
        (("None", "ProcessGroup=default_pg"), False),
        (("ProcessGroup=1", "ProcessGroup"), False),
    ],
)
def test_a_send_and_a_receive_of_two_groups_do_not_meet(groups: tuple[str, str], apart: bool) -> None:
    """They wait for each other for ever, which is a proof; where a group is not known they may meet."""
    there = Frame("recv", TORCH, 2750, "work.wait()", {"src": "int=0", "group": groups[1]})
    main = Frame("<module>", "/srv/train/train.py", 12)
    sides = (rank(0, (), (send(dst=1, group=groups[0]), main)), rank(1, (), (there, main)))
    verdict = diagnose(world(*sides)).verdict
    assert verdict.proven is apart
    assert (verdict.culprit_ranks == (0, 1)) is apart


def test_addresses_of_one_group_in_two_processes_are_no_two_groups() -> None:
    """py-spy's own output has them, and nobody has put a name there."""
    main = Frame("<module>", "/srv/train/train.py", 12)
    given = [describe_locals(TORCH, [("group", f"<ProcessGroup at {one}>")]) for one in ("0x7f10", "0x7f20")]
    there = Frame("recv", TORCH, 2750, "work.wait()", {**given[1], "src": "int=0"})
    verdict = diagnose(world(rank(0, (), (send(dst=1, **given[0]), main)), rank(1, (), (there, main)))).verdict
    assert (verdict.proven, verdict.culprit_ranks) == (False, ())


def test_an_object_is_sent_to_whom_the_caller_said() -> None:
    """``send_object_list`` hands the rank within the group on, and was given the rank of all."""
    caller = Frame("send_object_list", TORCH, 3700, locals={"dst": "int=3", "group_dst": "int=1"})
    assert peers((send(group_dst=1), WRAPPER, caller), EVERYONE, PAIR) == (3,)


def test_a_receive_from_anybody_waits_for_nobody_in_particular() -> None:
    """``recv`` without a source."""
    frame = Frame("recv", TORCH, 2750, "work.wait()", {"src": "None", "group_src": "None", "group": "None"})
    assert peers((frame,), EVERYONE) == ()
