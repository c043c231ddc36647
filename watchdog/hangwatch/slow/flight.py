"""The calls of a job, as its flight records have them. Pure."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterator, Sequence
from itertools import chain, takewhile

import msgspec

from hangwatch.model.capture import RankCapture
from hangwatch.model.collectives import TAKES_ALL, DeviceTime, Operation, Operations
from hangwatch.slow.timeline import Call, Streams, are_on_device

#: Operations to which all members come with equal sizes; others may differ from rank to rank and from step to step.
_EQUAL_SIZES = frozenset({"all_reduce", "broadcast"})

#: Only so many calls are compared, the newest: some seconds of CPU time, on a job of any size.
MOST_CALLS = 100_000


def make_streams(ranks: Sequence[RankCapture]) -> Streams:
    """Return the calls of all ranks; empty if the records cannot tell when a rank joined its operations.

    - NCCL's have the time at which the host enqueued an operation, and a host that runs ahead hides its device: they tell only if
      torch has timed the operations on the device, and up to the first one that it has not timed.
    - Sends and receives have no number that both sides share, so it is not known who waited for whom.
    - Of ranks on several nodes, the times are by several clocks. Dumps do not tell their node: one clock is assumed.
    """
    streams: dict[int, Sequence[Call]] = {}
    if len({rank.identity.node for rank in ranks}) > 1:
        return {}
    newest = MOST_CALLS // max(1, len(ranks))
    for rank in ranks:
        operations, times = (rank.flight.operations, rank.flight.times) if rank.flight is not None else ((), ())
        times = tuple(takewhile(bool, times))
        count = len(times) or len(operations)
        calls = make_calls(rank.rank, operations, max(0, count - newest), times)
        if calls is None:
            return {}
        if calls:
            streams[rank.rank] = calls
    return streams


def make_calls(
    rank: int, operations: Operations, first: int = 0, times: Sequence[DeviceTime | None] = ()
) -> list[Call] | None:
    """Return the calls of a rank, from a place in its record on; None if they cannot tell when it joined them.

    ``times``: of operations on a device, by place; those after the last of them are left out.
    """
    calls: list[Call] = []
    for place in range(first, len(times) if times else len(operations)):
        operation = operations[place]
        time = times[place] if times else None
        if operation.p2p or not (operation.backend == "gloo" or (operation.backend == "nccl" and time is not None)):
            return None
        if time is not None and operation.op not in TAKES_ALL:  # it may end for its root long before it does for others
            continue
        if rank in operation.group.ranks and not operation.group.outside and operation.created_ns > 0:
            calls.append(_call(operation, time))
    return calls


def on_one_clock(streams: Streams) -> Streams:
    """Return the calls of all ranks with the ends that are the same for all members, if they were on devices.

    An operation that takes all members ends on all of them at once. How long it took is exact. When it ended is not: each rank's
    watchdog looks for ends ten times a second (``kWatchdogThreadSleepMillis``, torch 2.13), so the earliest is closest.
    """
    if not are_on_device(streams):
        return streams
    ends: dict[tuple[Hashable, int], int] = {}
    for call in chain.from_iterable(streams.values()):
        if call.left_ns is not None:
            ends[call.shared] = min(call.left_ns, ends.get(call.shared, call.left_ns))
    return {
        rank: [
            msgspec.structs.replace(
                call, at_ns=call.at_ns + ends[call.shared] - call.left_ns, left_ns=ends[call.shared]
            )
            for call in calls
            if call.left_ns is not None
        ]
        for rank, calls in streams.items()
    }


def of_largest_groups(streams: Streams) -> Streams:
    """Return the calls in each rank's largest groups, with its own time before each, if they were on devices.

    Most peers share the ends of these, and an error in them is the same for all. Ends in smaller groups have errors of their own.
    They do not count: only the time that operations took there is subtracted from the rank's own time.
    """
    if not are_on_device(streams):
        return streams
    return {rank: list(_of_largest(calls)) for rank, calls in streams.items()}


def _of_largest(calls: Sequence[Call]) -> Iterator[Call]:
    before_ns, between_ns = None, 0
    largest = max((len(call.members) for call in calls), default=0)
    for call in calls:
        if call.left_ns is None:
            continue
        if len(call.members) < largest:
            between_ns += call.left_ns - call.at_ns
            continue
        work_ns = call.at_ns - before_ns - between_ns if before_ns is not None else 0
        yield msgspec.structs.replace(call, work_ns=work_ns)
        before_ns, between_ns = call.left_ns, 0


def _call(operation: Operation, time: DeviceTime | None) -> Call:
    group = operation.group
    role = "" if group.description == "undefined" else group.description
    sizes = operation.input_sizes if operation.op in _EQUAL_SIZES else ()
    name = sys.intern(f"{operation.op} {sizes} {role} {len(group.ranks)}")  # the few kinds come again and again
    if time is None:
        return Call(group.key, operation.seq, group.ranks, name, operation.created_ns)
    began_ns = time.ended_ns - time.took_ns
    return Call(group.key, operation.seq, group.ranks, name, began_ns, time.ended_ns, on_device=True)
