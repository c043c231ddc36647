"""Finds the rank that makes the others late, from when each joined its operations. Pure; imports nothing of ours.

A rank's **own time** goes from where an operation last let it go to its next arrival. Waiting is not part of it. So a rank
that waits for a late member of an inner group (tensor parallel), and is late in the outer one (data parallel) for that reason,
has the own time of everybody else.

- **Peers** take the same operations in the same order. Stages of a pipeline are no peers, because their work differs by
  design; the same stage of other replicas is one. With fewer than three peers nobody is named.
- **Waiting.** The flight recorder of Gloo has no end of an operation. If the ranks wait for it, they go on when the last
  member has joined; if it is asynchronous, they go on at once. Which of both holds at a position in the step is decided by
  what makes the own times vary less.
- **Clocks** may differ by a constant. A clock that is ahead looks like a rank that is late by a constant. So a rank is
  named only if the others' next arrivals *follow* its arrivals, from step to step, closer than those of anybody else; a
  constant plays no part in that. Only the amounts assume that the ranks compared have one clock.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import pairwise
from operator import eq
from statistics import mean, median, quantiles

import msgspec

#: A rank is named for this share of a step at least: the machine's own noise makes one rank that late for a while.
MIN_SHARE = 0.03
#: With two peers nobody can say which of them is unusual.
MIN_PEERS = 3
#: The median of five steps ignores two, such as a checkpoint and an evaluation.
_PART_STEPS = 5
_MIN_PARTS, _MAX_PARTS = 3, 8
#: In this share of the parts since it became late.
_MOST_PARTS = 0.75
#: The second may have half the excess of the first; if it has more, several ranks are late.
_SECOND = 0.5
#: The standard error of a median is 1.25 sigma / sqrt(n); sigma is 1.48 median deviations (normal noise).
_MEDIAN_ERROR = 1.25 * 1.48
#: The difference of two ranks has to be this many standard errors: among 4,096 ranks, 0.1 are that far off by chance.
_ERRORS = 4.0
#: Others follow a rank if this share is left of the variation that they have after any other rank.
_FOLLOWING = 0.8
#: Peers' rings begin and end elsewhere; the rest they have in common.
_IN_COMMON = 0.8
#: A period this close to the best one is the period: longer ones are its multiples.
_AS_GOOD = 0.98


class Call(msgspec.Struct, frozen=True):
    """A rank's part in one operation.

    ``group`` and ``seq``: which operation; ``members``: who takes part. ``name``: what is alike for peers, such as operation
    and sizes. ``left_ns``: when it let the rank go on, and ``work_ns``: the rank's own time before it; None if not recorded.
    ``p2p``: it links stages of a pipeline.
    """

    group: Hashable
    seq: int
    members: tuple[int, ...]
    name: str
    at_ns: int
    left_ns: int | None = None
    work_ns: int | None = None
    p2p: bool = False

    @property
    def shared(self) -> tuple[Hashable, int]:
        """What identifies the operation for all its members."""
        return self.group, self.seq


#: The calls of each rank, in order.
Streams = Mapping[int, Sequence[Call]]
#: Own times in ns by rank and place in its stream.
OwnTimes = Mapping[int, Mapping[int, float]]


class LateRank(msgspec.Struct, frozen=True):
    """Who made the job late in the newest ``steps`` of ``of_steps`` steps.

    ``rank``: None if no single rank did. ``lost``: the share of the time that would be saved if this rank (if None: each rank)
    took as long as its peers in the median. ``late_ns``: how much longer it takes in a step. ``waiting``: who waits for it, in
    the operation to which it comes latest. ``since_ns``: when the first of the steps began; ``usual``: the peer whose steps take
    as long as those of most.
    """

    rank: int | None
    lost: float
    late_ns: int
    waiting: tuple[int, ...]
    steps: int
    of_steps: int
    since_ns: int = 0
    usual: int | None = None

    @property
    def faster(self) -> float:
        """How much more the job would do in the same time, 0.25 for a quarter."""
        return 1 / (1 - self.lost) - 1


def find_late(streams: Streams, *, one_clock: bool = False) -> LateRank | None:
    """Return who made the job late; None if there is too little to compare.

    ``one_clock``: all times are known to be by one clock.
    """
    timeline = Timeline(streams, one_clock=one_clock)
    classes = list(find_peers(timeline))
    judged = [one for peers in classes if (one := _judge(timeline, peers)) is not None]
    if not judged:
        return None
    named = sorted((one for one in judged if one.rank is not None), key=lambda one: -one.late_ns)
    if named and all(one.late_ns <= _SECOND * named[0].late_ns for one in named[1:]):
        return named[0]
    steps = min(one.of_steps for one in judged)
    lost = timeline.gain({rank: peers.usual(rank) for peers in classes for rank in peers.ranks})
    return LateRank(None, lost, 0, (), steps, steps)


class Timeline:
    """The operations whose members all have a record of them, and the ranks' own times between."""

    def __init__(self, streams: Streams, *, one_clock: bool = False) -> None:
        self.one_clock = one_clock
        seen = Counter(call.shared for calls in streams.values() for call in calls)
        whole = {
            rank: [call for call in calls if len(call.members) > 1 and seen[call.shared] == len(call.members)]
            for rank, calls in streams.items()
        }
        self.calls = {rank: calls for rank, calls in whole.items() if calls}
        self.arrivals: dict[Hashable, dict[int, int]] = defaultdict(dict)
        for rank, calls in self.calls.items():
            for call in calls:
                self.arrivals[call.shared][rank] = call.at_ns
        self._joined = {shared: max(times.values()) for shared, times in self.arrivals.items()}
        self.period: dict[int, int] = {}
        self.positions: dict[int, list[int]] = {}
        self._find_positions()
        self.waits = self._find_waits()
        self.own = {rank: self._own_times(rank, self.waits) for rank in self.calls}

    def _find_positions(self) -> None:
        """Number the positions in a step: two calls have one if the calls of a period before them have the same names.

        So those that follow an evaluation or a checkpoint have positions of their own.
        """
        names: dict[str, int] = {}
        known: dict[tuple[int, ...], int] = {}
        periods: dict[tuple[int, ...], int] = {}
        for rank, calls in self.calls.items():
            kinds = tuple(names.setdefault(call.name, len(names)) for call in calls)
            if kinds not in periods:
                periods[kinds] = find_period(kinds)
            period = self.period[rank] = periods[kinds]
            self.positions[rank] = [
                known.setdefault(kinds[max(0, at - period) : at + 1], len(known)) for at in range(len(kinds))
            ]

    def left(self, call: Call) -> int:
        """Return when a call let its rank go on, if it waited."""
        return call.left_ns if call.left_ns is not None else self._joined[call.shared]

    def _own_times(self, rank: int, waits: Mapping[int, bool]) -> list[float]:
        """Return the own time before each call; 0 before the first. ``waits``: by position."""
        own: list[float] = []
        pending: list[int] = []
        before = let_go = self.calls[rank][0].at_ns
        for call, position in zip(self.calls[rank], self.positions[rank], strict=True):
            let_go = max([let_go, *(left for left in pending if left <= call.at_ns)])
            pending = [left for left in pending if left > call.at_ns]
            inferred = call.at_ns - (max(before, let_go) if waits[position] else before)
            own.append(float(inferred if call.work_ns is None else call.work_ns))
            pending.append(self.left(call))
            before = call.at_ns
        return own

    def _find_waits(self) -> dict[int, bool]:
        """Return for each position if ranks wait for the calls before it."""
        spread: dict[int, dict[bool, float]] = defaultdict(lambda: {True: 0.0, False: 0.0})
        recorded = set()
        for rank, calls in self.calls.items():
            recorded |= {
                at for at, call in zip(self.positions[rank][1:], calls, strict=False) if call.left_ns is not None
            }
            for waits in (True, False):
                times: dict[int, list[float]] = defaultdict(list)
                for position, own in zip(
                    self.positions[rank], self._own_times(rank, dict.fromkeys(self.positions[rank], waits)), strict=True
                ):
                    times[position].append(own)
                for position, owns in times.items():
                    middle = median(owns)
                    spread[position][waits] += sum(abs(own - middle) for own in owns)
        return {position: position in recorded or both[True] < both[False] for position, both in spread.items()}

    def replay(self, instead: OwnTimes) -> float:
        """Return when the last call would have been, in ns, with some own times replaced."""
        order = sorted(
            (call.at_ns, place, rank) for rank, calls in self.calls.items() for place, call in enumerate(calls)
        )
        now: dict[int, float] = {}
        let_go: dict[int, float] = {}
        pending: dict[int, list[tuple[Call, float]]] = defaultdict(list)
        joined: dict[Hashable, float] = {}
        for at_ns, place, rank in order:
            call = self.calls[rank][place]
            rest = []
            for before, at in pending[rank]:
                if (left := self.left(before)) > at_ns:
                    rest.append((before, at))
                    continue
                took = left - self._joined[before.shared]
                # Who has left before the last one came has not waited for it.
                gone = joined[before.shared] + took if took >= 0 else at + left - before.at_ns
                let_go[rank] = max(let_go[rank], gone)
            own = instead.get(rank, {}).get(place, self.own[rank][place])
            if place == 0:
                now[rank] = let_go[rank] = float(at_ns)
            else:
                waits = self.waits[self.positions[rank][place]]
                now[rank] = (max(now[rank], let_go[rank]) if waits else now[rank]) + own
            joined[call.shared] = max(joined.get(call.shared, now[rank]), now[rank])
            pending[rank] = [*rest, (call, now[rank])]
        return max(now.values())

    def gain(self, instead: OwnTimes, since_ns: float | None = None) -> float:
        """Return the share of the time since ``since_ns`` (None: of all) that other own times would save, 0 at least."""
        began = min(calls[0].at_ns for calls in self.calls.values()) if since_ns is None else since_ns
        took = self.replay({}) - began
        return max(0.0, 1 - (self.replay(instead) - began) / took) if took > 0 else 0.0


