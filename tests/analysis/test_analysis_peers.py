"""Whom a send or receive waits for: a rank of all, or one within a group that the stack does not name."""

from __future__ import annotations

import msgspec

from hangwatch.analysis.ranks.views import view_rank
from hangwatch.model.collectives import Group, GroupProgress
from hangwatch.model.stacks import Frame
from worlds import TORCH, rank

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


def test_an_object_is_sent_to_whom_the_caller_said() -> None:
    """``send_object_list`` hands the rank within the group on, and was given the rank of all."""
    caller = Frame("send_object_list", TORCH, 3700, locals={"dst": "int=3", "group_dst": "int=1"})
    assert peers((send(group_dst=1), WRAPPER, caller), EVERYONE, PAIR) == (3,)


def test_a_receive_from_anybody_waits_for_nobody_in_particular() -> None:
    """``recv`` without a source."""
    frame = Frame("recv", TORCH, 2750, "work.wait()", {"src": "None", "group_src": "None", "group": "None"})
    assert peers((frame,), EVERYONE) == ()
