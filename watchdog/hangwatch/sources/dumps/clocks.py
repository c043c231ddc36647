"""Clocks of several hosts, made one. Pure; may import hangwatch.model.

Every time in a dump is the wall clock of its own host. A collective that takes every member completes on all of them within
moments, so what the hosts wrote of the same ones tells how far their clocks are apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median, median_low

from hangwatch.model.capture import Gap
from hangwatch.model.collectives import FlightRecord
from hangwatch.model.text import format_ranks
from hangwatch.model.transforms.clocks import shift

#: By rank: when it completed collectives that take every member, by the group's key and the sequence number.
Completions = Mapping[int, Mapping[tuple[str, int], int]]

#: A rank looks for completed operations ten times a second, and every second or so on older versions: less is no skew.
MIN_SKEW_NS = 3_000_000_000
#: One operation may have been found completed late: its rank was stopped, or its watchdog was delayed.
_MIN_SHARED = 3


def estimate_skews(completions: Completions) -> dict[int, int]:
    """By how many ns the clock of a rank is ahead of most others'; only those that are beyond ``MIN_SKEW_NS``.

    From rank to rank along the groups they share; ranks that share too few completed collectives with the rest are taken to have
    the same clock.
    """
    users: dict[tuple[str, int], list[int]] = {}
    for rank, times in completions.items():
        for at in times:
            users.setdefault(at, []).append(rank)
    skews: dict[int, int] = {}
    for start in sorted(completions, key=lambda rank: (-len(completions[rank]), rank)):
        if start in skews:
            continue
        skews[start] = 0
        reached = [start]
        for known in reached:
            apart: dict[int, list[int]] = {}
            for at, time_ns in completions[known].items():
                for rank in users[at]:
                    if rank not in skews:
                        apart.setdefault(rank, []).append(completions[rank][at] - time_ns)
            for rank, found in apart.items():
                if len(found) >= _MIN_SHARED:
                    skews[rank] = skews[known] + round(median(found))
                    reached.append(rank)
        usual = median_low(skews[rank] for rank in reached)
        skews.update({rank: skews[rank] - usual for rank in reached})
    return {rank: skew for rank, skew in skews.items() if abs(skew) >= MIN_SKEW_NS}


def correct_clocks(flights: Mapping[int, FlightRecord]) -> tuple[dict[int, FlightRecord], tuple[Gap, ...]]:
    """The records by one clock, that of most ranks, and what was corrected."""
    skews = estimate_skews(
        {rank: {(c.group, c.seq): c.at_ns for c in flight.completions} for rank, flight in flights.items()}
    )
    if not skews:
        return dict(flights), ()
    corrected = {rank: shift(flight, -skews.get(rank, 0)) for rank, flight in flights.items()}
    alike: dict[int, list[int]] = {}
    for rank, skew in sorted(skews.items()):
        near = next((known for known in alike if abs(known - skew) < MIN_SKEW_NS), skew)
        alike.setdefault(near, []).append(rank)
    corrections = (
        f"of rank {format_ranks(ranks)} by {abs(skew) / 1e9:.0f} s {'ahead' if skew > 0 else 'behind'}"
        for skew, ranks in alike.items()
    )
    hint = "keep the clocks of all hosts in step (NTP, chrony)"
    return corrected, (
        Gap("flight recorder", f"clocks differ, and times were corrected: {', '.join(corrections)}", hint=hint),
    )
