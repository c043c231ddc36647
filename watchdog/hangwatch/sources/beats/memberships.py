"""Which ranks are in a group that ``new_group`` did not make: those that say so themselves, and nobody by number alone.

May import hangwatch.model and the standard library. Pure. A trainer and the engine it serves are in one group and are no ranks
of one job; torch's record of such a group gives its own numbers, which look like ranks (OpenRLHF, SGLang, slime and others
make it by ``torch.distributed.distributed_c10d._new_process_group_helper``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

import msgspec

from hangwatch.model.beats import Beat, BeatGroup

#: More members than any group of this kind has: a number from outside is no reason to count for long.
_MOST_MEMBERS = 1 << 16
#: A world: where its ranks met, and how many they are. A process that does not know it is a world of its own.
_World = tuple[str, int | None, int]
#: A group for all its members: its name, where they met, and how many they are.
_Met = tuple[str, str, int]
#: By world and group, the ranks that claim each place in it.
_Claims = Mapping[tuple[_World, _Met], Mapping[int, set[int]]]


def resolve_members(beats: Mapping[int, Beat]) -> dict[int, Beat]:
    """The beats (by pid), with the members of such groups as ranks of their own world.

    Places that no rank claims, or several do, are ``outside``.
    """
    made = [(pid, beat) for pid, beat in beats.items() if any(g.place is not None for g in beat.groups)]
    if not made:
        return dict(beats)
    claims: dict[tuple[_World, _Met], dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
    foreign: set[tuple[_World, _Met]] = set()
    for pid, beat in made:
        for group in beat.groups:
            if group.place is not None and beat.rank is not None:
                key = (_world_of(pid, beat), _met(group))
                claims[key][group.place].add(beat.rank)
                foreign |= {key} if group.foreign else set()
    resolved = dict(beats)
    for pid, beat in made:
        world = _world_of(pid, beat)
        others = [b for other, b in beats.items() if b.initialized and _world_of(other, b) == world]
        groups = tuple(
            group
            if group.place is None
            else _by_claims(group, claims.get((world, _met(group)), {}))
            if group.foreign or (world, _met(group)) in foreign
            else _without_strangers(group, others)
            for group in beat.groups
        )
        resolved[pid] = msgspec.structs.replace(beat, groups=groups)
    return resolved


def _world_of(pid: int, beat: Beat) -> _World:
    return (beat.store, beat.world_size, -1) if beat.store else ("", None, pid)


def _met(group: BeatGroup) -> _Met:
    return group.name, group.store, group.size or 0


def _by_claims(group: BeatGroup, claims: Mapping[int, set[int]]) -> BeatGroup:
    """The group with the ranks that claim its places, in order of place."""
    places = range(min(max(group.size or 0, 0), _MOST_MEMBERS))
    known = {place: min(ranks) for place in places if len(ranks := claims.get(place, set())) == 1}
    outside = tuple(place for place in places if place not in known)
    return msgspec.structs.replace(group, ranks=tuple(known.values()), outside=outside)


def _without_strangers(group: BeatGroup, others: Iterable[Beat]) -> BeatGroup:
    """The group without the listed ranks that are seen and know nothing of it; who is not seen is believed to be in it."""
    strangers = {
        beat.rank
        for beat in others
        if beat.rank in group.ranks and all((g.name, g.ranks) != (group.name, group.ranks) for g in beat.groups)
    }
    if not strangers:
        return group
    ranks = tuple(rank for rank in group.ranks if rank not in strangers)
    outside = tuple(place for place, rank in enumerate(group.ranks) if rank in strangers)
    return msgspec.structs.replace(group, ranks=ranks, outside=outside)
