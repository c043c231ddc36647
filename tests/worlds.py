"""Small worlds built by hand: ranks with operations, progress and stacks, for tests of the pure analysis."""

from __future__ import annotations

import msgspec

from hangwatch.model.capture import Capture, Job, RankCapture, RankIdentity
from hangwatch.model.collectives import FlightRecord, Group, GroupProgress, Operation
from hangwatch.model.processes import ProcessSample
from hangwatch.model.stacks import Frame, StackSample, ThreadStack

SECOND_NS = 1_000_000_000
NOW_NS = 1_000 * SECOND_NS
TORCH = "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"


def operation(
    record: int, group: Group, seq: int, op: str = "all_reduce", *, done: bool = True, sizes: tuple[int, ...] = (4,)
) -> Operation:
    """One operation, enqueued ten seconds before now and one millisecond after the one before it."""
    return Operation(
        record_id=record,
        group=group,
        seq=seq,
        op=op,
        completed=done,
        created_ns=NOW_NS - 10 * SECOND_NS + record * 1_000_000,
        input_sizes=(sizes,),
        input_dtypes=("Float",),
    )


def collective_frames(op: str, line: int = 10) -> tuple[Frame, ...]:
    """The main thread inside a collective that a line of user code called."""
    return (
        Frame(op, TORCH, 100),
        Frame("train", "/srv/train/train.py", line),
        Frame("<module>", "/srv/train/train.py", 90),
    )


def samples(
    pid: int, *, state: str = "S", busy: bool = False, channel: str = "futex_do_wait"
) -> tuple[ProcessSample, ...]:
    """Three samples half a second apart."""
    return tuple(
        ProcessSample(
            at_ns=NOW_NS - (2 - i) * SECOND_NS // 2,
            pid=pid,
            state=state,
            cpu_s=1.0 + (0.4 * i if busy else 0.0),
            switches=7,
            wait_channel=channel,
        )
        for i in range(3)
    )


def rank(
    number: int,
    operations: tuple[Operation, ...],
    frames: tuple[Frame, ...] = (),
    *,
    state: str = "S",
    busy: bool = False,
    channel: str = "futex_do_wait",
) -> RankCapture:
    """One rank whose groups' progress follows from its operations."""
    groups = {o.group for o in operations}
    progress = tuple(
        GroupProgress(
            g,
            max((o.seq for o in operations if o.group == g), default=0),
            -1,
            max((o.seq for o in operations if o.group == g and o.completed), default=0),
        )
        for g in sorted(groups)
    )
    stack = ThreadStack(1000 + number, "MainThread", True, False, False, frames)
    stacks = tuple(StackSample(NOW_NS - (2 - i) * SECOND_NS // 2, (stack,)) for i in range(3)) if frames else ()
    return RankCapture(
        identity=RankIdentity(number, 1000 + number, 1.0, "node-0", number),
        processes=samples(1000 + number, state=state, busy=busy, channel=channel),
        stacks=stacks,
        flight=FlightRecord(NOW_NS, "json", "2.10", operations, progress),
        progress=progress,
        beat_age_s=0.3,
    )


def world(*ranks: RankCapture) -> Capture:
    """A capture of these ranks, which are all there are. As beats do, each lists all groups that it is in, used or not."""
    groups = {p.group for r in ranks for p in r.progress or ()}
    return Capture(Job("job", len(ranks)), NOW_NS, tuple(_with_unused(r, groups) for r in ranks))


def _with_unused(one: RankCapture, groups: set[Group]) -> RankCapture:
    if one.progress is None:
        return one
    known = {p.group.name for p in one.progress}
    unused = (GroupProgress(g, 0, -1, 0) for g in sorted(groups) if one.rank in g.ranks and g.name not in known)
    return msgspec.structs.replace(one, progress=(*one.progress, *unused))
