"""A rank's collectives by group and sequence number, in a form in which thousands of ranks are compared. Pure.

A history holds 8 bytes a collective, equal where two ranks agree. So ranks are compared a whole history at a time, at the
speed of comparing memory; only where two differ the first number is searched for.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import cast

from hangwatch.analysis.operations.signatures import mark
from hangwatch.model.collectives import TAKES_ALL, Group, GroupHistory, Operation, OperationColumns, Operations, Segment

_MARK_BYTES = 8


def histories_of(operations: Operations) -> tuple[GroupHistory, ...]:
    """Return the histories of a rank. Of several entries with one number (coalesced operations), the first counts."""
    if isinstance(operations, OperationColumns):
        return operations.histories
    groups: dict[str, Group] = {}
    places: dict[str, dict[int, int]] = {}
    for place, operation in enumerate(operations):
        if not operation.p2p:
            key = operation.group.key
            if key not in places:
                groups[key], places[key] = operation.group, {}
            places[key].setdefault(operation.seq, place)
    return tuple(
        GroupHistory(groups[key], cut_segments(found, lambda place: mark(operations[place])))
        for key, found in places.items()
    )


def last_joined_by_all(history: GroupHistory, operations: Operations) -> int | None:
    """Return the last number of a group at which an operation that takes every member has completed; None if there is none.

    All members had joined it by then. Gloo's operations do not count: one that failed looks done.
    """
    shown = (
        operation.seq
        for segment in reversed(history.segments)
        for place in reversed(memoryview(segment.places).cast("I"))
        if (operation := operations[place]).completed and operation.op in TAKES_ALL and operation.backend != "gloo"
    )
    return next(shown, None)


def cut_segments(places: Mapping[int, int], mark_at: Callable[[int], bytes]) -> tuple[Segment, ...]:
    """Return the places, by sequence number, cut where numbers are missing.

    ``mark_at``: the mark of the operation at a place.
    """
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


def first_disagreement(histories: Iterable[GroupHistory]) -> int | None:
    """Return the first sequence number of one group at which two ranks' operations do not agree; None if all agree.

    Equal histories count once, so this grows with what differs and not with the number of ranks.
    """
    distinct = {(s.start, s.marks) for history in histories for s in history.segments}
    # The stretch of numbers seen last: the next one can overlap no earlier stretch, as they come in ascending order.
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
    """Return the first place at which two rows of marks differ, by halving; None if they are equal."""
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


def first_after(histories: Iterable[GroupHistory], seq: int) -> int | None:
    """Return the first number above ``seq`` that any rank has on record; None if there is none."""
    spans = {(s.start, s.stop) for history in histories for s in history.segments}
    return min((max(start, seq + 1) for start, stop in spans if stop > seq + 1), default=None)


_BITS = 1 << 63


def make_columns(
    kinds: Sequence[Operation],
    kind: Sequence[int],
    records: Sequence[int | None],
    seqs: Sequence[int | None],
    created_ns: Sequence[int],
    states: Sequence[int],
) -> OperationColumns:
    """Return operations from columns of equal length (see ``OperationColumns``), in order of record id.

    Rows without record id or sequence number, or with one beyond 64 bits, are left out.
    """
    try:
        numbers = [_pack(column) for column in (records, seqs, created_ns)]
    except (TypeError, OverflowError):
        rows = zip(kind, records, seqs, created_ns, states, strict=True)
        kept = [row for row in rows if all(n is not None and -_BITS <= n < _BITS for n in row[1:4])]
        kind, states = [row[0] for row in kept], [row[4] for row in kept]
        numbers = [_pack([row[i] for row in kept]) for i in (1, 2, 3)]
    ids = numbers[0].tolist()
    if ids != sorted(ids):
        order = sorted(range(len(ids)), key=ids.__getitem__)
        kind, states = [kind[i] for i in order], [states[i] for i in order]
        numbers = [array("q", map(column.__getitem__, order)) for column in numbers]
    return OperationColumns(
        kinds=tuple(kinds),
        kind=array("I", kind).tobytes(),
        records=numbers[0].tobytes(),
        seqs=numbers[1].tobytes(),
        created_ns=numbers[2].tobytes(),
        states=bytes(states),
        histories=_cut_histories(kinds, kind, numbers[1]),
    )


def _pack(column: Sequence[int | None]) -> array[int]:
    """Return a column in 64 bits a number. Raise TypeError or OverflowError for what does not fit."""
    return array("q", cast("Sequence[int]", column))


def _cut_histories(kinds: Sequence[Operation], kind: Sequence[int], seqs: Sequence[int]) -> tuple[GroupHistory, ...]:
    marks = [mark(one) for one in kinds]
    groups = {one.group.key: one.group for one in kinds if not one.p2p}
    places: dict[str, list[int]] = {key: [] for key in groups}
    left_out: list[int] = []
    put = [(left_out if one.p2p else places[one.group.key]).append for one in kinds]
    for place, k in enumerate(kind):
        put[k](place)
    histories = []
    for key, found in places.items():
        if not found:
            continue
        own = [seqs[place] for place in found]
        if own == list(range(own[0], own[0] + len(own))):  # the usual case, which is fast
            joined = b"".join([marks[kind[place]] for place in found])
            segments: tuple[Segment, ...] = (Segment(own[0], joined, array("I", found).tobytes()),)
        else:
            first = dict(zip(reversed(own), reversed(found), strict=True))
            segments = cut_segments(first, lambda place: marks[kind[place]])
        histories.append(GroupHistory(groups[key], segments))
    return tuple(histories)


def condense(operations: Sequence[Operation]) -> OperationColumns:
    """Return operations, given in order, as columns."""
    known: dict[object, int] = {}
    kinds: list[Operation] = []
    kind: list[int] = []
    for one in operations:
        shape = (one.group.key, one.op, one.p2p, one.peer, one.backend, one.input_sizes, one.output_sizes)
        key = (*shape, one.input_dtypes, one.output_dtypes, one.timeout_ms, one.thread, _path(one))
        if key not in known:
            known[key] = len(kinds)
            kinds.append(one)
        kind.append(known[key])
    return make_columns(
        kinds,
        kind,
        [one.record_id for one in operations],
        [one.seq for one in operations],
        [one.created_ns for one in operations],
        [3 if one.completed else int(one.started) for one in operations],
    )


def _path(operation: Operation) -> object:
    frames = operation.frames
    return None if frames is None else tuple((f.function, f.file, f.line) for f in frames)
