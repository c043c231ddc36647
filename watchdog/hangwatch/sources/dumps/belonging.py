"""Which dumps are of one job and one moment, and to which rank each belongs. Pure.

May import hangwatch.model and hangwatch.sources' own parts. After a crash a folder holds the dumps of the last run,
those of earlier runs if the last one died before it wrote all of its own, and whatever somebody put there. A dump
that does not belong is set aside by name: compared with the others it would accuse the innocent.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from hangwatch.model.collectives import Group
from hangwatch.model.text import format_ranks
from hangwatch.sources.dumps.contents import Aside
from hangwatch.sources.dumps.decode import RankDump
from hangwatch.sources.flight.recorder import merge_flights


class Found(msgspec.Struct, frozen=True):
    """One file that holds a dump. ``rank``: by its name; None if the name tells none."""

    name: str
    dump: RankDump
    rank: int | None = None


class Belonging(msgspec.Struct, frozen=True):
    """The dumps of one job by rank, all known ranks of the job, and the files that were set aside.

    ``disagreeing``: the dumps are of different moments, and the job went on in between: they cannot be compared.
    """

    dumps: Mapping[int, Found]
    world: tuple[int, ...]
    asides: tuple[Aside, ...]
    disagreeing: bool = False


def sort_out(found: Sequence[Found]) -> Belonging:
    """Return the dumps that belong together. The order of ``found`` only decides between otherwise equal dumps."""
    asides: list[Aside] = []
    owned = _settle_owners(found, asides)
    owned = _one_job(owned, asides)
    by_rank = {rank: _newest(dumps, rank, asides) for rank, dumps in sorted(_by_rank(owned).items())}
    early, disagreeing = _of_other_moments(by_rank)
    asides += [Aside(by_rank[rank].name, f"set aside as rank {rank}'s: {why}") for rank, why in sorted(early.items())]
    kept = {rank: one for rank, one in by_rank.items() if rank not in early}
    named = {rank for one in kept.values() for rank in one.dump.world}
    named |= {rank for one in kept.values() for group in one.dump.groups for rank in group.ranks}
    world = range(max(by_rank, default=-1) + 1) if not named else sorted(named | set(by_rank))
    return Belonging(kept, tuple(world), tuple(asides), disagreeing)


def _settle_owners(found: Sequence[Found], asides: list[Aside]) -> list[tuple[int, Found]]:
    """Return each dump with its rank: by its content, else by its name."""
    owned: list[tuple[int, Found]] = []
    for one in found:
        possible = one.dump.ranks
        if len(possible) == 1:
            owned.append((possible[0], one))
        elif one.rank is not None and (one.rank in possible or not possible):
            owned.append((one.rank, one))
        elif one.rank is not None:
            asides.append(
                Aside(
                    one.name,
                    f"its content belongs to one of the ranks {format_ranks(possible)}, its name says {one.rank}",
                )
            )
        else:
            asides.append(
                Aside(one.name, "neither content nor name shows which rank it belongs to; call it ..._rank_N")
            )
    return owned


def _one_job(owned: Sequence[tuple[int, Found]], asides: list[Aside]) -> list[tuple[int, Found]]:
    """Return the dumps of the job with the most dumps; of two equally large jobs, the newer one's."""
    worlds: Counter[tuple[int, ...]] = Counter(one.dump.world for _, one in owned if one.dump.world)
    if not worlds:
        return list(owned)
    last: dict[tuple[int, ...], int] = defaultdict(int)
    for _, one in owned:
        last[one.dump.world] = max(last[one.dump.world], one.dump.newest_ns or 0)
    world = max(worlds, key=lambda ranks: (worlds[ranks], last[ranks], ranks))
    members = frozenset(world)
    kept = []
    for rank, one in owned:
        theirs = one.dump.world or tuple(sorted({r for group in one.dump.groups for r in group.ranks} | {rank}))
        if one.dump.world == world or (not one.dump.world and members.issuperset(theirs)):
            kept.append((rank, one))
        else:
            asides.append(
                Aside(
                    one.name,
                    (
                        f"it is from another job: it has ranks {format_ranks(theirs)}, the others have "
                        f"{format_ranks(world)}"
                    ),
                )
            )
    return kept


