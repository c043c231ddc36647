"""A rank's collectives by group and sequence number, in a form in which thousands of ranks are compared. Pure.

A lane holds 8 bytes a collective, equal where two ranks agree. So ranks are compared a whole history at a time, at the speed of
comparing memory; only where two differ the first number is searched for.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence

from hangwatch.analysis.signatures import mark
from hangwatch.model.collectives import Group, Lane, Ledger, Operation, Operations, Segment

_MARK_BYTES = 8


def lanes_of(operations: Operations) -> tuple[Lane, ...]:
    """The lanes of a rank. Of several entries with one number (coalesced operations), the first counts."""
    if isinstance(operations, Ledger):
        return operations.lanes
    groups: dict[str, Group] = {}
    places: dict[str, dict[int, int]] = {}
    for place, operation in enumerate(operations):
        if not operation.p2p:
            key = operation.group.key
            if key not in places:
                groups[key], places[key] = operation.group, {}
            places[key].setdefault(operation.seq, place)
    return tuple(
        Lane(groups[key], cut_segments(found, lambda place: mark(operations[place]))) for key, found in places.items()
    )


def cut_segments(places: Mapping[int, int], mark_at: Callable[[int], bytes]) -> tuple[Segment, ...]:
    """Places by sequence number, cut where numbers are missing. ``mark_at`` gives the mark of the operation at a place."""
    seqs = sorted(places)
    if not seqs:
        return ()
    whole = seqs[-1] - seqs[0] == len(seqs) - 1
    starts = [0] if whole else [0, *(i for i in range(1, len(seqs)) if seqs[i] != seqs[i - 1] + 1)]
    segments = []
    for start, stop in zip(starts, [*starts[1:], len(seqs)], strict=True):
        found = [places[seq] for seq in seqs[start:stop]]
        segments.append(Segment(seqs[start], b"".join(map(mark_at, found)), array("I", found).tobytes()))
    return tuple(segments)


def first_difference(lanes: Iterable[Lane]) -> int | None:
    """The first sequence number of one group at which two ranks have operations that do not agree.

    Alike histories count once, so this grows with what differs and not with the number of ranks.
    """
    distinct = {(s.start, s.marks) for lane in lanes for s in lane.segments}
    # What has been seen so far, as disjoint stretches: only the last can meet the next, as they come in ascending order.
    start, seen = 0, b""
    first: int | None = None
    for begin, marks in sorted(distinct, key=lambda one: (one[0], -len(one[1]))):
        known = seen[(begin - start) * _MARK_BYTES :] if begin < start + len(seen) // _MARK_BYTES else b""
        if not known:
            start, seen = begin, marks
            continue
        shared = min(len(known), len(marks))
        at = _first_unlike(known[:shared], marks[:shared])
        if at is not None:
            first = begin + at if first is None else min(first, begin + at)
        if len(marks) > len(known):
            seen += marks[len(known) :]
    return first


def _first_unlike(ours: bytes, theirs: bytes) -> int | None:
    """The first place at which two rows of marks differ, by halving."""
    if ours == theirs:
        return None
    low, high = 0, len(ours) // _MARK_BYTES
    while high - low > 1:
        middle = (low + high) // 2
        if ours[low * _MARK_BYTES : middle * _MARK_BYTES] == theirs[low * _MARK_BYTES : middle * _MARK_BYTES]:
            low = middle
        else:
            high = middle
    return low


def first_after(lanes: Iterable[Lane], seq: int) -> int | None:
    """The first number above ``seq`` of which any rank has a record."""
    spans = {(s.start, s.stop) for lane in lanes for s in lane.segments}
    return min((max(start, seq + 1) for start, stop in spans if stop > seq + 1), default=None)


class Columns:
    """A ledger while it grows: operations are added as a kind and what changes from call to call."""

    def __init__(self) -> None:
        self.kinds: list[Operation] = []
        self._kind = array("I")
        self._records, self._seqs, self._created_ns = array("q"), array("q"), array("q")
        self._states = bytearray()

    def add_kind(self, operation: Operation) -> int:
        """Make a kind of an operation; which call it is of does not matter."""
        self.kinds.append(operation)
        return len(self.kinds) - 1

    def add(self, kind: int, record_id: int, seq: int, created_ns: int, state: int) -> None:
        """One call. ``state``: 0 enqueued, 1 started, 3 completed. Raises ``OverflowError`` beyond 64 bits, and adds nothing."""
        array("q", (record_id, seq, created_ns))
        self._kind.append(kind)
        self._records.append(record_id)
        self._seqs.append(seq)
        self._created_ns.append(created_ns)
        self._states.append(state)

    def build(self) -> Ledger:
        """The ledger, in order of record id."""
        records = self._records
        if any(records[i] > records[i + 1] for i in range(len(records) - 1)):
            order = sorted(range(len(records)), key=records.__getitem__)
            self._kind = array("I", map(self._kind.__getitem__, order))
            self._records, self._seqs, self._created_ns = (
                array("q", map(column.__getitem__, order)) for column in (self._records, self._seqs, self._created_ns)
            )
            self._states = bytearray(map(self._states.__getitem__, order))
        return Ledger(
            kinds=tuple(self.kinds),
            kind=self._kind.tobytes(),
            records=self._records.tobytes(),
            seqs=self._seqs.tobytes(),
            created_ns=self._created_ns.tobytes(),
            states=bytes(self._states),
            lanes=self._lanes(),
        )

    def _lanes(self) -> tuple[Lane, ...]:
        marks = [mark(kind) for kind in self.kinds]
        places: dict[str, dict[int, int]] = {}
        groups = {kind.group.key: kind.group for kind in self.kinds if not kind.p2p}
        own = [None if kind.p2p else places.setdefault(kind.group.key, {}) for kind in self.kinds]
        for place, (kind, seq) in enumerate(zip(self._kind, self._seqs, strict=True)):
            found = own[kind]
            if found is not None and seq not in found:
                found[seq] = place
        kinds = self._kind
        cut = {key: cut_segments(found, lambda at: marks[kinds[at]]) for key, found in places.items() if found}
        return tuple(Lane(groups[key], segments) for key, segments in cut.items())


def condense(operations: Sequence[Operation]) -> Ledger:
    """Operations, in order, as columns."""
    columns = Columns()
    known: dict[object, int] = {}
    for one in operations:
        shape = (one.group.key, one.op, one.p2p, one.peer, one.backend, one.input_sizes, one.output_sizes)
        key = (*shape, one.input_dtypes, one.output_dtypes, one.timeout_ms, _path(one))
        kind = known.get(key)
        if kind is None:
            kind = known[key] = columns.add_kind(one)
        columns.add(kind, one.record_id, one.seq, one.created_ns, 3 if one.completed else int(one.started))
    return columns.build()


def _path(operation: Operation) -> object:
    frames = operation.frames
    return None if frames is None else tuple((f.function, f.file, f.line) for f in frames)
