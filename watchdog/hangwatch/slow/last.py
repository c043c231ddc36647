"""Who joined the operations of each group last, over time, and by how much: what the page shows. Pure.

That is no verdict: a rank that waits for another one elsewhere comes last, too (``arrival.py``).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from statistics import median

from hangwatch.model.live import LastToJoin
from hangwatch.slow.timeline import Call

#: As many as can be told apart in a drawing.
_SLICES = 60

#: When an operation was complete, who came last, and how long after the median of the others, in ns.
_Last = tuple[int, int, int]


def find_last(streams: Mapping[int, Iterable[Call]]) -> dict[Hashable, LastToJoin]:
    """Return who joined the operations of each group last. All times have to be by one clock."""
    joined: dict[tuple[Hashable, int], list[tuple[int, int]]] = defaultdict(list)
    sizes: dict[Hashable, int] = {}
    for rank, calls in streams.items():
        for call in calls:
            joined[call.shared].append((call.at_ns, rank))
            sizes[call.group] = len(call.members)
    found: dict[Hashable, list[_Last]] = defaultdict(list)
    for (group, _), times in joined.items():
        if len(times) == sizes[group] > 1:
            times.sort()
            at_ns, rank = times.pop()
            found[group].append((at_ns, rank, round(at_ns - median(at for at, _ in times))))
    return {group: _over_time(sorted(ones)) for group, ones in found.items()}


def _over_time(ones: Sequence[_Last]) -> LastToJoin:
    """Return who was last of all, and in equal parts of the time."""
    first, end = ones[0][0], ones[-1][0] + 1
    parts: dict[int, list[_Last]] = defaultdict(list)
    for one in ones:
        parts[(one[0] - first) * _SLICES // (end - first)].append(one)
    whole = _most_often(ones, first, end)
    width = (end - first) / _SLICES
    slices = (
        _most_often(part, round(first + at * width), round(first + (at + 1) * width)) for at, part in parts.items()
    )
    return LastToJoin(*whole, tuple(LastToJoin(*one) for one in slices))


def _most_often(ones: Sequence[_Last], began_ns: int, ended_ns: int) -> tuple[int, int, int, int, int, int]:
    ((rank, times),) = Counter(rank for _, rank, _ in ones).most_common(1)
    late = median(late for _, one, late in ones if one == rank)
    return rank, times, len(ones), round(late), began_ns, ended_ns
