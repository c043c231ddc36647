"""Which processes are in a group that ``new_group`` did not make, and which worlds are of one job by that.

May import hangwatch.model and the standard library. A trainer and the engine it serves are in one group and are no ranks of one
world; torch's record of such a group gives its own numbers, which look like ranks (OpenRLHF, SGLang, slime and others make it by
``torch.distributed.distributed_c10d._new_process_group_helper``). Its members are those that say so themselves, by where they
met and as what, and nobody by number alone.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import msgspec

from hangwatch.model.beats import Beat, BeatGroup
from hangwatch.model.numbers import guest_number
from hangwatch.sources.proc.files import node_name

#: More members than any group of this kind has: a number from outside is no reason to count for long.
_MOST_MEMBERS = 1 << 16
_LOOPBACK = re.compile(r"^(\w+)://(?:localhost|127\.[\d.]+|\[?::1\]?):", re.IGNORECASE)


class World(NamedTuple):
    """A world: where its ranks met, and how many they are.

    A process without one is a world of its own, ``process``; with a ``size`` it has one of which the store cannot be told.
    """

    store: str
    size: int | None
    process: tuple[int, int] = (-1, -1)


class _Met(NamedTuple):
    """A group for all its members: its name, where they met, how many they are; and their world, where the place is not known."""

    name: str
    store: str
    size: int
    world: World | None


class _Claim(NamedTuple):
    """A process says that it has a place in a group."""

    process: tuple[int, int]
    world: World
    rank: int


class Worlds:
    """Reads beats one after the other: what linked two worlds links them as long as both have living processes."""

    def __init__(self) -> None:
        self._claims: dict[_Met, dict[int, set[_Claim]]] = {}
        self._links: set[frozenset[World]] = set()

    def resolve(self, beats: Mapping[int, Beat]) -> dict[int, Beat]:
        """The beats (by pid), with the numbers of their processes, and the members of such groups by these numbers.

        Places that no process claims, or several do, are ``outside``.
        """
        made = {pid: beat for pid, beat in beats.items() if any(g.place is not None for g in beat.groups)}
        if not made and not self._links:
            self._claims.clear()
            return dict(beats)
        worlds = {pid: _world_of(beat) for pid, beat in beats.items()}
        foreign = {_met(g, worlds[pid]) for pid, beat in made.items() for g in beat.groups if g.foreign}
        self._update_claims(made, worlds, beats)
        homes = self._link(beats, worlds, foreign)
        resolved = {}
        for pid, beat in beats.items():
            world = worlds[pid]
            home = homes.get(world, world)
            others = [b for other, b in beats.items() if b.initialized and worlds[other] == world]
            groups = tuple(
                self._by_claims(group, _met(group, world), home)
                if group.place is not None and (group.foreign or _met(group, world) in foreign)
                else _renumbered(group if group.place is None else _without_strangers(group, others), world, home)
                for group in beat.groups
            )
            host = min((p for p, w in worlds.items() if w == home), default=None) if home != world else None
            number = (
                _number(world, beat.rank, home) if home != world or (beat.rank is None and world in homes) else None
            )
            resolved[pid] = msgspec.structs.replace(beat, groups=groups, number=number, host=host)
        return resolved

    def _update_claims(self, made: Mapping[int, Beat], worlds: Mapping[int, World], beats: Mapping[int, Beat]) -> None:
        """Take in who claims what. The claim of a process that is gone stands until another one has the place."""
        now: dict[_Met, dict[int, set[_Claim]]] = defaultdict(lambda: defaultdict(set))
        for pid, beat in made.items():
            for group in beat.groups:
                if group.place is not None:
                    claim = _Claim(_process(beat), worlds[pid], beat.rank or 0)
                    now[_met(group, worlds[pid])][group.place].add(claim)
        living = {_process(beat) for beat in beats.values()}
        for met, places in now.items():
            for place, before in self._claims.get(met, {}).items():
                if not places.get(place):
                    places[place] = {claim for claim in before if claim.process not in living}
        self._claims = {met: dict(places) for met, places in now.items()}

    def _link(
        self, beats: Mapping[int, Beat], worlds: Mapping[int, World], foreign: Collection[_Met]
    ) -> dict[World, World]:
        """The world that a job is called by, for each of those that are linked to it."""
        living = set(worlds.values())
        self._links = {link for link in self._links if link <= living}
        for met in foreign:
            claiming = {claim.world for claims in self._claims.get(met, {}).values() for claim in claims} & living
            first = next(iter(claiming), None)
            self._links |= {frozenset({first, other}) for other in claiming if first is not None and other != first}
        homes: dict[World, World] = {}
        for linked in _components(self._links):
            members = {world: [b for p, b in beats.items() if worlds[p] == world] for world in linked}
            home = max(linked, key=lambda world: _standing(world, members[world]))
            homes |= dict.fromkeys(linked, home)
        return homes

    def _by_claims(self, group: BeatGroup, met: _Met, home: World) -> BeatGroup:
        """The group with those that claim its places, in order of place. ``home``: the world that the job is called by."""
        claims = self._claims.get(met, {})
        places = range(min(max(group.size or 0, 0), _MOST_MEMBERS))
        known = {
            place: _number(claim.world, claim.rank, home)
            for place in places
            if len(found := claims.get(place, set())) == 1
            for claim in found
        }
        outside = tuple(place for place in places if place not in known)
        return msgspec.structs.replace(group, ranks=tuple(known.values()), outside=outside)


def _process(beat: Beat) -> tuple[int, int]:
    return beat.pid, beat.start_ticks


def _world_of(beat: Beat) -> World:
    if beat.store:
        return World(_one_name(beat.store), beat.world_size)
    return World("", beat.world_size if beat.initialized else None, _process(beat))


def _one_name(store: str) -> str:
    """The address of a store; this machine has many names for itself."""
    return _LOOPBACK.sub(r"\1://127.0.0.1:", store)


def _met(group: BeatGroup, world: World) -> _Met:
    nameless = not world.store and world.size is not None  # it may be one world with any other
    return _Met(group.name, _one_name(group.store), group.size or 0, world if nameless or not group.store else None)


def _components(links: Iterable[frozenset[World]]) -> list[set[World]]:
    found: list[set[World]] = []
    for link in links:
        near = [one for one in found if one & link]
        found = [*(one for one in found if not one & link), set(link).union(*near)]
    return found


def _standing(world: World, beats: Iterable[Beat]) -> tuple[bool, int, int, World]:
    """Of several worlds, that of the greatest is the job's own: ranks of a launcher, the most of them, the first there."""
    members = list(beats)
    launched = any(b.local_rank is not None and b.initialized for b in members)
    return launched, world.size or 0, -min((b.start_ticks for b in members), default=0), world


def _number(world: World, rank: int | None, home: World) -> int:
    """The number of a process in a job that is called by the world ``home``."""
    if world == home:
        return rank or 0
    local = world.process if world.store == "" else ()
    here = node_name() if not world.store or _LOOPBACK.match(world.store) else ""
    return guest_number(f"{world.store} {world.size} {local} {here}", rank or 0)


def _renumbered(group: BeatGroup, world: World, home: World) -> BeatGroup:
    """A group whose members are ranks of their world."""
    if world == home:
        return group
    ranks = tuple(_number(world, rank, home) for rank in group.ranks)
    return msgspec.structs.replace(group, ranks=ranks)


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
