"""Finds the rank that makes the others late, from when each joined its operations. Pure.

A rank's **own time** goes from where an operation last let it go to its next arrival. Waiting is not part of it. So a rank
that waits for a late member of an inner group (tensor parallel), and is late in the outer one (data parallel) for that reason,
has the own time of everybody else.

- **Peers** take the same operations in the same order. Stages of a pipeline are no peers, because their work differs by
  design; the same stage of other replicas is one. With fewer than three peers nobody is named.
- **Waiting.** The flight recorder of Gloo has no end of an operation. If the ranks wait for it, they go on when the last
  member has joined; if it is asynchronous, they go on at once. Which of both holds at a position in the step is decided by
  what makes the own times vary less.
- **Devices.** On a device's stream a call begins once the one before has ended, for all at once. Ranks that compute meanwhile get
  ahead of the late one, and wait for the same delay again at the next call. What comes again does not count. How far they get
  ahead is hidden in part: the longest wait in a step is the least that the late rank costs.
- **Clocks** may differ by a constant. A clock that is ahead looks like a rank that is late by a constant. So a rank is named
  only if the others' next arrivals *follow* its arrivals, from step to step, closer than those of anybody else; a constant plays
  no part in that. If all times are by one clock, it has to come last more often than any other, which a constant shows, too.
- **Design.** Not to blame is a rank that takes less than its peers somewhere. What a rank does alone, and not in each step, does
  not count.
- **Unseen.** Gloo's recorder has no sends. Who waits for one is late with whom it waits for, so a rank is named only if no rank
  of another class is as late.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, compress, pairwise
from operator import mul
from statistics import fmean, median, quantiles

import msgspec

from hangwatch.slow.timeline import Meeting, Pipelines, Streams, Timeline, find_linked, find_pipelines

#: A rank is named for this share of a step at least: the machine's own noise makes one rank that late for a while.
MIN_SHARE = 0.03
#: With two peers nobody can say which of them is unusual.
MIN_PEERS = 3
#: The steps are divided into so many parts: short ones soon show a rank that is much later, long ones a small delay in the noise.
_PARTS = (12, 6)
#: The median of five steps ignores two, such as a checkpoint and an evaluation.
_PART_STEPS = 5
_MIN_PARTS = 3
#: Fewer steps show nothing.
LEAST_STEPS = _PART_STEPS * _MIN_PARTS
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


class LateRank(msgspec.Struct, frozen=True):
    """Who made the job late in the newest ``steps`` of ``of_steps`` steps.

    ``rank``: None if no single rank did. ``lost``: the share of the time that would be saved if this rank (if None: each rank)
    took as long as its peers in the median. ``late_ns``: how much longer it takes in a step. On devices both are the least that
    is certain, and ``most_ns`` is the most that it may be. ``waiting``: who waits for it, in the operation to which it comes
    latest. ``since_ns``: when the first of the steps began; ``usual``: the peer whose steps take as long as those of most.
    ``on_device``: it is known when operations ended.
    """

    rank: int | None
    lost: float
    late_ns: int
    waiting: tuple[int, ...]
    steps: int
    of_steps: int
    since_ns: int = 0
    usual: int | None = None
    most_ns: int = 0
    on_device: bool = False

    @property
    def faster(self) -> float:
        """How much more the job would do in the same time, 0.25 for a quarter."""
        return 1 / (1 - self.lost) - 1


def find_late(streams: Streams, *, one_clock: bool = False, pipelines: Pipelines | None = None) -> LateRank | None:
    """Return who made the job late; None if there is too little to compare.

    ``one_clock``: all times are known to be by one clock. ``pipelines``: of these ranks, if the calls do not tell.
    """
    timeline = Timeline(streams, one_clock=one_clock)
    classes = list(find_peers(timeline, pipelines or find_pipelines(timeline.calls)))
    judged = [one for peers in classes if (one := _judge(timeline, peers)) is not None]
    if not judged:
        return None
    named = max((one for one in judged if one.rank is not None), key=lambda one: one.late_ns, default=None)
    if named is not None and not _is_shared(named, classes):
        return named
    lost = 0.0
    if not timeline.on_device:
        lost = timeline.gain({rank: peers.usual(rank) for peers in classes for rank in peers.ranks})
    return _nobody(min(one.of_steps for one in judged), lost)


class Peers:
    """Ranks that take the same operations. ``places``: of these operations, in the stream of each rank."""

    def __init__(self, timeline: Timeline, places: Mapping[int, Sequence[int]]) -> None:
        self.timeline, self.ranks = timeline, tuple(sorted(places))
        self.places = places
        self._own = {rank: [timeline.own[rank][place] for place in places[rank]] for rank in self.ranks}
        self._usual = [median(column) for column in zip(*self._own.values(), strict=True)]
        self.period = timeline.period[self.ranks[0]]
        #: Where the steps begin, among the common operations. Before the first operation no own time is known.
        self.steps = range(1 + (len(self._usual) - 1) % self.period, len(self._usual), self.period)
        alone = self._alone()
        self._counted = [at not in alone for at in range(self.period)]

    def usual(self, rank: int, first: int = 0) -> dict[int, float]:
        """Return the median own time at each place of a rank, from a common operation on."""
        return dict(zip(self.places[rank][first:], self._usual[first:], strict=True))

    def begins(self, rank: int) -> list[int]:
        """Return when each step of a rank began, in ns."""
        calls, places = self.timeline.calls[rank], self.places[rank]
        return [calls[places[at - 1]].at_ns for at in self.steps]

    def step_ns(self, first: int = 0) -> float:
        """Return how long a step takes from ``first`` on, in ns: the median; on devices the mean, as ends are not exact there."""
        begins = [self.begins(rank)[first:] for rank in self.ranks]
        if self.timeline.on_device:
            return fmean((ones[-1] - ones[0]) / (len(ones) - 1) for ones in begins)
        return median(then - now for ones in begins for now, then in pairwise(ones))

    def excess(self, rank: int) -> list[float]:
        """Return how much longer than its peers' median a rank took in each step, in ns."""
        more = self._more(rank)
        if self.timeline.on_device:
            more = self._without_lead(more)
        return [sum(compress(more[at : at + self.period], self._counted)) for at in self.steps]

    def bounds(self, rank: int, first: int) -> tuple[float, float]:
        """Return how much longer a rank took for a step at least and at most, in ns, from one on: its longest delay, and all."""
        more = self._more(rank)
        delays = [list(compress(more[at : at + self.period], self._counted)) for at in self.steps[first:]]
        return median(map(max, delays)), median(map(sum, delays))

    def _without_lead(self, more: Sequence[float]) -> list[float]:
        """Return the delays at each place, in ns, without what the peers have waited for before.

        Who computes while its device waits for the rank has a lead at the next operation, and waits for it again there. What two
        delays have in common, from one step to the next, is such a lead.
        """
        alone = list(more)
        for place in range(self.period):
            at = [step + place for step in self.steps]
            before, now = (
                [more[here] - more[there] for there, here in pairwise(ones)] for ones in ([i - 1 for i in at], at)
            )
            varied = sum(one * one for one in before)
            again = min(1.0, max(0.0, sum(map(mul, before, now)) / varied)) if varied else 0.0
            for here in at:
                alone[here] = more[here] - again * more[here - 1]
        return alone

    def differs_by_design(self, rank: int, first: int) -> bool:
        """Return whether a rank has other work than its peers, by its steps from one on.

        A slow rank takes less nowhere. A learner, whose actors wait for it in turn, does.
        """
        steps, own = self.steps[first:], self._more(rank)
        more = [median(own[step + at] for step in steps) for at in range(self.period)]
        less = -sum(one for one in more if one < 0)
        # How long peers take is not exact on devices, other than by how much they differ.
        usual = sum(median(self._usual[step + at] for step in steps) for at in range(self.period))
        return less > _SECOND * (sum(more) if self.timeline.on_device else min(sum(more), usual))

    def _alone(self) -> set[int]:
        """Return the places in a step at which a rank may do alone what is no part of each step, such as an evaluation.

        Its peers do nothing there, before an operation that comes once while others repeat: a barrier every ten steps.
        """
        if not self.steps:
            return set()
        rank, start = self.ranks[0], self.steps[0]
        kinds = [self.timeline.calls[rank][self.places[rank][start + at]].name for at in range(self.period)]
        usual = [median(self._usual[step + at] for step in self.steps) for at in range(self.period)]
        often, nothing = Counter(kinds), MIN_SHARE * sum(usual)
        once = max(often.values()) > 1
        return {at for at, kind in enumerate(kinds) if once and often[kind] == 1 and usual[at] < nothing}

    def _more(self, rank: int) -> list[float]:
        return [own - usual for own, usual in zip(self._own[rank], self._usual, strict=True)]


