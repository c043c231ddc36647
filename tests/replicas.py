"""Recorded hangs made larger: every rank is replaced by copies of itself, which are members wherever it was one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from hangwatch.analysis.stacks.remote_calls import names_awaited
from hangwatch.model.capture import Capture, RankCapture
from hangwatch.model.collectives import FlightRecord, Group, GroupProgress, Operation

#: Which new ranks take the place of an old one.
Copies = Mapping[int, Sequence[int]]


def has_peers(capture: Capture) -> bool:
    """Whether ranks wait for certain others: a copy of a sender has no receiver, one of a group's member no group of its own.

    Nor is one a client of the store that others know by its process; and who runs a function that several run is not known.
    """
    if any(p.store is not None and p.store.clients for rank in capture.ranks for p in rank.processes[-1:]):
        return True
    if any(names_awaited(s.main.frames) is not None for rank in capture.ranks for s in rank.stacks[-1:] if s.main):
        return True
    frames = (f for rank in capture.ranks for stack in rank.stacks for t in stack.threads for f in t.frames)
    reported = [frame.locals or {} for frame in frames]
    listed = any(value.startswith("list[int]=") for values in reported for value in values.values())
    locals_seen = listed or any({"src", "dst", "peer"} & set(values) for values in reported)
    return locals_seen or any(o.p2p for rank in capture.ranks if rank.flight for o in rank.flight.operations)


def enlarged(capture: Capture, copies: Copies) -> Capture:
    """The same hang with more ranks. Every copy of a rank is at the same place, in the same state, at the same time."""
    groups: dict[tuple[int, ...], tuple[int, ...]] = {}

    def group(old: Group) -> Group:
        if old.ranks not in groups:
            groups[old.ranks] = tuple(sorted(new for rank in old.ranks for new in copies[rank]))
        return msgspec.structs.replace(old, ranks=groups[old.ranks])

    def progress(old: GroupProgress) -> GroupProgress:
        return msgspec.structs.replace(old, group=group(old.group))

    def operation(old: Operation) -> Operation:
        return msgspec.structs.replace(old, group=group(old.group))

    def flight(old: FlightRecord) -> FlightRecord:
        operations, progresses = tuple(map(operation, old.operations)), tuple(map(progress, old.progress))
        return msgspec.structs.replace(old, operations=operations, progress=progresses)

    ranks: list[RankCapture] = []
    for old in capture.ranks:
        larger = msgspec.structs.replace(
            old,
            flight=flight(old.flight) if old.flight is not None else None,
            progress=tuple(map(progress, old.progress)) if old.progress is not None else None,
        )
        for new in copies[old.rank]:
            # A pid of its own; the samples keep the old one, as nothing reads it there.
            identity = msgspec.structs.replace(
                old.identity, rank=new, local_rank=new % 8, pid=old.identity.pid + 1000 * new
            )
            ranks.append(msgspec.structs.replace(larger, identity=identity))
    world = capture.job.world_size
    total = sum(len(copies[rank]) for rank in range(world)) if world is not None else None
    job = msgspec.structs.replace(capture.job, world_size=total)
    return msgspec.structs.replace(capture, job=job, ranks=tuple(sorted(ranks, key=lambda r: r.rank)))


def reduced(capture: Capture, kept: Mapping[int, int]) -> Capture:
    """Return the same hang with some of the ranks alone: ``kept`` has the new number of each; the others are in no group."""

    def group(old: Group) -> Group:
        return msgspec.structs.replace(old, ranks=tuple(sorted(kept[rank] for rank in old.ranks if rank in kept)))

    def progress(old: GroupProgress) -> GroupProgress:
        return msgspec.structs.replace(old, group=group(old.group))

    def operation(old: Operation) -> Operation:
        peer = kept.get(old.peer) if old.peer is not None else None
        return msgspec.structs.replace(old, group=group(old.group), peer=peer)

    def flight(old: FlightRecord) -> FlightRecord:
        operations, progresses = tuple(map(operation, old.operations)), tuple(map(progress, old.progress))
        return msgspec.structs.replace(old, operations=operations, progress=progresses)

    ranks = [
        msgspec.structs.replace(
            old,
            identity=msgspec.structs.replace(old.identity, rank=kept[old.rank], local_rank=kept[old.rank]),
            flight=flight(old.flight) if old.flight is not None else None,
            progress=tuple(map(progress, old.progress)) if old.progress is not None else None,
        )
        for old in capture.ranks
        if old.rank in kept
    ]
    job = msgspec.structs.replace(capture.job, world_size=len(kept))
    return msgspec.structs.replace(capture, job=job, ranks=tuple(sorted(ranks, key=lambda rank: rank.rank)))
