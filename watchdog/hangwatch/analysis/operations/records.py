"""Records made fit to be compared: without torn ones, and with a group that two backends serve as two. Pure.

A record may lack a group in which its rank has done something, by its own beat. It was read at another time than the beat,
or not in full. The first operation in flight on it may not be the one that the rank is in, so the record does not count.

If two backends serve a group (``cpu:gloo,cuda:nccl``), each numbers its own operations. The recorder has one list for both, and
only the name of an operation tells which backend numbered it. Nor can the numbers of operations enqueued and completed in such a
group be told apart: its progress says nothing about any of its operations.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable

from msgspec.structs import replace

from hangwatch.analysis.operations.histories import condense
from hangwatch.model.capture import Capture, RankCapture
from hangwatch.model.collectives import GroupProgress, Operation, OperationColumns, Operations


def without_torn_records(capture: Capture) -> Capture:
    """Return the capture without torn records."""
    torn = {rank.rank for rank in capture.ranks if _is_torn(rank)}
    if not torn:
        return capture
    return replace(capture, ranks=tuple(replace(r, flight=None) if r.rank in torn else r for r in capture.ranks))


def _is_torn(rank: RankCapture) -> bool:
    if rank.flight is None:
        return False
    used = {p.group.key for p in rank.progress or () if p.enqueued > 0 and not p.mixed}
    listed = {p.group.key for p in rank.flight.progress}
    return not used <= listed and not used <= listed | {o.group.key for o in _kinds(rank)}


def apart_by_backend(capture: Capture) -> Capture:
    """Return the capture in which a group that several backends serve, on any rank, is one group for each of them."""
    served: dict[str, set[str]] = defaultdict(set)
    for rank in capture.ranks:
        for kind in _kinds(rank):
            if kind.backend and not kind.group.backend:
                served[kind.group.key].add(kind.backend)
    shared = {key for key, backends in served.items() if len(backends) > 1}
    if not shared:
        return capture
    return replace(capture, ranks=tuple(_split(rank, shared) for rank in capture.ranks))


def _kinds(rank: RankCapture) -> Iterable[Operation]:
    operations = rank.flight.operations if rank.flight is not None else ()
    return operations.kinds if isinstance(operations, OperationColumns) else operations


def _split(rank: RankCapture, shared: Container[str]) -> RankCapture:
    flight = rank.flight
    if flight is not None:
        progress = tuple(_mixed(one, shared) for one in flight.progress)
        flight = replace(flight, operations=_of_backends(flight.operations, shared), progress=progress)
    beat = tuple(_mixed(one, shared) for one in rank.progress) if rank.progress is not None else None
    return replace(rank, flight=flight, progress=beat)


def _of_backends(operations: Operations, shared: Container[str]) -> Operations:
    split = tuple(
        replace(o, group=replace(o.group, backend=o.backend)) if o.group.key in shared else o for o in operations
    )
    return condense(split) if isinstance(operations, OperationColumns) else split


def _mixed(progress: GroupProgress, shared: Container[str]) -> GroupProgress:
    return replace(progress, mixed=True) if progress.group.key in shared else progress
