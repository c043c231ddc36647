"""All entries of a dump at once, as columns: the way in for dumps of any size. Pure.

May import hangwatch.model, hangwatch.analysis' lanes and hangwatch.sources' own parts. A job calls the same few operations again
and again: what does not change from call to call is parsed once a kind (``flight_entries``), the rest a column at a time.
"""

from __future__ import annotations

import marshal
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from hangwatch.analysis.lanes import condense, make_ledger
from hangwatch.model.collectives import Group, Ledger, Operation
from hangwatch.sources.flight_coalescing import COALESCED, settle_batches
from hangwatch.sources.flight_entries import FRAMES_LIMIT, WITH_EVENTS, EntryFormatError, EntryParser, parse_number
from hangwatch.sources.flight_groups import GroupTable

_Entries = Sequence[Mapping[object, object]]
_Numbers = Sequence[int | None]
#: Lists longer than this are known by their identity: hostile input may refer to one of them a million times.
_LIST_LIMIT = 64


@dataclass
class Entries:
    """The entries of one dump. ``groups``: by ``pg_id``; ``mixed``: names of the groups that count more than collectives."""

    ledger: Ledger
    dropped: int
    groups: dict[int, Group]
    mixed: frozenset[str]

    def settle(self, completed: Mapping[str, int]) -> Ledger:
        """The operations with what was launched as one settled (see ``flight_coalescing``)."""
        return condense(settle_batches(tuple(self.ledger), completed)) if _has_batches(self.ledger) else self.ledger


def parse_entries(entries: Sequence[object], groups: GroupTable) -> Entries:
    """All entries, in order of record id; those that cannot be used are left out and counted."""
    kinds = _Kinds(EntryParser(groups))
    found = [(entry, kinds.find(entry)) for entry in entries if isinstance(entry, Mapping)]
    usable = [entry for entry, kind in found if kind is not None]
    kind = [number for _, number in found if number is not None]
    p2p = [one.p2p for one in kinds.known]
    events = [one.backend in WITH_EVENTS for one in kinds.known]
    collective, to_point = _numbers(usable, "collective_seq_id", "seq_id"), _numbers(usable, "p2p_seq_id")
    sent = _numbers(usable, "p2p_seq_id", "seq_id") if None in to_point else to_point
    seqs = [there if p2p[k] else here for k, here, there in zip(kind, collective, sent, strict=True)]
    states = [
        3
        if state == "completed" or (retired is True and not events[k])
        else int(state == "started" or (begun or 0) > 0)
        for k, state, retired, begun in zip(
            kind,
            [entry.get("state") for entry in usable],
            [entry.get("retired") for entry in usable],
            _numbers(usable, "time_discovered_started_ns"),
            strict=True,
        )
    ]
    counted = {k for k, number in zip(kind, to_point, strict=True) if number}
    ledger = make_ledger(
        kinds.known,
        kind,
        _numbers(usable, "record_id", "id"),
        seqs,
        [number or 0 for number in _numbers(usable, "time_created_ns")],
        states,
    )
    mixed = frozenset(one.group.name for k, one in enumerate(kinds.known) if one.p2p or k in counted)
    return Entries(ledger, len(entries) - len(ledger), kinds.groups, mixed)


@dataclass
class _Kinds:
    """The kinds of operations met so far; each was parsed once."""

    parser: EntryParser
    known: list[Operation] = field(default_factory=list)
    groups: dict[int, Group] = field(default_factory=dict)
    _seen: dict[object, int | None] = field(default_factory=dict)
    _alike: dict[object, int] = field(default_factory=dict)

    def find(self, entry: Mapping[object, object]) -> int | None:
        """The number of an entry's kind; None where it cannot be used."""
        key = _key(entry)
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


def _key(entry: Mapping[object, object]) -> object:
    """What is the same for entries of one kind: values where they are short, else the very objects."""
    get = entry.get
    frames = get("frames")
    inputs, outputs = cast("Any", get("input_sizes")), cast("Any", get("output_sizes"))
    values = (
        get("pg_id"), get("process_group"), get("profiling_name"), get("timeout_ms"), get("is_p2p"), inputs, outputs,
        get("input_dtypes"), get("output_dtypes"),
    )  # fmt: skip
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


def _numbers(entries: _Entries, name: str, *older: str) -> _Numbers:
    """One field of all entries, None where it is no whole number; ``older``: what it was called before."""
    try:
        return array("q", [cast("int", entry.get(name)) for entry in entries])
    except (TypeError, OverflowError):
        pass
    names = (name, *older)
    parsed = ([parse_number(entry.get(n)) for n in names] for entry in entries)
    return [next((number for number in told if number is not None), None) for told in parsed]


def _has_batches(ledger: Ledger) -> bool:
    """Whether several entries have one number, or an entry stands for a launch."""
    if any(kind.op == COALESCED for kind in ledger.kinds):
        return True
    slots = [(kind.group.name, kind.p2p) for kind in ledger.kinds]
    numbers = {slot: n for n, slot in enumerate(dict.fromkeys(slots))}
    own = [numbers[slot] for slot in slots]
    seqs = memoryview(ledger.seqs).cast("q")
    return len(set(zip([own[k] for k in memoryview(ledger.kind).cast("I")], seqs, strict=True))) < len(ledger)
