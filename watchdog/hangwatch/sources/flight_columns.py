"""All entries of a dump at once, as columns: the way in for dumps of any size. Pure.

May import hangwatch.model, hangwatch.analysis' lanes and hangwatch.sources' own parts. A job calls the same few operations again
and again: what does not change from call to call is parsed once a kind (``flight_entries``), the rest a column at a time.
"""

from __future__ import annotations

import contextlib
import marshal
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, cast

from hangwatch.analysis.lanes import condense, make_ledger
from hangwatch.model.collectives import Group, Ledger, Operation
from hangwatch.sources.flight_coalescing import COALESCED, settle_batches
from hangwatch.sources.flight_entries import FRAMES_LIMIT, WITH_EVENTS, EntryFormatError, EntryParser, parse_number
from hangwatch.sources.flight_groups import GroupTable

_Entries = Sequence[Mapping[object, object]]
_Numbers = Sequence[int | None]
_KIND = (
    "pg_id", "process_group", "profiling_name", "timeout_ms", "is_p2p", "input_dtypes", "output_dtypes", "input_sizes",
    "output_sizes", "frames",
)  # fmt: skip
_TIMES = ("time_created_ns", "time_discovered_started_ns", "time_discovered_completed_ns")
_FIELDS = (*_KIND, *_TIMES, "record_id", "collective_seq_id", "p2p_seq_id", "state", "retired", "id", "seq_id")
#: Lists longer than this are known by their identity: hostile input may refer to one of them a million times.
_LIST_LIMIT = 64


@dataclass
class Entries:
    """The entries of one dump. ``groups``: by ``pg_id``; ``mixed``: names of the groups that count more than collectives.

    ``newest_ns``: the last moment that an entry bears: that it was enqueued, found started or found completed.
    """

    ledger: Ledger
    dropped: int
    groups: dict[int, Group]
    mixed: frozenset[str]
    newest_ns: int | None

    def settle(self, completed: Mapping[str, int]) -> Ledger:
        """The operations with what was launched as one settled (see ``flight_coalescing``)."""
        return condense(settle_batches(tuple(self.ledger), completed)) if _has_batches(self.ledger) else self.ledger


def parse_entries(entries: Sequence[object], groups: GroupTable) -> Entries:
    """All entries, in order of record id; those that cannot be used are left out and counted."""
    mappings = [entry for entry in entries if isinstance(entry, Mapping)]
    kinds = _Kinds(EntryParser(groups))
    rows, kind = [], []
    for entry, row in zip(mappings, _rows(mappings), strict=True):
        number = kinds.find(entry, row)
        if number is not None:
            rows.append(row)
            kind.append(number)
    columns = dict(zip(_FIELDS, zip(*rows, strict=True), strict=True)) if rows else dict.fromkeys(_FIELDS, ())
    p2p = [one.p2p for one in kinds.known]
    events = [one.backend in WITH_EVENTS for one in kinds.known]
    created, began, ended = (_numbers(columns[name]) for name in _TIMES)
    older = columns["seq_id"]
    collective, to_point = _numbers(columns["collective_seq_id"], older), _numbers(columns["p2p_seq_id"])
    sent = _numbers(columns["p2p_seq_id"], older) if None in to_point else to_point
    states = [
        3
        if state == "completed" or (retired is True and not events[k])
        else int(state == "started" or (start or 0) > 0)
        for k, state, retired, start in zip(kind, columns["state"], columns["retired"], began, strict=True)
    ]
    ledger = make_ledger(
        kinds.known,
        kind,
        _numbers(columns["record_id"], columns["id"]),
        [there if p2p[k] else here for k, here, there in zip(kind, collective, sent, strict=True)],
        [number or 0 for number in created],
        states,
    )
    counted = {k for k, number in zip(kind, to_point, strict=True) if number}
    mixed = frozenset(one.group.name for k, one in enumerate(kinds.known) if one.p2p or k in counted)
    newest = max((max(filter(None, times), default=0) for times in (created, began, ended)), default=0)
    return Entries(ledger, len(entries) - len(ledger), kinds.groups, mixed, newest if newest > 0 else None)


def _rows(entries: _Entries) -> Iterable[tuple[object, ...]]:
    """The fields of each entry, None where it has none of that name: in one go, because entries lie far apart in memory."""
    there = [name for name in _FIELDS if entries and name in entries[0]]
    if len(there) > 1:
        places = [there.index(name) if name in there else -1 for name in _FIELDS]
        with contextlib.suppress(KeyError):
            found = [(*row, None) for row in map(itemgetter(*there), entries)]
            return map(itemgetter(*places), found)
    return (tuple(entry.get(name) for name in _FIELDS) for entry in entries)


@dataclass
class _Kinds:
    """The kinds of operations met so far; each was parsed once."""

    parser: EntryParser
    known: list[Operation] = field(default_factory=list)
    groups: dict[int, Group] = field(default_factory=dict)
    _seen: dict[object, int | None] = field(default_factory=dict)
    _alike: dict[object, int] = field(default_factory=dict)

    def find(self, entry: Mapping[object, object], row: Sequence[object]) -> int | None:
        """The number of an entry's kind; None where it cannot be used."""
        key = _key(row)
        try:
            return self._seen[key]
        except KeyError:
            found = self._seen[key] = self._parse(entry)
            return found

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
        alike = (kind.group.key, kind.op, kind.p2p, kind.peer, kind.backend, kind.timeout_ms, place, tensors)
        number = self._alike.setdefault(alike, len(self.known))
        if number == len(self.known):
            self.known.append(kind)
        return number


def _key(row: Sequence[object]) -> object:
    """What is the same for entries of one kind: values where they are short, else the very objects."""
    values, inputs, outputs, frames = row[: len(_KIND) - 1], cast("Any", row[7]), cast("Any", row[8]), row[9]
    try:
        long = sum(map(len, inputs or ())) + sum(map(len, outputs or ())) > _LIST_LIMIT
        known: object = tuple(map(id, values)) if long else marshal.dumps(cast("tuple[int, ...]", values), 2)
    except (TypeError, ValueError):
        known = tuple(map(id, values))
    if not frames:
        return known
    if not isinstance(frames, (list, tuple)):
        return (known, id(frames))
    return (known, *map(id, frames if len(frames) <= FRAMES_LIMIT else frames[:FRAMES_LIMIT]))


def _numbers(column: Sequence[object], older: Sequence[object] = ()) -> _Numbers:
    """A field of all entries, None where it is no whole number; ``older``: what it was called before."""
    try:
        return array("q", cast("Sequence[int]", column))
    except (TypeError, OverflowError):
        found = [parse_number(value) for value in column]
    if older and None in found:
        return [parse_number(old) if number is None else number for number, old in zip(found, older, strict=True)]
    return found


def _has_batches(ledger: Ledger) -> bool:
    """Whether several entries have one number, or an entry stands for a launch."""
    if any(kind.op == COALESCED for kind in ledger.kinds):
        return True
    slots = [(kind.group.name, kind.p2p) for kind in ledger.kinds]
    numbers = {slot: n for n, slot in enumerate(dict.fromkeys(slots))}
    own = [numbers[slot] for slot in slots]
    seqs = memoryview(ledger.seqs).cast("q")
    return len(set(zip([own[k] for k in memoryview(ledger.kind).cast("I")], seqs, strict=True))) < len(ledger)
