"""The calls of a job, as its flight records have them. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from hangwatch.model.capture import RankCapture
from hangwatch.model.collectives import Operation
from hangwatch.slow.arrival import Call, Streams

#: Operations to which all members come with equal sizes; others may differ from rank to rank and from step to step.
_EQUAL_SIZES = frozenset({"all_reduce", "broadcast"})

#: Only so many calls are compared, the newest: some seconds of CPU time, on a job of any size.
_MOST_CALLS = 100_000
#: Whether the others follow a rank is asked of each pair of ranks; larger jobs would take minutes.
_MOST_RANKS = 256


def make_streams(ranks: Sequence[RankCapture]) -> Streams:
    """Return the calls of all ranks; empty if the records cannot tell when a rank joined its operations.

    - NCCL's have the time at which the host enqueued an operation, and a host that runs ahead hides its device.
    - Sends and receives have no number that both sides share, so it is not known who waited for whom.
    - Of ranks on several nodes, the times are by several clocks. Dumps do not tell their node: one clock is assumed.
    """
    streams: dict[int, list[Call]] = {}
    if len(ranks) > _MOST_RANKS or len({rank.identity.node for rank in ranks}) > 1:
        return {}
    newest = _MOST_CALLS // max(1, len(ranks))
    for rank in ranks:
        operations = rank.flight.operations if rank.flight is not None else ()
        for place in range(max(0, len(operations) - newest), len(operations)):
            operation = operations[place]
            if operation.backend != "gloo" or operation.p2p:
                return {}
            if rank.rank in operation.group.ranks and not operation.group.outside and operation.created_ns > 0:
                streams.setdefault(rank.rank, []).append(_call(operation))
    return streams


def _call(operation: Operation) -> Call:
    group = operation.group
    role = "" if group.description == "undefined" else group.description
    sizes = operation.input_sizes if operation.op in _EQUAL_SIZES else ()
    return Call(
        group.key, operation.seq, group.ranks, f"{operation.op} {sizes} {role} {len(group.ranks)}", operation.created_ns
    )