class Peers:
    """Ranks that take the same operations. ``places``: of these operations, in the stream of each rank."""

    def __init__(self, timeline: Timeline, places: Mapping[int, Sequence[int]]) -> None:
        self.ranks = tuple(sorted(places))
        self.places = places
        self._own = {rank: [timeline.own[rank][place] for place in places[rank]] for rank in self.ranks}
        self._usual = [median(column) for column in zip(*self._own.values(), strict=True)]
        self.period = timeline.period[self.ranks[0]]
        #: Where the steps begin, among the common operations. Before the first operation no own time is known.
        self.steps = range(1 + (len(self._usual) - 1) % self.period, len(self._usual), self.period)

    def usual(self, rank: int, first: int = 0) -> dict[int, float]:
        """Return the median own time at each place of a rank, from a common operation on."""
        return dict(zip(self.places[rank][first:], self._usual[first:], strict=True))

    def excess(self, rank: int) -> list[float]:
        """Return how much longer than its peers' median a rank took in each step, in ns."""
        more = [own - usual for own, usual in zip(self._own[rank], self._usual, strict=True)]
        return [sum(more[at : at + self.period]) for at in self.steps]


def find_peers(timeline: Timeline) -> Iterator[Peers]:
    """Yield the classes of peers, the largest first; each rank is in one at most."""
    groups: set[tuple[int, ...]] = set()
    linked: set[tuple[int, ...]] = set()
    # Members are compared once a group and rank: of thousands that takes as long as the rest.
    distinct = {(id(call.members), call.p2p): call for calls in timeline.calls.values() for call in calls}
    for call in distinct.values():
        (linked if call.p2p else groups).add(call.members)
    pipelines = _components(linked)
    # Without pipelines all ranks that are linked by groups may be peers, also if no group has all of them.
    wide = set() if linked else {tuple(sorted(one)) for one in set(_components(groups).values())}
    placed: set[int] = set()
    for members in sorted(groups | wide, key=lambda one: (-len(one), one)):
        alone = len({pipelines.get(rank, rank) for rank in members}) == len(members)
        if len(members) < MIN_PEERS or not alone or placed & set(members):
            continue
        if (places := _align(timeline, members)) is not None:
            placed |= set(members)
            yield Peers(timeline, places)


