"""Parses all entries of a dump at once, as columns: for dumps of any size. Pure.

May import hangwatch.model, hangwatch.analysis' histories and hangwatch.sources' own parts. A job calls the same few
operations again and again: what does not change between calls is parsed once per kind (``flight_entries``), the rest
column by column.
"""

from __future__ import annotations

import contextlib
import marshal
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from operator import itemgetter
from typing import cast

from hangwatch.analysis.operations.histories import condense, make_columns
from hangwatch.model.collectives import COALESCED, TAKES_ALL, Completion, Group, Operation, OperationColumns
from hangwatch.sources.flight.coalescing import settle_batches
from hangwatch.sources.flight.entries import (
    FRAMES_LIMIT,
    WITH_EVENTS,
    EntryFormatError,
    EntryParser,
    parse_number,
)
from hangwatch.sources.flight.groups import GroupTable

_Entries = Sequence[Mapping[object, object]]
_Row = tuple[object, ...]
_Numbers = Sequence[int | None]
_KIND = (
    "pg_id", "process_group", "profiling_name", "timeout_ms", "is_p2p", "input_dtypes", "output_dtypes", "input_sizes",
    "output_sizes", "thread_id", "frames",
)  # fmt: skip
_TIMES = ("time_created_ns", "time_discovered_started_ns", "time_discovered_completed_ns")
_CALL = (*_TIMES, "record_id", "collective_seq_id", "p2p_seq_id", "state", "retired", "id", "seq_id")
_STATES = {"started": 1, "completed": 3}
#: How many of a group's last completions are kept, to compare clocks.
_COMPLETIONS = 24
#: Values with more parts are compared by identity: hostile input may refer to one a million times.
_PLAIN_LIMIT = 128
_TEXT_LIMIT = 4096
_BITS = 1 << 63


@dataclass
class Entries:
    """The entries of one dump.

    ``groups``: by ``pg_id``. ``mixed``: names of the groups whose numbers do not count collectives alone.
    ``newest_ns``: the latest time in any entry (enqueued, found started, found completed). ``ended_ns``: when each
    operation was found completed, 0 if it was not; empty if the entries were not in order.
    """

    operations: OperationColumns
    dropped: int
    groups: dict[int, Group]
    mixed: frozenset[str]
    newest_ns: int | None
    ended_ns: Sequence[int]

    def completions(self) -> tuple[Completion, ...]:
        """Return when the last collectives of all members were found completed."""
        found = []
        for history in self.operations.histories if len(self.ended_ns) == len(self.operations) else ():
            last = history.segments[-1]
            places = memoryview(last.places).cast("I")[-_COMPLETIONS:]
            kinds = memoryview(self.operations.kind).cast("I")
            for seq, place in enumerate(places, last.stop - len(places)):
                if self.ended_ns[place] > 0 and self.operations.kinds[kinds[place]].op in TAKES_ALL:
                    found.append(Completion(history.group.key, seq, self.ended_ns[place]))
        return tuple(found)

    def settle(self, completed: Mapping[str, int]) -> OperationColumns:
        """Return the operations with every batch settled (see ``flight_coalescing``)."""
        return (
            condense(settle_batches(tuple(self.operations), completed))
            if _has_batches(self.operations)
            else self.operations
        )


