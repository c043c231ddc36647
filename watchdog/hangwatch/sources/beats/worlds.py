"""Which processes are in a group that ``new_group`` did not make, and which worlds are of one job by that.

May import hangwatch.model and the standard library. A trainer and the engine it serves share a group, but are not ranks of one
world. torch's record of such a group has numbers of its own, which look like ranks (OpenRLHF, SGLang, slime and others make it
by ``torch.distributed.distributed_c10d._new_process_group_helper``). A process is a member if it says so itself, by where it
met the others and as what; a number alone makes nobody a member. Beats that other nodes' agents have read count like those read
here.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import msgspec

from hangwatch.model.beats import Beat, BeatGroup
from hangwatch.model.claims import (
    ClaimedGroup,
    ClaimedWorld,
    ClaimsElsewhere,
    JobOfWorld,
    OpenGroups,
    PlaceClaim,
    World,
)
from hangwatch.model.numbers import guest_number
from hangwatch.sources.proc.files import node_key

#: More members than any group of this kind has: a number from outside must not make us count for long.
_MOST_MEMBERS = 1 << 16
_LOOPBACK = re.compile(r"^(\w+)://(?:localhost|127\.[\d.]+|\[?::1\]?):", re.IGNORECASE)


class _Met(NamedTuple):
    """A group as all its members know it: name, store, size; and their world if the store is not known."""

    name: str
    store: str
    size: int
    world: World | None


class _Claim(NamedTuple):
    """A process's claim to a place in a group."""

    process: tuple[int, int]
    world: World
    rank: int


#: Who claims each place of a group.
_Claims = Mapping[int, Collection[_Claim]]