def _components(groups: set[tuple[int, ...]]) -> dict[int, frozenset[int]]:
    """Return the ranks that are linked with each rank."""
    found: dict[int, frozenset[int]] = {}
    for group in groups:
        merged = frozenset(group).union(*(found.get(rank, ()) for rank in group))
        found.update(dict.fromkeys(merged, merged))
    return found


def _align(timeline: Timeline, members: Sequence[int]) -> dict[int, list[int]] | None:
    """Return the places of the operations that all members take, in one order; None if they take others."""
    streams = {rank: [(call.name, call.seq) for call in timeline.calls.get(rank, ())] for rank in members}
    common = set.intersection(*map(set, streams.values()))
    if len(common) < _IN_COMMON * min(map(len, streams.values())) or len(common) < 2:
        return None
    places = {rank: [at for at, key in enumerate(keys) if key in common] for rank, keys in streams.items()}
    order = {tuple(streams[rank][at] for at in found) for rank, found in places.items()}
    return places if len(order) == 1 and len(next(iter(order))) == len(common) else None


def _judge(timeline: Timeline, peers: Peers) -> LateRank | None:
    """Return who of these peers was late; None if there are too few steps."""
    steps = len(peers.steps)
    parts = min(_MAX_PARTS, steps // _PART_STEPS)
    if parts < _MIN_PARTS:
        return None
    excess = {rank: peers.excess(rank) for rank in peers.ranks}
    begins = [[timeline.calls[rank][peers.places[rank][at - 1]].at_ns for at in peers.steps] for rank in peers.ranks]
    step_ns = median(then - now for one in begins for now, then in pairwise(one))
    bounds = [steps * part // parts for part in range(parts + 1)]
    # In order of time, so that a rank may become late, but ranks that take turns are none.
    late = [_stands_out(excess, step_ns, first, stop) for first, stop in pairwise(bounds)]
    rank, nobody = late[-1], LateRank(None, 0.0, 0, (), steps, steps)
    # Noise may hide it in a part, but shows nobody else.
    named = [part for part, one in enumerate(late) if one == rank]
    since = next((part for part in named if late[part:].count(rank) >= _MOST_PARTS * (parts - part)), parts)
    if rank is None or set(late) - {None, rank} or parts - since < max(_MIN_PARTS - 1, parts / 2):
        return nobody
    first = bounds[since]
    mine = excess[rank][first:]
    second = max(median(excess[other][first:]) for other in peers.ranks if other != rank)
    middle = median(mine)
    error = _MEDIAN_ERROR * _deviation(mine) / len(mine) ** 0.5
    if middle - second < _ERRORS * error or quantiles(mine)[0] < _SECOND * middle:
        return nobody
    start = peers.steps[first]
    waiting = _followers(timeline, rank, peers.places[rank][start:])
    if not waiting:
        return nobody
    since_ns = timeline.calls[rank][peers.places[rank][start - 1]].at_ns
    lost = timeline.gain({rank: peers.usual(rank, start)}, since_ns)
    usual = min((other for other in peers.ranks if other != rank), key=lambda other: abs(median(excess[other][first:])))
    return LateRank(rank, lost, round(middle), waiting, steps - first, steps, since_ns, usual)


def _stands_out(excess: Mapping[int, Sequence[float]], step_ns: float, first: int, stop: int) -> int | None:
    """Return the only rank that was late in some steps."""
    late = {rank: median(one[first:stop]) for rank, one in excess.items()}
    most, second = sorted(late, key=lambda rank: -late[rank])[:2]
    return most if late[most] >= MIN_SHARE * step_ns and late[second] <= _SECOND * late[most] else None


def _followers(timeline: Timeline, rank: int, places: Sequence[int]) -> tuple[int, ...]:
    """Return who waits for a rank, in the operation to which it comes latest; empty if they do not follow it."""
    calls, positions = timeline.calls[rank], timeline.positions[rank]
    at: dict[int, list[Call]] = defaultdict(list)
    for place in places:
        if place + 1 < len(calls) and timeline.waits[positions[place + 1]]:
            at[positions[place]].append(calls[place])
    often = max(map(len, at.values()), default=0) / 2

    def lateness(call: Call) -> float:
        times = timeline.arrivals[call.shared]
        return times[rank] - median(time for other, time in times.items() if other != rank)

    usual = {position: median(map(lateness, calls)) for position, calls in at.items() if len(calls) >= often}
    if not usual:
        return ()
    members = at[max(usual, key=lambda position: usual[position])][0].members
    late = max(usual.values())
    chosen = [
        at[position] for position, one in usual.items() if one >= _SECOND * late and at[position][0].members == members
    ]
    others = tuple(member for member in members if member != rank)
    if chosen[0][0].left_ns is not None:
        return others
    if timeline.one_clock:  # where another one came last, the others follow that one
        chosen = [[call for call in calls if call.at_ns == timeline.left(call)] for calls in chosen]
    varied = (_vary(timeline, members, [calls[half::2] for calls in chosen]) for half in (0, 1))
    # Twice, so that it is no chance: each half of the operations has noise of its own.
    followed = all(one[rank] <= _FOLLOWING * min(one[other] for other in others) for one in varied)
    return others if followed else ()


def _vary(timeline: Timeline, members: Sequence[int], chosen: Sequence[Sequence[Call]]) -> dict[int, float]:
    """Return for each member how much the others' next arrivals vary, seen from its own.

    ``chosen``: some operations, by their position in the step.
    """
    nexts: dict[Hashable, list[tuple[int, int]]] = {call.shared: [] for calls in chosen for call in calls}
    for member in members:
        for call, after in pairwise(timeline.calls[member]):
            if call.shared in nexts:
                nexts[call.shared].append((after.at_ns, member))
    varied: dict[int, list[float]] = {member: [] for member in members}
    for calls in chosen:
        seen: dict[int, list[float]] = {member: [] for member in members}
        for call in calls:
            in_order = sorted(nexts[call.shared])
            times = [at_ns for at_ns, _ in in_order]
            place = {member: at for at, (_, member) in enumerate(in_order)}
            for member, at_ns in timeline.arrivals[call.shared].items():
                after_ns = _median_without(times, place.get(member))
                if after_ns is not None:
                    seen[member].append(after_ns - at_ns)
        for member, ones in seen.items():
            middle = median(ones) if ones else 0.0
            varied[member] += [abs(one - middle) for one in ones]
    # Ranks that take turns differ in some steps, which a median does not show; the worst tenth is the machine's.
    return {m: mean(sorted(ones)[: 1 + len(ones) * 9 // 10]) if ones else 0.0 for m, ones in varied.items()}


def _median_without(ordered: Sequence[int], without: int | None) -> float | None:
    """Return the median of ascending values without the one at a place; None if nothing is left."""
    left = len(ordered) - (without is not None)
    if left < 1:
        return None
    low, high = ((at if without is None or at < without else at + 1) for at in ((left - 1) // 2, left // 2))
    return (ordered[low] + ordered[high]) / 2


def _deviation(values: Sequence[float]) -> float:
    """Return the median distance from the median."""
    middle = median(values)
    return median(abs(value - middle) for value in values)


def find_period(kinds: Sequence[Hashable]) -> int:
    """Return after how many calls a step repeats, as far as the record has steps enough to tell; else 1."""
    longest = len(kinds) // (_PART_STEPS * _MIN_PARTS)
    alike: dict[int, float] = {}
    for period in range(1, longest + 1):
        alike[period] = sum(map(eq, kinds[period:], kinds)) / (len(kinds) - period)
        if alike[period] >= _AS_GOOD:
            return period
    best = max(alike.values(), default=0.0)
    return next((period for period, share in alike.items() if share >= _AS_GOOD * best), 1)