def _by_rank(owned: Iterable[tuple[int, Found]]) -> dict[int, list[Found]]:
    found: dict[int, list[Found]] = defaultdict(list)
    for rank, one in owned:
        found[rank].append(one)
    return found


def _newest(dumps: Sequence[Found], rank: int, asides: list[Aside]) -> Found:
    """Return the dump of a rank that counts: the newest, then the fullest; dumps of two recorders are merged."""
    parts: list[Found] = []
    for alike in _by_backend(dumps):
        best = max(alike, key=_fullness)
        parts.append(best)
        for other in alike:
            if other is not best:
                newer = (other.dump.newest_ns or 0) < (best.dump.newest_ns or 0)
                why = "is newer" if newer else "holds at least as much"
                asides.append(Aside(other.name, f"another dump of rank {rank}: {best.name} {why}"))
    if len(parts) == 1:
        return parts[0]
    flights = [part.dump.flight for part in parts]
    groups = tuple(dict.fromkeys(group for part in parts for group in part.dump.groups))
    merged = RankDump(
        merge_flights(flights),
        parts[0].dump.ranks,
        next((part.dump.world for part in parts if part.dump.world), ()),
        groups,
        max((part.dump.newest_ns or 0 for part in parts), default=0) or None,
        tuple(end for part in parts for end in part.dump.synchronised),
        tuple(sorted({backend for part in parts for backend in part.dump.backends})),
    )
    return Found(" and ".join(part.name for part in parts), merged, rank)


def _fullness(one: Found) -> tuple[int, int, bool, int, int, str]:
    dump = one.dump
    enqueued = sum(progress.enqueued for progress in dump.flight.progress)
    return (dump.newest_ns or 0, enqueued, dump.call_sites, len(dump.flight.operations), dump.flight.at_ns, one.name)


def _by_backend(dumps: Sequence[Found]) -> list[list[Found]]:
    """Return the dumps grouped by recorder: a rank that uses NCCL and Gloo has one of each.

    Dumps without entries are put with the first group.
    """
    found: dict[tuple[str, ...], list[Found]] = {}
    for one in dumps:
        if one.dump.backends:
            found.setdefault(one.dump.backends, []).append(one)
    silent = [one for one in dumps if not one.dump.backends]
    if not found:
        return [silent]
    next(iter(found.values())).extend(silent)
    return list(found.values())


def _of_other_moments(dumps: Mapping[int, Found]) -> tuple[dict[int, str], bool]:
    """Return the ranks whose dump is of another moment, with the reason; and True if most of the dumps disagree.

    A rank that completed an operation of all members proves that every member had joined it. A dump in which a member
    has not joined it is therefore older. But if one dump alone is ahead of all others, that one is newer.
    """
    odd: dict[int, str] = {}
    reached: dict[str, dict[int, int]] = defaultdict(dict)
    groups: dict[str, Group] = {}
    for rank, one in dumps.items():
        for group, seq in one.dump.synchronised:
            groups[group.key] = group
            reached[group.key][rank] = seq
    enqueued = {
        (rank, progress.group.key): progress.enqueued
        for rank, one in dumps.items()
        for progress in one.dump.flight.progress
        if not progress.mixed
    }
    for key in sorted(reached, key=lambda key: (-len(groups[key].ranks), key)):
        group = groups[key]
        ends = {m: enqueued[m, key] for m in group.ranks if (m, key) in enqueued}
        while True:
            ahead = {rank: seq for rank, seq in reached[key].items() if rank not in odd}
            behind = {m: end for m, end in ends.items() if m not in odd and end < max(ahead.values(), default=0)}
            if not behind:
                break
            lowest = min(behind.values())
            leaders = [rank for rank, seq in ahead.items() if seq > lowest]
            compared = sum(1 for m in ends if m not in odd)
            if len(leaders) * 2 >= compared:
                for m, end in behind.items():
                    if end == lowest:
                        seq = max(ahead.values())
                        odd[m] = (
                            "it is from an earlier moment: others had completed sequence number "
                            f"{seq} of {group.label}, and it had joined {end}"
                        )
            else:
                for rank in leaders:
                    odd[rank] = (
                        "it is from a later moment or another run: it has completed sequence number "
                        f"{ahead[rank]} of {group.label}, which others had not joined"
                    )
    return ({}, True) if len(odd) * 2 > len(dumps) else (odd, False)
