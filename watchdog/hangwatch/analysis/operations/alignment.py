"""Operations of all ranks side by side, by (group, sequence number) over the whole recorded history. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from hangwatch.analysis.operations.histories import (
    first_after,
    first_disagreement,
    histories_of,
    last_joined_by_all,
)
from hangwatch.analysis.operations.signatures import Signature, signature
from hangwatch.model.capture import RankCapture
from hangwatch.model.collectives import Group, GroupHistory, Operation, OperationColumns, Operations, first_record_id

GroupKey = str


@dataclass(frozen=True)
class SequenceSide:
    """Ranks that agree with each other at one sequence number.

    ``operation`` is one of theirs; None: they have not enqueued it.
    """

    ranks: tuple[int, ...]
    operation: Operation | None


@dataclass(frozen=True)
class SequenceDivergence:
    """The first sequence number of a group at which its ranks differ. ``sides``: the largest first.

    ``silent``: every side has completed its operation there, so a wrong pair went through.
    """

    group: Group
    seq: int
    sides: tuple[SequenceSide, ...]
    at_ns: int

    @property
    def mismatch(self) -> bool:
        """True if two ranks have *different operations* here, and not merely some have none yet."""
        return sum(side.operation is not None for side in self.sides) > 1

    @property
    def silent(self) -> bool:
        """True if all that joined have completed: what came after used wrong data and shifted numbers."""
        return all(side.operation is None or side.operation.completed for side in self.sides)

    def minority(self, among: Iterable[int]) -> tuple[int, ...]:
        """Return the ranks of the smaller sides, restricted to ``among``; of all sides if two are the largest."""
        wanted = frozenset(among)
        sides = [tuple(r for r in side.ranks if r in wanted) for side in self.sides]
        sides = sorted((s for s in sides if s), key=len, reverse=True)
        if not sides:
            return ()
        tie = len(sides) > 1 and len(sides[1]) == len(sides[0])
        return tuple(sorted(r for side in (sides if tie else sides[1:]) for r in side))

    def side_of(self, rank: int) -> SequenceSide | None:
        """Return the side that a rank is on; None if it is on none."""
        return next((side for side in self.sides if rank in side.ranks), None)


def mixed_groups(capture: RankCapture) -> frozenset[GroupKey]:
    """Return the groups whose progress counts more than collectives: Gloo also counts sends and receives, unrecorded.

    In such a group the progress is ahead of the newest collective on the record of the same moment, which is a ring
    that never loses its newest entry. An empty record says nothing: the recorder may be off.
    """
    flight = capture.flight
    if flight is None or flight.source == "status":
        return frozenset()
    newest = _newest(flight.operations)
    complete = first_record_id(flight.operations) == 0
    known = (p for p in flight.progress if p.group.key in newest or (complete and not flight.dropped))
    ahead = frozenset(p.group.key for p in known if p.enqueued > newest.get(p.group.key, 0))
    return ahead | {p.group.key for p in flight.progress if p.mixed}


def _mixed_anywhere(captures: Iterable[RankCapture]) -> set[GroupKey]:
    """Return the groups that are mixed on any rank: all members count alike."""
    found: set[GroupKey] = set()
    for capture in captures:
        progresses = (capture.flight.progress if capture.flight else ()) + (capture.progress or ())
        found |= mixed_groups(capture)
        found.update(progress.group.key for progress in progresses if progress.mixed)
    return found


def _newest(operations: Operations) -> Mapping[GroupKey, int]:
    """Return the last recorded sequence number of each group's collectives."""
    if isinstance(operations, OperationColumns):
        return {history.group.key: history.newest for history in operations.histories}
    newest: dict[GroupKey, int] = {}
    for operation in operations:
        if not operation.p2p:
            key = operation.group.key
            newest[key] = max(newest.get(key, 0), operation.seq)
    return newest


class Moment(Mapping[int, Operation]):
    """The operations that the ranks have at one sequence number of a group, by rank; each is built when it is asked for."""

    def __init__(self, histories: Mapping[int, GroupHistory], operations: Mapping[int, Operations], seq: int) -> None:
        self._lanes = histories
        self._operations = operations
        self._seq = seq

    def __getitem__(self, rank: int) -> Operation:
        """Return the operation of a rank. Raise KeyError if it has none here."""
        place = self._lanes[rank].place(self._seq)
        if place is None:
            raise KeyError(rank)
        return self._operations[rank][place]

    def __contains__(self, rank: object) -> bool:
        """True if the rank has an operation here."""
        history = self._lanes.get(rank) if isinstance(rank, int) else None
        return history is not None and history.place(self._seq) is not None

    def __iter__(self) -> Iterator[int]:
        """Return an iterator over the ranks that have an operation here."""
        return (rank for rank, history in self._lanes.items() if history.place(self._seq) is not None)

    def __len__(self) -> int:
        """Return how many ranks have an operation here."""
        return sum(1 for _ in self)

    def kinds(self) -> Iterator[tuple[int, Operation]]:
        """Yield each rank with a call of the same kind as its operation, which is found much faster than the operation."""
        for rank, operations, place in self._places():
            yield rank, operations.kind_at(place) if isinstance(operations, OperationColumns) else operations[place]

    def created_ns(self) -> Iterator[tuple[int, int]]:
        """Yield each rank with when its operation was enqueued."""
        for rank, operations, place in self._places():
            if isinstance(operations, OperationColumns):
                yield rank, operations.created_ns_at(place)
            else:
                yield rank, operations[place].created_ns

    def _places(self) -> Iterator[tuple[int, Operations, int]]:
        for rank, history in self._lanes.items():
            place = history.place(self._seq)
            if place is not None:
                yield rank, self._operations[rank], place


