"""Which ranks of a job on several nodes are compared, and their calls as they travel between nodes. Pure.

To compare the calls of thousands of ranks would take seconds. On devices there is no need: the rank that makes the others late
waits least, and how long a rank waits is one number. So only the calls of that rank and of its neighbours are compared. Gloo's
records do not tell how long a rank has waited: the calls of all ranks are compared there, or none if there are too many.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from statistics import median

import msgspec

from hangwatch.slow.arrival import MIN_PEERS, MIN_SHARE, LateRank, find_late
from hangwatch.slow.flight import MOST_CALLS, P2P, of_largest_groups, on_one_clock
from hangwatch.slow.timeline import Call, Streams, are_on_device, find_pipelines

#: So many ranks show what is usual; more would only take longer.
_ENOUGH = 32


def find_waited(streams: Streams) -> dict[int, float]:
    """Return for which share of the time each rank's device was in operations; empty if they were on none."""
    return {rank: _waited(calls) for rank, calls in streams.items()} if are_on_device(streams) else {}


def _waited(calls: Sequence[Call]) -> float:
    ends = [call.left_ns for call in calls if call.left_ns is not None]
    took = sum(ends) - sum(call.at_ns for call in calls)
    return took / max(1, max(ends) - calls[0].at_ns)


def choose_ranks(own: Streams, waited: Mapping[int, float], nodes: Mapping[int, Hashable]) -> list[int]:
    """Return the ranks to compare; empty if there is no need, or if there are too many.

    ``own``: the calls of some ranks. ``waited``: of all ranks that are known to have been in operations on devices, as
    ``find_waited``. ``nodes``: where each rank of the job is.
    """
    room = MOST_CALLS // max(1, *map(len, own.values()))
    if not are_on_device(own):
        return sorted(nodes) if len(nodes) <= room else []
    late = min(waited, key=lambda rank: (waited[rank], rank))
    if median(waited.values()) - waited[late] < MIN_SHARE:
        return []
    # Whole nodes, because inner groups are mostly within one. Those with close numbers have the rest of larger groups.
    chosen: list[int] = []
    for near in dict.fromkeys(nodes[rank] for rank in sorted(nodes, key=lambda rank: abs(rank - late))):
        if len(chosen) < max(2 * MIN_PEERS, min(room, _ENOUGH)):
            chosen += [rank for rank, node in nodes.items() if node == near]
    return sorted(chosen)


class SentCalls(msgspec.Struct, frozen=True, array_like=True):
    """The calls of one rank, as columns: places in ``groups`` (key and members) and in ``names``, numbers, and times in ns.

    ``left_ns``: empty if the calls are not on a device.
    """

    rank: int
    groups: tuple[tuple[str, tuple[int, ...]], ...]
    names: tuple[str, ...]
    group: tuple[int, ...]
    name: tuple[int, ...]
    seq: tuple[int, ...]
    at_ns: tuple[int, ...]
    left_ns: tuple[int, ...] = ()


def pack_calls(rank: int, calls: Sequence[Call]) -> SentCalls:
    """Return the calls of a rank, ready to be sent."""
    groups = {str(call.group): call.members for call in calls}
    names = dict.fromkeys(call.name for call in calls)
    of_group, of_name = ({key: at for at, key in enumerate(table)} for table in (groups, names))
    return SentCalls(
        rank,
        tuple(groups.items()),
        tuple(names),
        tuple([of_group[str(call.group)] for call in calls]),
        tuple([of_name[call.name] for call in calls]),
        tuple([call.seq for call in calls]),
        tuple([call.at_ns for call in calls]),
        tuple([call.left_ns for call in calls if call.left_ns is not None]),
    )


def unpack_calls(sent: SentCalls) -> list[Call]:
    """Return what ``pack_calls`` was given. Raises ``ValueError`` if it refers to what is not in its tables."""
    left = sent.left_ns or (None,) * len(sent.seq)
    columns = zip(sent.group, sent.name, sent.seq, sent.at_ns, left, strict=True)
    calls = []
    try:
        for group, name, seq, at_ns, left_ns in columns:
            key, members = sent.groups[group]
            called = sent.names[name]
            calls.append(
                Call(key, seq, members, called, at_ns, left_ns, p2p=called == P2P, on_device=left_ns is not None)
            )
    except IndexError as error:
        raise ValueError("refers to what is not in its tables") from error
    return calls


def find_late_among(streams: Streams, *, one_clock: bool) -> LateRank | None:
    """Return who made the job late, as ``find_late``; ranks without calls are not missed.

    ``streams``: each rank's calls by its own clock.
    """
    pipelines = find_pipelines(streams)
    streams = of_largest_groups(on_one_clock(streams), pipelines)
    known: dict[Hashable, tuple[int, ...]] = {}
    for calls in streams.values():
        for call in calls:
            if call.group not in known:
                known[call.group] = tuple(rank for rank in call.members if rank in streams)
    compared = {rank: [_only(call, known[call.group]) for call in calls] for rank, calls in streams.items()}
    found = find_late(compared, one_clock=one_clock, pipelines=pipelines)
    if found is None or found.rank is None:
        return found
    seen = sorted({found.rank, *found.waiting})
    everybody = next(call.members for call in streams[found.rank] if seen == sorted(known[call.group]))
    return msgspec.structs.replace(found, waiting=tuple(rank for rank in everybody if rank != found.rank))


def _only(call: Call, members: tuple[int, ...]) -> Call:
    return call if len(members) == len(call.members) else msgspec.structs.replace(call, members=members)