def find_peers(timeline: Timeline, pipelines: Pipelines) -> Iterator[Peers]:
    """Yield the classes of peers, the largest first; each rank is in one at most."""
    # Members are compared once a group and rank: of thousands that takes as long as the rest.
    distinct = {id(call.members): call.members for calls in timeline.calls.values() for call in calls if not call.p2p}
    groups = set(distinct.values())
    # Without pipelines all ranks that are linked by groups may be peers, also if no group has all of them.
    wide = set() if pipelines.of else {tuple(sorted(one)) for one in set(find_linked(groups).values())}
    placed: set[int] = set()
    for members in sorted(groups | wide, key=lambda one: (-len(one), one)):
        if len(members) < MIN_PEERS or not pipelines.are_apart(members) or placed & set(members):
            continue
        if (places := _align(timeline, members)) is not None:
            placed |= set(members)
            yield Peers(timeline, places)


def _align(timeline: Timeline, members: Sequence[int]) -> Mapping[int, Sequence[int]] | None:
    """Return the places of the operations that all members take, in one order; None if they take others."""
    streams = {rank: [(call.name, call.seq) for call in timeline.calls.get(rank, ())] for rank in members}
    first = streams[members[0]]
    common = set(first)
    if len(common) == len(first) > 1 and all(keys == first for keys in streams.values()):
        return dict.fromkeys(members, range(len(first)))
    common.intersection_update(*streams.values())
    if len(common) < _IN_COMMON * min(map(len, streams.values())) or len(common) < 2:
        return None
    places = {rank: [at for at, key in enumerate(keys) if key in common] for rank, keys in streams.items()}
    order = {tuple(streams[rank][at] for at in found) for rank, found in places.items()}
    return places if len(order) == 1 and len(next(iter(order))) == len(common) else None


