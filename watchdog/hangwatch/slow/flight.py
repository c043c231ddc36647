"""The calls of a job, as its flight records have them. Pure."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from itertools import chain

import msgspec

from hangwatch.model.capture import RankCapture
from hangwatch.model.collectives import COALESCED, TAKES_ALL, DeviceTime, Operation, Operations, Timed
from hangwatch.slow.arrival import LEAST_STEPS
from hangwatch.slow.timeline import Call, Pipelines, Streams, are_on_device

#: Operations to which all members come with equal sizes; others may differ from rank to rank and from step to step.
_EQUAL_SIZES = frozenset({"all_reduce", "broadcast"})

#: The name of calls that send or receive.
P2P = "p2p"

#: Only so many calls are compared, the newest: some seconds of CPU time, on a job of any size.
MOST_CALLS = 100_000


def make_streams(ranks: Sequence[RankCapture]) -> Streams:
    """Return the calls of all ranks; empty if the records cannot tell when a rank joined its operations.

    - NCCL's have the time at which the host enqueued an operation, and a host that runs ahead hides its device: they tell only if
      torch has timed the operations on the device, as far as ``count_ended``.
    - Of ranks on several nodes, the times are by several clocks. Dumps do not tell their node: one clock is assumed.
    """
    streams: dict[int, Sequence[Call]] = {}
    if len({rank.identity.node for rank in ranks}) > 1:
        return {}
    newest = MOST_CALLS // max(1, len(ranks))
    for rank in ranks:
        if rank.flight is None:
            continue
        timed = rank.flight.timed or Timed(rank.flight.operations, ())
        count = count_ended(timed.operations, timed.times)
        calls = make_calls(rank.rank, timed.operations, max(0, count - newest), timed.times[:count])
        if calls is None:
            return {}
        if calls:
            streams[rank.rank] = calls
    return streams


def count_ended(operations: Operations, times: Sequence[DeviceTime | None]) -> int:
    """Return how many operations at the start of a record have ended; all if none are on a device (no ``times``).

    If operations were launched together, only the launch has a time; it comes last (``sources/flight/coalescing.py``).
    """
    if None not in times:
        return len(operations)
    ended = times.index(None)
    for place in range(ended, len(times)):
        launch = operations[place]
        if times[place] is not None:
            if any(launch.op != COALESCED or operations[at].group != launch.group for at in range(ended, place)):
                break
            ended = place + 1
        elif launch.op == COALESCED:
            break
    return ended


def make_calls(
    rank: int, operations: Operations, first: int = 0, times: Sequence[DeviceTime | None] = ()
) -> list[Call] | None:
    """Return the calls of a rank, from a place in its record on; None if they cannot tell when it joined them.

    ``times``: of operations on a device, by place; those after the last of them are left out.
    """
    calls: list[Call] = []
    together: list[Operation] = []
    for place in range(first, len(times) if times else len(operations)):
        operation = operations[place]
        time = times[place] if times else None
        if operation.backend != ("nccl" if times else "gloo") or (operation.p2p and not times):
            return None
        if operation.op != COALESCED:
            together.append(operation)
            if times and time is None:
                continue
        is_clear = rank in operation.group.ranks and not operation.group.outside and operation.created_ns > 0
        if is_clear and (call := _call(rank, operation, together, time)) is not None:
            calls.append(call)
        together.clear()
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


def of_largest_groups(streams: Streams, pipelines: Pipelines) -> Streams:
    """Return the calls among each rank's peers, its largest group, with its own time before each, if they were on devices.

    Peers share the ends of these, and an error in them is the same for all. Ends in other groups have errors of their own. They
    do not count: only the time that operations took there is subtracted from the rank's own time.
    """
    if not are_on_device(streams):
        return streams
    return {rank: list(_of_largest(calls, pipelines)) for rank, calls in streams.items()}


def _of_largest(calls: Sequence[Call], pipelines: Pipelines) -> Iterator[Call]:
    before_ns, between_ns = None, 0
    often = Counter(call.members for call in calls if not call.p2p and pipelines.are_apart(call.members))
    # A barrier of all ranks is rarely called. Of two equally large groups, the inner one (tensor parallel) is called more often.
    chosen = max(often, key=lambda one: (often[one] > LEAST_STEPS, len(one), -often[one]), default=())
    for call in calls:
        if call.left_ns is None:
            continue
        if call.p2p or call.members != chosen:
            between_ns += call.left_ns - call.at_ns
            continue
        work_ns = call.at_ns - before_ns - between_ns if before_ns is not None else 0
        yield msgspec.structs.replace(call, work_ns=work_ns)
        before_ns, between_ns = call.left_ns, 0


def _call(rank: int, operation: Operation, together: Sequence[Operation], time: DeviceTime | None) -> Call | None:
    """Return a rank's call of what was launched ``together``; None if its end on one rank says nothing of the others."""
    group = operation.group
    began_ns, ended_ns = (operation.created_ns, None) if time is None else (time.ended_ns - time.took_ns, time.ended_ns)
    if any(one.p2p for one in together):
        linked = tuple(sorted({rank, *(one.peer for one in together if one.peer is not None)}))
        return Call(f"{group.key} of {rank}", operation.seq, linked, P2P, began_ns, ended_ns, p2p=True, on_device=True)
    # A broadcast may end for its root long before it does for others.
    if time is not None and not (together and all(one.op in TAKES_ALL for one in together)):
        return None
    role = "" if group.description == "undefined" else group.description
    kinds = " ".join(f"{one.op} {one.input_sizes if one.op in _EQUAL_SIZES else ()}" for one in together)
    name = sys.intern(f"{kinds} {role} {len(group.ranks)}")  # the few kinds come again and again
    return Call(group.key, operation.seq, group.ranks, name, began_ns, ended_ns, on_device=time is not None)
