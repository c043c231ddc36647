"""A rank in the first operation of a communicator, which has no record yet: NCCL connects first, until all have come. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hangwatch.analysis.stacks.waits import Wait
from hangwatch.model.capture import RankCapture
from hangwatch.model.collectives import DEFAULT_GROUP, Operation

#: Calls that no recorder shows, however often they are made.
_NEVER_RECORDED = frozenset({"monitored_barrier", "destroy_process_group"})


def connects_since_ns(capture: RankCapture, wait: Wait | None, pending: Sequence[Operation], thread: int) -> int | None:
    """Return since when, at the earliest, a rank may be in an operation that is not on record; None if it is in no such one.

    Nothing is in flight, and that is when its ``thread`` last called an operation (any thread, if it is not recorded
    which): one that goes from collective to collective calls another one meanwhile. With communicators that do not
    block there is a record of the collective itself; it says completed, as events do that have not been recorded (torch
    2.12).
    """
    flight, progress = capture.flight, capture.progress
    if flight is None or pending or wait is None or wait.op in _NEVER_RECORDED or wait.outside:
        return None
    own = (o for o in reversed(flight.operations) if not (o.thread and thread and o.thread != thread))
    last = next(own, None)
    called_ns = 0 if last is None else last.created_ns
    if wait.kind == "point_to_point":
        return called_ns if wait.awaits_work is False else None  # Gloo records none, and is never found in the call
    if wait.kind != "collective" or progress is None or capture.unrecorded:
        return None
    return None if last is None and any(p.enqueued for p in progress) else called_ns


def among_members(capture: RankCapture, wait: Wait, pending: Sequence[Operation], thread: int) -> Wait:
    """Return the wait with the ranks that it may be for, if it is the first one of a communicator.

    A stack does not tell which communicator, but it is in a group in which the rank has called nothing yet. If all
    groups have been used, by Gloo perhaps, nothing tells; and if it may be for all ranks, the wait says so already.
    """
    if wait.default_group or connects_since_ns(capture, wait, pending, thread) is None:
        return wait
    unused = {p.group.ranks for p in capture.progress or () if p.enqueued <= 0 and len(p.group.ranks) != 1}
    members = tuple(sorted({rank for ranks in unused for rank in ranks}))
    everyone = any(p.group.description == DEFAULT_GROUP and p.group.ranks == members for p in capture.progress or ())
    return replace(wait, peers=members, exact=len(unused) == 1) if members and not everyone else wait