def _judge(timeline: Timeline, peers: Peers) -> LateRank | None:
    """Return who of these peers was late; None if there are too few steps."""
    steps = len(peers.steps)
    if steps < LEAST_STEPS:
        return None
    excess = {rank: peers.excess(rank) for rank in peers.ranks}
    step_ns = peers.step_ns()
    found = (_find_onset(excess, step_ns, max(_PART_STEPS, steps // parts)) for parts in _PARTS)
    onset = next((one for one in found if one is not None and _is_beyond_noise(excess, *one)), None)
    if onset is None or peers.differs_by_design(*onset):
        return _nobody(steps)
    rank, first = onset
    start = peers.steps[first]
    waiting = _followers(timeline, rank, peers.places[rank][start:])
    if not waiting:
        return _nobody(steps)
    since_ns = timeline.calls[rank][peers.places[rank][start - 1]].at_ns
    late_ns = most_ns = median(excess[rank][first:])
    if timeline.on_device:
        late_ns, most_ns = peers.bounds(rank, first)
        lost = late_ns / max(peers.step_ns(first), late_ns + 1)
    else:
        lost = timeline.gain({rank: peers.usual(rank, start)}, since_ns)
    usual = min((other for other in peers.ranks if other != rank), key=lambda other: abs(median(excess[other][first:])))
    late = steps - first
    return LateRank(
        rank, lost, round(late_ns), waiting, late, steps, since_ns, usual, round(most_ns), timeline.on_device
    )


def _nobody(steps: int, lost: float = 0.0) -> LateRank:
    return LateRank(None, lost, 0, (), steps, steps)


def _is_shared(named: LateRank, classes: Sequence[Peers]) -> bool:
    """Return whether a rank of another class is late at the same time.

    The named one may wait for it in a way that no record shows: those of Gloo have no sends, so a rank that is slow makes all
    stages of its pipeline late.
    """
    for peers in classes:
        if named.rank not in peers.ranks:
            begins = peers.begins(peers.ranks[0])
            first = bisect_left(begins, named.since_ns)
            excess = (peers.excess(rank)[first:] for rank in peers.ranks)
            if any(median(one) > _SECOND * named.late_ns for one in excess if one):
                return True
    return False


def _find_onset(excess: Mapping[int, Sequence[float]], step_ns: float, length: int) -> tuple[int, int] | None:
    """Return which rank is late, and since which step. ``length``: the steps of the parts that are compared."""
    steps = len(next(iter(excess.values())))
    parts = steps // length
    bounds = [steps - length * part for part in range(parts, -1, -1)]
    # In order of time, so that a rank may become late, but ranks that take turns are none.
    late = [_stands_out(excess, step_ns, first, stop) for first, stop in pairwise(bounds)]
    rank, now_ns = late[-1] if late else (None, 0.0)
    if rank is None:
        return None
    # What is at most half as much counts as noise. Noise may hide the rank in a part, but does not point at another one.
    large = [most > _SECOND * now_ns for _, most in late]
    named = [one if more else None for (one, _), more in zip(late, large, strict=True)]
    since = next(
        part
        for part, one in enumerate(named)
        if one == rank and named[part:].count(rank) >= _MOST_PARTS * (parts - part)
    )
    if set(named) - {None, rank} or parts - since < _MIN_PARTS:
        return None
    # If it is late in fewer than half of the parts, nobody may have been nearly as late before.
    return None if parts - since < parts / 2 and any(large[:since]) else (rank, bounds[since])


def _is_beyond_noise(excess: Mapping[int, Sequence[float]], rank: int, first: int) -> bool:
    """Return whether a rank is later than any other, since a step, by more than its steps and theirs vary."""
    mine, others = excess[rank][first:], [excess[other][first:] for other in excess if other != rank]
    middle, error = median(mine), _MEDIAN_ERROR * _deviation(mine) / len(mine) ** 0.5
    usually = max(quantiles(one)[2] for one in others)
    # In most steps it is late by about as much; or, if it is throttled, by more than the others are in most of theirs.
    return middle - max(map(median, others)) >= _ERRORS * error and quantiles(mine)[0] >= min(_SECOND * middle, usually)


def _stands_out(
    excess: Mapping[int, Sequence[float]], step_ns: float, first: int, stop: int
) -> tuple[int | None, float]:
    """Return the only rank that was late in some steps, and how late the latest one was."""
    late = {rank: median(one[first:stop]) for rank, one in excess.items()}
    most, second = sorted(late, key=lambda rank: -late[rank])[:2]
    alone = late[most] >= MIN_SHARE * step_ns and late[second] <= _SECOND * late[most]
    return most if alone else None, late[most]


def _followers(timeline: Timeline, rank: int, places: Sequence[int]) -> tuple[int, ...]:
    """Return who waits for a rank, in the operation to which it comes latest; empty if they do not follow it."""
    calls, operations, positions = timeline.calls[rank], timeline.operations[rank], timeline.positions[rank]
    at: dict[int, list[int]] = defaultdict(list)
    for place in places:
        if place + 1 < len(calls) and timeline.waits[positions[place + 1]]:
            at[positions[place]].append(place)
    often = max(map(len, at.values()), default=0) / 2

    def lateness(place: int) -> float:
        times = operations[place].times
        return times[rank] - median(time for other, time in times.items() if other != rank)

    usual = {position: median(map(lateness, places)) for position, places in at.items() if len(places) >= often}
    if not usual:
        return ()
    members = calls[at[max(usual, key=lambda position: usual[position])][0]].members
    late = max(usual.values())
    chosen = [
        at[position]
        for position, one in usual.items()
        if one >= _SECOND * late and calls[at[position][0]].members == members
    ]
    others = tuple(member for member in members if member != rank)
    if calls[chosen[0][0]].left_ns is not None:
        return others
    if timeline.one_clock:
        last = Counter(max(times, key=times.__getitem__) for at in chain(*chosen) if (times := operations[at].times))
        return others if last.most_common(1)[0][0] == rank else ()
    varied = (_vary(timeline, members, [[operations[at] for at in one[half::2]] for one in chosen]) for half in (0, 1))
    # Twice, so that it is no chance: each half of the operations has noise of its own.
    followed = all(one[rank] <= _FOLLOWING * min(one[other] for other in others) for one in varied)
    return others if followed else ()


def _vary(timeline: Timeline, members: Sequence[int], chosen: Sequence[Sequence[Meeting]]) -> dict[int, float]:
    """Return for each member how much the others' next arrivals vary, seen from its own.

    ``chosen``: some operations, by their position in the step.
    """
    nexts: dict[Meeting, list[tuple[int, int]]] = {one: [] for operations in chosen for one in operations}
    for member in members:
        for operation, after in zip(timeline.operations[member], timeline.calls[member][1:], strict=False):
            if operation in nexts:
                nexts[operation].append((after.at_ns, member))
    varied: dict[int, list[float]] = {member: [] for member in members}
    for operations in chosen:
        seen: dict[int, list[float]] = {member: [] for member in members}
        for operation in operations:
            in_order = sorted(nexts[operation])
            medians = _medians_without([at_ns for at_ns, _ in in_order])
            for (_, member), after_ns in zip(in_order, medians, strict=False):
                seen[member].append(after_ns - operation.times[member])
        for member, ones in seen.items():
            middle = median(ones) if ones else 0.0
            varied[member] += [abs(one - middle) for one in ones]
    # Ranks that take turns differ in some steps, which a median does not show; the worst tenth is the machine's.
    return {m: fmean(sorted(ones)[: 1 + len(ones) * 9 // 10]) if ones else 0.0 for m, ones in varied.items()}


def _medians_without(ordered: Sequence[int]) -> Iterator[float]:
    """Yield the median of ascending values without the first one, without the second one, ...; nothing if there is one only."""
    low, high = (len(ordered) - 2) // 2, (len(ordered) - 1) // 2
    for without in range(len(ordered) if len(ordered) > 1 else 0):
        yield (ordered[low + (low >= without)] + ordered[high + (high >= without)]) / 2


def _deviation(values: Sequence[float]) -> float:
    """Return the median distance from the median."""
    middle = median(values)
    return median(abs(value - middle) for value in values)
