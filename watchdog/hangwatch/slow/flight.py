"""The calls of a job, as its flight records have them. Pure."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from hangwatch.model.capture import RankCapture
from hangwatch.model.collectives import Operation, Operations
from hangwatch.slow.timeline import Call, Streams

#: Operations to which all members come with equal sizes; others may differ from rank to rank and from step to step.
_EQUAL_SIZES = frozenset({"all_reduce", "broadcast"})

#: Only so many calls are compared, the newest: some seconds of CPU time, on a job of any size.
MOST_CALLS = 100_000


def make_streams(ranks: Sequence[RankCapture]) -> Streams:
    """Return the calls of all ranks; empty if the records cannot tell when a rank joined its operations.

    - NCCL's have the time at which the host enqueued an operation, and a host that runs ahead hides its device.
    - Sends and receives have no number that both sides share, so it is not known who waited for whom.
    - Of ranks on several nodes, the times are by several clocks. Dumps do not tell their node: one clock is assumed.
    """
    streams: dict[int, Sequence[Call]] = {}
    if len({rank.identity.node for rank in ranks}) > 1:
        return {}
    newest = MOST_CALLS // max(1, len(ranks))
    for rank in ranks:
        operations = rank.flight.operations if rank.flight is not None else ()
        calls = make_calls(rank.rank, operations, max(0, len(operations) - newest))
        if calls is None:
            return {}
        if calls:
            streams[rank.rank] = calls
    return streams


def make_calls(rank: int, operations: Operations, first: int = 0) -> list[Call] | None:
    """Return the calls of a rank, from a place in its record on; None if they cannot tell when it joined them."""
    calls: list[Call] = []
    for place in range(first, len(operations)):
        operation = operations[place]
        if operation.backend != "gloo" or operation.p2p:
            return None
        if rank in operation.group.ranks and not operation.group.outside and operation.created_ns > 0:
            calls.append(_call(operation))
    return calls


def _call(operation: Operation) -> Call:
    group = operation.group
    role = "" if group.description == "undefined" else group.description
    sizes = operation.input_sizes if operation.op in _EQUAL_SIZES else ()
    name = sys.intern(f"{operation.op} {sizes} {role} {len(group.ranks)}")  # the few kinds come again and again
    return Call(group.key, operation.seq, group.ranks, name, operation.created_ns)