def parse_entries(entries: Sequence[object], groups: GroupTable) -> Entries:
    """Return all entries in order of record id; unusable ones are left out and counted."""
    mappings = [entry for entry in entries if isinstance(entry, dict)]
    rows, names = _rows(mappings)
    width = sum(name in _KIND for name in names)
    kinds = _Kinds(EntryParser(groups), names[:width])
    numbers = kinds.find_all(mappings, [row[:width] for row in rows])
    kind = [number for number in numbers if number is not None]
    if len(kind) < len(rows):
        rows = [row for row, number in zip(rows, numbers, strict=True) if number is not None]
    columns = dict.fromkeys(_CALL, (None,) * len(rows)) | dict(zip(names, zip(*rows, strict=True), strict=False))
    p2p = [one.p2p for one in kinds.known]
    created, began, ended = (_times(columns[name]) for name in _TIMES)
    older = columns["seq_id"]
    seqs, to_point = _numbers(columns["collective_seq_id"], older), _numbers(columns["p2p_seq_id"])
    if True in p2p:
        sent = _numbers(columns["p2p_seq_id"], older) if None in to_point else to_point
        seqs = [there if p2p[k] else here for k, here, there in zip(kind, seqs, sent, strict=True)]
    states = _states(columns["state"])
    for at, state in enumerate(states):
        if state != _STATES["completed"]:
            if columns["retired"][at] is True and kinds.known[kind[at]].backend not in WITH_EVENTS:
                states[at] = _STATES["completed"]
            elif began[at] > 0:
                states[at] = _STATES["started"]
    records = _numbers(columns["record_id"], columns["id"])
    operations = make_columns(kinds.known, kind, records, seqs, created, states)
    counted = {k for k, number in zip(kind, to_point, strict=True) if number} if any(to_point) else set()
    mixed = frozenset(one.group.name for k, one in enumerate(kinds.known) if one.p2p or k in counted)
    newest = max((max(times, default=0) for times in (created, began, ended)), default=0)
    ordered = isinstance(records, array) and records.tobytes() == operations.records
    return Entries(
        operations,
        len(entries) - len(operations),
        kinds.groups,
        mixed,
        newest if newest > 0 else None,
        ended if ordered else (),
    )


def _rows(entries: _Entries) -> tuple[list[_Row], list[str]]:
    """Return the fields of each entry, read in one pass because entries lie far apart in memory; and the fields' names."""
    names = [name for name in (*_KIND, *_CALL) if entries and name in entries[0]]
    if len(names) > 1:
        with contextlib.suppress(KeyError):
            return list(map(itemgetter(*names), entries)), names
    names = [*_KIND, *_CALL]
    return [tuple(entry.get(name) for name in names) for entry in entries], names


class _Met:
    """A known kind of entries: its fields, its number, and the last two kinds that came after it."""

    __slots__ = ("number", "other", "row", "then")

    def __init__(self, row: _Row | None, number: int | None) -> None:
        self.row = row
        self.number = number
        self.then = self.other = self


class _Kinds:
    """The known kinds of operations; each was parsed once. ``names``: the names of a row's fields."""

    def __init__(self, parser: EntryParser, names: Sequence[str]) -> None:
        self.parser = parser
        self.known: list[Operation] = []
        self.groups: dict[int, Group] = {}
        self._frames = names.index("frames") if "frames" in names else None
        self._seen: dict[object, _Met] = {}
        self._plain: set[int] = set()
        self._alike: dict[object, int] = {}

    def find_all(self, entries: _Entries, rows: Iterable[_Row]) -> list[int | None]:
        """Return the number of each entry's kind; None if the entry cannot be used.

        A program repeats the calls of its last step, so the kinds that came next the last times are tried first.
        """
        found: list[int | None] = []
        last = _Met(None, None)
        for entry, row in zip(entries, rows, strict=True):
            then = last.then
            if then.row != row:
                last.then, last.other = last.other, then  # an inner loop goes on mostly, and ends now and then
                if last.then.row != row:
                    last.then = self._find(entry, row)
                then = last.then
            last = then
            found.append(then.number)
        return found

    def _find(self, entry: Mapping[object, object], row: _Row) -> _Met:
        values, frames = (row, None) if self._frames is None else (row[: self._frames], row[self._frames])
        plain = self._is_plain(values, frames)
        # Entries of one kind have these in common: plain values, otherwise the identical objects.
        key: object = marshal.dumps(cast("tuple[int, ...]", values), 2) if plain else tuple(map(id, values))
        if frames:
            sites = frames[:FRAMES_LIMIT] if isinstance(frames, (list, tuple)) else (frames,)
            key = (key, *map(id, sites))
        met = self._seen.get(key)
        if met is None:
            met = self._seen[key] = _Met(row if plain else None, self._parse(entry))
        return met

    def _is_plain(self, values: _Row, frames: object) -> bool:
        """True if comparing these values is cheap: they are few, short and not deeply nested."""
        if frames is not None and not (isinstance(frames, (list, tuple)) and len(frames) <= FRAMES_LIMIT):
            return False
        for frame in frames or ():
            if id(frame) not in self._plain:
                if not isinstance(frame, dict) or _weigh(tuple(frame.values()), 1) > _PLAIN_LIMIT:
                    return False
                self._plain.add(id(frame))
        return _weigh(values, 3) <= _PLAIN_LIMIT

    def _parse(self, entry: Mapping[object, object]) -> int | None:
        try:
            pg_id, kind = self.parser.parse_kind(entry)
        except EntryFormatError:
            return None
        if pg_id is not None:
            self.groups[pg_id] = kind.group
        # Not every writer shares the frames of a call site between entries; the parser does.
        place = tuple(map(id, kind.frames or ()))
        tensors = (kind.input_sizes, kind.output_sizes, kind.input_dtypes, kind.output_dtypes)
        alike = (
            kind.group.key,
            kind.op,
            kind.p2p,
            kind.peer,
            kind.backend,
            kind.timeout_ms,
            kind.thread,
            place,
            tensors,
        )
        number = self._alike.setdefault(alike, len(self.known))
        if number == len(self.known):
            self.known.append(kind)
        return number


