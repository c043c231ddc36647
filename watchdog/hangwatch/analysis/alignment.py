"""Operations of all ranks side by side, by (group, sequence number) over the whole recorded history. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod

from hangwatch.model.capture import RankCapture
from hangwatch.model.collectives import Group, Operation

GroupKey = tuple[str, tuple[int, ...]]

#: Operations whose inputs must have the same number of elements of one type on every rank. The others (gather,
#: scatter, all_to_all) may differ by role or by split, and only their type is compared; a barrier carries nothing.
_EVEN = frozenset({"all_reduce", "all_gather", "broadcast", "reduce", "reduce_scatter"})
_EMPTY = frozenset({"barrier", "monitored_barrier"})

Signature = tuple[str, tuple[str, ...], tuple[int, ...]]


def signature(operation: Operation) -> Signature:
    """What must agree between ranks for two operations to be one: name, element types, numbers of elements."""
    if operation.op in _EMPTY:
        return (operation.op, (), ())
    if operation.op in {"gather", "scatter"}:
        return (operation.op, tuple(sorted(set(operation.input_dtypes) | set(operation.output_dtypes))), ())
    numels = tuple(prod(shape) for shape in operation.input_sizes) if operation.op in _EVEN else ()
    return (operation.op, operation.input_dtypes, numels)


def describe(operation: Operation) -> str:
    """An operation for people: ``all_gather of Long[1]``."""
    carried = ", ".join(
        f"{dtype}{list(size)}".replace(" ", "")
        for dtype, size in zip(operation.input_dtypes, operation.input_sizes, strict=False)
    )
    return f"{operation.op} of {carried}" if carried else operation.op


@dataclass(frozen=True)
class Side:
    """Ranks that agree with each other at one sequence number; ``operation`` is one of theirs, None: not enqueued."""

    ranks: tuple[int, ...]
    operation: Operation | None


@dataclass(frozen=True)
class Parting:
    """The first sequence number of a group at which its ranks differ. ``sides``: the largest first.

    ``silent``: every side has completed its operation there, so a wrong pair went through.
    """

    group: Group
    seq: int
    sides: tuple[Side, ...]
    at_ns: int

    @property
    def mismatch(self) -> bool:
        """Whether two ranks have *different operations* here, and not merely some have none yet."""
        return sum(side.operation is not None for side in self.sides) > 1

    @property
    def silent(self) -> bool:
        """Whether all that joined have completed: what came after used wrong data and shifted numbers."""
        return all(side.operation is None or side.operation.completed for side in self.sides)

    def minority(self, among: Iterable[int]) -> tuple[int, ...]:
        """The ranks of the smaller sides, restricted to ``among``; all of them where the largest is not alone."""
        wanted = frozenset(among)
        sides = [tuple(r for r in side.ranks if r in wanted) for side in self.sides]
        sides = sorted((s for s in sides if s), key=len, reverse=True)
        if not sides:
            return ()
        tie = len(sides) > 1 and len(sides[1]) == len(sides[0])
        return tuple(sorted(r for side in (sides if tie else sides[1:]) for r in side))

    def side_of(self, rank: int) -> Side | None:
        """The side a rank is on."""
        return next((side for side in self.sides if rank in side.ranks), None)


def mixed_groups(capture: RankCapture) -> frozenset[GroupKey]:
    """The groups whose progress counts more than collectives: Gloo counts sends and receives in, which it does not record.

    It shows where the progress of one moment is ahead of the newest collective on that moment's record, which is a ring that
    never loses its newest. An empty record says nothing: the recorder may be off.
    """
    flight = capture.flight
    if flight is None or flight.source == "status":
        return frozenset()
    newest: dict[GroupKey, int] = {}
    for operation in flight.operations:
        if not operation.p2p:
            newest[operation.group.key] = max(newest.get(operation.group.key, 0), operation.seq)
    complete = bool(flight.operations) and flight.operations[0].record_id == 0
    known = (p for p in flight.progress if p.group.key in newest or (complete and not flight.dropped))
    return frozenset(p.group.key for p in known if p.enqueued > newest.get(p.group.key, 0))


class History:
    """The recorded operations of all ranks, indexed. Built once a capture; never changed after."""

    def __init__(self, captures: Iterable[RankCapture]) -> None:
        self.operations: dict[int, tuple[Operation, ...]] = {}
        self.groups: dict[GroupKey, Group] = {}
        self._by_seq: dict[GroupKey, dict[int, dict[int, Operation]]] = defaultdict(lambda: defaultdict(dict))
        self._enqueued: dict[tuple[int, GroupKey], int] = {}
        self.recorded: set[int] = set()
        for capture in captures:
            rank = capture.rank
            if capture.flight is not None and capture.flight.source != "status":
                self.recorded.add(rank)
                self.operations[rank] = capture.flight.operations
                for operation in capture.flight.operations:
                    self._add(rank, operation)
            progresses = (capture.flight.progress if capture.flight else ()) + (capture.progress or ())
            mixed = mixed_groups(capture)
            for progress in progresses:
                key = progress.group.key
                self.groups.setdefault(key, progress.group)
                if progress.mixed or key in mixed:
                    continue
                self._enqueued[rank, key] = max(self._enqueued.get((rank, key), 0), progress.enqueued)

    def _add(self, rank: int, operation: Operation) -> None:
        key = operation.group.key
        self.groups.setdefault(key, operation.group)
        if operation.p2p:
            return
        self._by_seq[key][operation.seq].setdefault(rank, operation)
        self._enqueued[rank, key] = max(self._enqueued.get((rank, key), 0), operation.seq)

    def of(self, rank: int) -> tuple[Operation, ...]:
        """All recorded operations of a rank, in order; none where nobody recorded them."""
        return self.operations.get(rank, ())

    def at(self, key: GroupKey, seq: int) -> Mapping[int, Operation]:
        """The operations recorded at one sequence number, by rank."""
        return self._by_seq[key][seq] if key in self._by_seq and seq in self._by_seq[key] else {}

    def enqueued(self, rank: int, key: GroupKey) -> int | None:
        """The last sequence number the rank has enqueued in the group; 0 for none yet, None where nobody recorded."""
        known = self._enqueued.get((rank, key))
        if known is not None:
            return max(known, 0)
        return 0 if rank in self.recorded else None

    def partings(self, *, concerned: Iterable[int]) -> Iterator[Parting]:
        """The first parting of each group that has a concerned rank among its members, in order of time.

        Sequence numbers at which a member's entry has already left the ring buffer are compared among the rest.
        """
        wanted = frozenset(concerned)
        found = (self._parting(key) for key in self._by_seq if not wanted.isdisjoint(self.groups[key].ranks or wanted))
        yield from sorted((p for p in found if p is not None), key=lambda p: (p.at_ns, p.group.key))

    def _parting(self, key: GroupKey) -> Parting | None:
        members = self.groups[key].ranks
        for seq in sorted(self._by_seq[key]):
            here = self._by_seq[key][seq]
            sides: dict[Signature, list[int]] = defaultdict(list)
            for rank, operation in here.items():
                sides[signature(operation)].append(rank)
            absent = [
                m
                for m in members
                if m not in here and (enqueued := self.enqueued(m, key)) is not None and enqueued < seq
            ]
            if len(sides) + bool(absent) < 2:
                continue
            found = [Side(tuple(sorted(ranks)), here[ranks[0]]) for ranks in sides.values()]
            if absent:
                found.append(Side(tuple(sorted(absent)), None))
            found.sort(key=lambda side: (-len(side.ranks), side.ranks))
            return Parting(self.groups[key], seq, tuple(found), min(o.created_ns for o in here.values()))
        return None