class Worlds:
    """Finds out which worlds are of one job. Two linked worlds stay linked as long as both have living processes.

    ``elsewhere``: the current claims of other nodes' processes. The other attributes are of the last ``resolve``.
    ``open``: the groups that may have members on other nodes. ``linked``: the worlds here whose jobs processes of
    other nodes belong to. ``jobs``: by pid, the other node's job that a process here belongs to.
    """

    def __init__(self) -> None:
        self.elsewhere: tuple[ClaimsElsewhere, ...] = ()
        self.open = OpenGroups()
        self.linked: frozenset[World] = frozenset()
        self.jobs: dict[int, JobOfWorld] = {}
        self._claims: dict[_Met, dict[int, set[_Claim]]] = {}
        self._links: set[frozenset[World]] = set()
        self._whole: set[World] = set()
        self._described: dict[World, ClaimedWorld] = {}

    def resolve(self, beats: Mapping[int, Beat]) -> dict[int, Beat]:
        """Return ``beats`` (by pid) with each process's number in its job, and group members named by these numbers.

        A place that no process claims, or more than one, is in ``outside``.
        """
        made = {pid: beat for pid, beat in beats.items() if any(g.place is not None for g in beat.groups)}
        theirs, far = _read_elsewhere(self.elsewhere)
        if not made and not self._links and not self._claims.keys() & theirs.keys():
            self._claims.clear()
            self.open, self.linked, self.jobs = OpenGroups(), frozenset(), {}
            return dict(beats)
        worlds = {pid: _world_of(beat) for pid, beat in beats.items()}
        mets = {_met(g, worlds[pid]) for pid, beat in made.items() for g in beat.groups if g.place is not None}
        foreign = {_met(g, worlds[pid]) for pid, beat in made.items() for g in beat.groups if g.foreign}
        foreign |= (mets | self._claims.keys()) & theirs.keys()
        self._update_claims(made, worlds, beats, theirs.keys())
        near = _describe(beats, worlds)
        self.open = self._find_open(foreign, near, worlds)
        claims = {met: _merged(self._claims.get(met, {}), theirs.get(met, {})) for met in mets | foreign}
        homes = self._link(near, far, {met: claims[met] for met in foreign})
        self._note_homes(worlds, homes, far)
        resolved = {}
        for pid, beat in beats.items():
            world = worlds[pid]
            home = homes.get(world, world)
            others = [b for other, b in beats.items() if b.initialized and worlds[other] == world]
            groups = tuple(
                _by_claims(group, claims[_met(group, world)], home, far.keys() - homes.keys())
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

    def _update_claims(
        self,
        made: Mapping[int, Beat],
        worlds: Mapping[int, World],
        beats: Mapping[int, Beat],
        awaited: Collection[_Met],
    ) -> None:
        """Record who claims which place. The claim of a dead process stands until another one claims the place.

        ``awaited``: groups with members elsewhere; they are kept even if no member is left here.
        """
        now: dict[_Met, dict[int, set[_Claim]]] = defaultdict(lambda: defaultdict(set))
        for pid, beat in made.items():
            for group in beat.groups:
                if group.place is not None:
                    claim = _Claim(_process(beat), worlds[pid], beat.rank or 0)
                    now[_met(group, worlds[pid])][group.place].add(claim)
        living = {_process(beat) for beat in beats.values()}
        for met in {*now, *(self._claims.keys() & awaited)}:
            places = now[met]
            for place, before in self._claims.get(met, {}).items():
                if not places.get(place):
                    places[place] = {claim for claim in before if claim.process not in living}
        self._claims = {met: dict(places) for met, places in now.items()}

    def _find_open(
        self, foreign: Collection[_Met], near: Mapping[World, ClaimedWorld], worlds: Mapping[int, World]
    ) -> OpenGroups:
        """Return the groups that may have members elsewhere: some places are unclaimed, and the store is reachable."""
        claimed = {c.world for met in foreign for found in self._claims.get(met, {}).values() for c in found}
        # The last description of a world that is gone stays.
        self._described = {w: d for w, d in {**self._described, **near}.items() if w in claimed}
        order = sorted(self._described, key=_sorting)
        groups = []
        for met in sorted((m for m in foreign if _is_shared(m)), key=lambda met: met[:3]):
            claims = [
                PlaceClaim(place, order.index(claim.world), claim.rank, *claim.process)
                for place, found in sorted(self._claims.get(met, {}).items())
                for claim in sorted(found, key=lambda claim: claim.process)
            ]
            if claims and len({claim.place for claim in claims}) < met.size:
                groups.append(ClaimedGroup(met.name, met.store, met.size, tuple(claims)))
        if not groups:
            return OpenGroups()
        living = {world: pid for pid, world in sorted(worlds.items(), reverse=True)}
        described = tuple(
            msgspec.structs.replace(self._described[w], whole=w in self._whole or self._described[w].whole)
            for w in order
        )
        return OpenGroups(described, tuple(groups), tuple(living.get(world, -1) for world in order))

    def _link(
        self, near: Mapping[World, ClaimedWorld], far: Mapping[World, ClaimedWorld], claims: Mapping[_Met, _Claims]
    ) -> dict[World, World]:
        """Return, for each linked world, the world that its job is named after.

        A world with processes elsewhere is linked only if every agent can know all its ranks: they are on one node,
        or all claim places.
        """
        living = near.keys() | far.keys()
        self._links = {link for link in self._links if link <= living}
        self._whole = (self._whole & living) | {
            w for w in living if any(k.whole for k in (near.get(w), far.get(w)) if k)
        }
        for places in claims.values():
            ranks: dict[World, set[int]] = defaultdict(set)
            for claim in (claim for found in places.values() for claim in found):
                ranks[claim.world].add(claim.rank)
            claiming = ranks.keys() & living
            self._whole |= {world for world in claiming if world.size is not None and len(ranks[world]) >= world.size}
            first = min(claiming, key=_sorting, default=None)
            self._links |= {frozenset({first, other}) for other in claiming if first is not None and other != first}
        homes: dict[World, World] = {}
        for linked in _components(self._links):
            seen = [_both(near.get(world), far[world]) if world in far else near[world] for world in linked]
            if linked <= near.keys():
                homes |= dict.fromkeys(linked, max(seen, key=_standing).world)
                continue
            # The job's own world may be unknown to every agent: its ranks keep their numbers.
            home = max(seen, key=lambda one: (one.launched and one.world not in self._whole, _standing(one))).world
            if home in near or far[home].job is not None:
                homes |= dict.fromkeys(linked & (self._whole | {home}), home)
        return homes

    def _note_homes(
        self, worlds: Mapping[int, World], homes: Mapping[World, World], far: Mapping[World, ClaimedWorld]
    ) -> None:
        """Set ``linked`` and ``jobs``."""
        here = set(worlds.values())
        self.linked = frozenset(home for world, home in homes.items() if home in here and world not in here)
        away = {w: far[homes[w]].job for w in here if w in homes and homes[w] not in here}
        self.jobs = {pid: job for pid, world in worlds.items() if (job := away.get(world)) is not None}


def _process(beat: Beat) -> tuple[int, int]:
    return beat.pid, beat.start_ticks


def _world_of(beat: Beat) -> World:
    if beat.store:
        store = _one_name(beat.store)
        return World(store, beat.world_size, node=node_key() if _is_local(store) else "")
    return World("", beat.world_size if beat.initialized else None, _process(beat), node_key())


def _one_name(store: str) -> str:
    """Return the address of a store with one name for this machine instead of the many it has."""
    return _LOOPBACK.sub(r"\1://127.0.0.1:", store)


def _met(group: BeatGroup, world: World) -> _Met:
    nameless = not world.store and world.size is not None  # it may be the same world as any other
    return _Met(group.name, _one_name(group.store), group.size or 0, world if nameless or not group.store else None)


def _components(links: Iterable[frozenset[World]]) -> list[set[World]]:
    found: list[set[World]] = []
    for link in links:
        near = [one for one in found if one & link]
        found = [*(one for one in found if not one & link), set(link).union(*near)]
    return found


def _is_local(store: str) -> bool:
    """True if a store's address means another place on each node."""
    return _LOOPBACK.match(store) is not None or not store.startswith("tcp://")


def _is_shared(met: _Met) -> bool:
    """True if agents of other nodes can recognise the group."""
    return met.world is None and not _is_local(met.store)


def _sorting(world: World) -> tuple[str, int, tuple[int, int], str]:
    return world.store, world.size or 0, world.process, world.node


def _describe(beats: Mapping[int, Beat], worlds: Mapping[int, World]) -> dict[World, ClaimedWorld]:
    """Return what is known of each world from the beats of this node."""
    members: dict[World, list[Beat]] = defaultdict(list)
    for pid, beat in beats.items():
        members[worlds[pid]].append(beat)
    return {
        world: ClaimedWorld(
            world,
            launched=any(b.local_rank is not None and b.initialized for b in seen),
            whole=world.size is None or len({b.rank for b in seen}) >= world.size,
            since=min(b.start_ticks for b in seen),
        )
        for world, seen in members.items()
    }


def _read_elsewhere(elsewhere: Iterable[ClaimsElsewhere]) -> tuple[dict[_Met, _Claims], dict[World, ClaimedWorld]]:
    """Return the fresh claims of other nodes' agents by group and place, and the worlds there."""
    places: dict[_Met, dict[int, set[_Claim]]] = defaultdict(lambda: defaultdict(set))
    worlds: dict[World, ClaimedWorld] = {}
    for claims, fresh in sorted(elsewhere, key=lambda one: one.fresh):
        for one in claims.worlds:
            worlds[one.world] = _both(worlds.get(one.world), one)
        for group in claims.groups if fresh else ():
            found = places[_Met(group.name, group.store, group.size, None)]
            for claim in group.claims:
                known = claims.worlds[claim.world].world
                found[claim.place].add(_Claim((claim.pid, claim.start_ticks), known, claim.rank))
    return {met: dict(found) for met, found in places.items()}, worlds


def _both(one: ClaimedWorld | None, other: ClaimedWorld) -> ClaimedWorld:
    """Return one world as two agents together see it."""
    if one is None:
        return other
    job = other.job if other.job is not None else one.job
    launched, whole = one.launched or other.launched, one.whole or other.whole
    return ClaimedWorld(one.world, launched, whole, min(one.since, other.since), job)


def _merged(ours: _Claims, theirs: _Claims) -> _Claims:
    """Return the claims of two agents; a claim that both saw counts once."""
    return {place: {*ours.get(place, ()), *theirs.get(place, ())} for place in ours.keys() | theirs.keys()}


def _standing(one: ClaimedWorld) -> tuple[object, ...]:
    """Return a sort key; of several linked worlds the greatest is the job's own: launched, large, old."""
    return one.launched, one.world.size or 0, -one.since, _sorting(one.world)


def _by_claims(group: BeatGroup, claims: _Claims, home: World, strangers: Collection[World]) -> BeatGroup:
    """Return the group with the members that claim its places, in order of place.

    ``home``: the world that the job is named after. ``strangers``: worlds elsewhere that are not linked to it.
    """
    places = range(min(max(group.size or 0, 0), _MOST_MEMBERS))
    known = {
        place: _number(claim.world, claim.rank, home)
        for place in places
        if len(found := claims.get(place, ())) == 1
        for claim in found
        if claim.world == home or claim.world not in strangers
    }
    outside = tuple(place for place in places if place not in known)
    return msgspec.structs.replace(group, ranks=tuple(known.values()), outside=outside)


def _number(world: World, rank: int | None, home: World) -> int:
    """Return the number of a process in the job that is named after the world ``home``."""
    if world == home:
        return rank or 0
    local = world.process if world.store == "" else ()
    return guest_number(f"{world.store} {world.size} {local} {world.node}", rank or 0)


def _renumbered(group: BeatGroup, world: World, home: World) -> BeatGroup:
    """Return the group with its members' ranks in ``world`` replaced by their numbers in the job."""
    if world == home:
        return group
    ranks = tuple(_number(world, rank, home) for rank in group.ranks)
    return msgspec.structs.replace(group, ranks=ranks)


def _without_strangers(group: BeatGroup, others: Iterable[Beat]) -> BeatGroup:
    """Return the group without ranks whose own beat does not know it; ranks without a beat stay."""
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