def _weigh(value: object, depth: int) -> int:
    """Return how many short texts and small numbers ``value`` holds in at most ``depth`` nested lists.

    More than the limit for any other value.
    """
    if isinstance(value, str):
        return 1 if len(value) <= _TEXT_LIMIT else _PLAIN_LIMIT + 1
    if value is None or isinstance(value, int):
        return 1 if value is None or -_BITS < value < _BITS else _PLAIN_LIMIT + 1
    if depth == 0 or not isinstance(value, (list, tuple)) or len(value) > _PLAIN_LIMIT:
        return _PLAIN_LIMIT + 1
    total = 0
    for item in value:
        total += _weigh(item, depth - 1)
        if total > _PLAIN_LIMIT:
            break
    return total


def _numbers(column: Sequence[object], older: Sequence[object] = ()) -> _Numbers:
    """Return a field of all entries, None where it is no whole number. ``older``: the field under its older name."""
    try:
        return array("q", cast("Sequence[int]", column))
    except (TypeError, OverflowError):
        found = [parse_number(value) for value in column]
    if older and None in found:
        return [parse_number(old) if number is None else number for number, old in zip(found, older, strict=True)]
    return found


def _times(column: Sequence[object]) -> Sequence[int]:
    """Return the times of a column in ns, 0 where there is none."""
    try:
        return array("q", [value or 0 for value in cast("Sequence[int | None]", column)])
    except (TypeError, OverflowError):
        return [parse_number(value) or 0 for value in column]


def _states(column: Sequence[object]) -> bytearray:
    try:
        return bytearray(map(_STATES.get, cast("Sequence[str]", column), repeat(0)))
    except TypeError:  # a state that is a list
        return bytearray(_STATES.get(state, 0) if isinstance(state, str) else 0 for state in column)


def _has_batches(operations: OperationColumns) -> bool:
    """True if several entries have one number, or an entry stands for a launch."""
    if any(kind.op == COALESCED for kind in operations.kinds):
        return True
    slots = [(kind.group.name, kind.p2p) for kind in operations.kinds]
    numbers = {slot: n for n, slot in enumerate(dict.fromkeys(slots))}
    own = [numbers[slot] for slot in slots]
    seqs = memoryview(operations.seqs).cast("q")
    return len(set(zip([own[k] for k in memoryview(operations.kind).cast("I")], seqs, strict=True))) < len(operations)
