"""Ranks that have left their world for a new one, as after an error: who still has the old one is awaited in the new."""

from __future__ import annotations

import msgspec

from hangwatch.analysis.case import build_case
from hangwatch.model.capture import Capture, Job, RankCapture
from hangwatch.model.collectives import Group, GroupProgress
from hangwatch.model.stacks import Frame
from worlds import NOW_NS, TORCH, operation, rank

EVERYONE = Group("0", (0, 1, 2), "default_pg")
BEGINS = (
    Frame("_new_process_group_helper", TORCH, 2275, "eager_backend.eager_connect_single_device(device_id)"),
    Frame("init_process_group", TORCH, 1855, locals={"world_size": "int=3"}),
    Frame("begin", "/srv/train/train.py", 35, 'dist.init_process_group("nccl", store=store)'),
)
READS = (Frame("read_levels", "/srv/train/train.py", 54, "with open(path) as levels:"),)


def beginning(number: int) -> RankCapture:
    """A rank that is in the initialization of the new world, and in no group."""
    return msgspec.structs.replace(rank(number, (), BEGINS), flight=None)


def job(third: RankCapture) -> Capture:
    """Two that begin, and a third rank."""
    return Capture(Job("job", 3), NOW_NS, (beginning(0), beginning(1), third))


def test_a_rank_that_has_the_old_world_still_is_awaited() -> None:
    """Collectives have completed in it, which those of the new one cannot before all are there."""
    old = rank(2, tuple(operation(n, EVERYONE, n) for n in range(1, 8)), READS)
    found = build_case(job(old)).blame
    assert (found.culprits, found.waiting, found.proof) == ((2,), (0, 1), None)


def test_a_rank_that_has_the_new_world_already_is_not() -> None:
    """Nothing has completed in it yet: it has been made, and the others are late themselves."""
    new = msgspec.structs.replace(rank(2, (), READS), progress=(GroupProgress(EVERYONE, 1, -1, 0),))
    assert build_case(job(new)).blame.culprits == ()