class History:
    """The recorded operations of all ranks, indexed. Built once for each capture; never changed after."""

    def __init__(self, captures: Iterable[RankCapture]) -> None:
        captures = tuple(captures)
        self.groups: dict[GroupKey, Group] = {}
        self.recorded: set[int] = set()
        self._operations: dict[int, Operations] = {}
        self._in_full: dict[int, tuple[Operation, ...]] = {}
        self._lanes: dict[GroupKey, dict[int, GroupHistory]] = defaultdict(dict)
        self._enqueued: dict[GroupKey, dict[int, int]] = defaultdict(dict)
        self._completed: dict[GroupKey, dict[int, int]] = defaultdict(dict)
        self._lossy: set[int] = set()
        self._listed: dict[int, set[GroupKey]] = defaultdict(set)
        mixed = _mixed_anywhere(captures)
        for capture in captures:
            rank = capture.rank
            if capture.flight is not None and capture.flight.source != "status":
                self.recorded.add(rank)
                self._lossy |= set() if capture.flight.whole else {rank}
                self._operations[rank] = capture.flight.operations
                for history in histories_of(capture.flight.operations):
                    key = history.group.key
                    self.groups.setdefault(key, history.group)
                    self._lanes[key][rank] = history
                    self._note(rank, key, history.newest)
            progresses = (capture.flight.progress if capture.flight else ()) + (capture.progress or ())
            for progress in progresses:
                key = progress.group.key
                self._listed[rank].add(key)
                self.groups.setdefault(key, progress.group)
                if key not in mixed:
                    self._note(rank, key, progress.enqueued)
                    self._completed[key][rank] = max(self._completed[key].get(rank, 0), progress.completed)
        self._note_joined(capture.rank for capture in captures if capture.rank not in self.recorded)

    def _note_joined(self, ranks: Iterable[int]) -> None:
        """Raise the numbers of ranks that only a last beat is left of: they had joined what others have completed."""
        for rank in ranks:
            for key, histories in self._lanes.items():
                if rank in self.groups[key].ranks and rank in self._enqueued[key]:
                    ends = (last_joined_by_all(history, self._operations[r]) for r, history in histories.items())
                    self._note(rank, key, max((end for end in ends if end is not None), default=0))

    def _note(self, rank: int, key: GroupKey, enqueued: int) -> None:
        known = self._enqueued[key]
        known[rank] = max(known.get(rank, 0), enqueued)

    def of(self, rank: int) -> tuple[Operation, ...]:
        """Return all recorded operations of a rank, in order; empty if they are not recorded."""
        if rank not in self._in_full:
            self._in_full[rank] = tuple(self._operations.get(rank, ()))
        return self._in_full[rank]

    def at(self, key: GroupKey, seq: int) -> Moment:
        """Return the operations recorded at one sequence number, by rank."""
        return Moment(self._lanes.get(key, {}), self._operations, seq)

    def enqueued(self, rank: int, key: GroupKey) -> int | None:
        """Return the last sequence number that the rank has enqueued in the group; 0 for none yet, None if not recorded.

        It is None for a group that is missing in the rank's record and beat: both may be older than the group, or
        incomplete.
        """
        number = self._enqueued[key].get(rank) if key in self._enqueued else None
        if number is not None:
            return max(number, 0)
        known = rank in self.recorded and rank not in self._lossy and key in self._listed[rank]
        return 0 if known else None

    def completed(self, key: GroupKey) -> Mapping[int, int]:
        """Return the last number that each rank has completed in the group, by its status; without mixed groups."""
        return self._completed.get(key, {})

    def divergences(self, *, concerned: Iterable[int]) -> Iterator[SequenceDivergence]:
        """Yield the first divergence of each group that has a concerned rank among its members, in order of time.

        A member whose entry has already left the ring buffer is left out of the comparison.
        """
        wanted = frozenset(concerned)
        found = (
            self._divergence(key) for key in self._lanes if not wanted.isdisjoint(self.groups[key].ranks or wanted)
        )
        yield from sorted((d for d in found if d is not None), key=lambda d: (d.at_ns, d.group.key))

    def _divergence(self, key: GroupKey) -> SequenceDivergence | None:
        histories, members = self._lanes[key], self.groups[key].ranks
        ends = {m: end for m in members if (end := self.enqueued(m, key)) is not None}
        unlike = first_disagreement(histories.values())
        left = first_after(histories.values(), min(ends.values())) if ends else None
        seq = min((number for number in (unlike, left) if number is not None), default=None)
        if seq is None:
            return None
        here = self.at(key, seq)
        sides: dict[Signature, list[int]] = defaultdict(list)
        for rank, kind in here.kinds():
            sides[signature(kind)].append(rank)
        absent = [m for m, end in ends.items() if end < seq and m not in here]
        found = [SequenceSide(tuple(sorted(ranks)), here[ranks[0]]) for ranks in sides.values()]
        if absent:
            found.append(SequenceSide(tuple(sorted(absent)), None))
        found.sort(key=lambda side: (-len(side.ranks), side.ranks))
        return SequenceDivergence(self.groups[key], seq, tuple(found), min(ns for _, ns in here.created_ns()))
