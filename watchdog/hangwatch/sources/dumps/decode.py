"""One file that people have after a crash: a rank's flight-recorder dump, its stacks, or neither. Pure: bytes in, a value out.

May import hangwatch.model, hangwatch.sources' own parts, msgspec and the standard library. What is in the bytes decides, and
never the file's name: pickle, JSON, py-spy's JSON or its text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from hangwatch.analysis.operations.histories import histories_of, last_joined_by_all
from hangwatch.model.collectives import DEFAULT_GROUP, FlightRecord, Group, OperationColumns, Operations
from hangwatch.sources.dumps.limits import MEMORY_FACTOR, bounded_memory
from hangwatch.sources.dumps.pyspy_text import ProcessStack, is_python, parse_pyspy_text
from hangwatch.sources.flight.entries import parse_own_place
from hangwatch.sources.flight.groups import parse_config
from hangwatch.sources.flight.pickles import FlightFormatError, load_pickle
from hangwatch.sources.flight.recorder import parse_flight
from hangwatch.sources.stacks.samples import parse_pyspy

#: How much of a file tells what it is.
SNIFF_BYTES = 4096
_BLANK = b" \t\r\n\xef\xbb\xbf"


class RankDump(msgspec.Struct, frozen=True):
    """One rank's recorder. ``ranks``: whose it can be by its content (one where the content tells; empty where nothing does).

    ``world``: the members of the default group, empty where the dump does not have them. ``groups``: all groups that it knows
    the members of. ``newest_ns``: the last moment that an entry bears, None without entries. ``synchronised``: by group, the last
    completed operation that takes every member, so that each of them had joined it by then; only where completion can be
    trusted. ``backends`` are those of its entries. ``call_sites``: whether entries have them.
    """

    flight: FlightRecord
    ranks: tuple[int, ...] = ()
    world: tuple[int, ...] = ()
    groups: tuple[Group, ...] = ()
    newest_ns: int | None = None
    synchronised: tuple[tuple[Group, int], ...] = ()
    backends: tuple[str, ...] = ()
    call_sites: bool = False


class StackDump(msgspec.Struct, frozen=True):
    """Stacks of one or more processes, each with its pid (0 where py-spy's JSON does not bear it)."""

    processes: tuple[ProcessStack, ...]


class UnknownContentError(ValueError):
    """A file that is neither a dump nor stacks; the message is one line for people."""


def recognise(head: bytes) -> str | None:
    """What the beginning of a file may be: ``pickle``, ``json``, ``stacks``; None for anything else."""
    if head[:1] == b"\x80" and head[1:2] <= b"\x05":
        return "pickle"
    text = head.lstrip(_BLANK)
    if text[:1] in {b"{", b"["}:
        return "json"
    lines = text[:SNIFF_BYTES].splitlines()
    stacks = any(line.startswith((b"Process ", b"Thread ")) for line in lines[:20])
    return "stacks" if stacks else None


def decode_content(
    data: bytes, *, modified_ns: int | None = None, packed_bytes: int | None = None
) -> RankDump | StackDump:
    """What one file holds. ``modified_ns``: when it was written, as far as its file system or archive knows.

    ``packed_bytes``: the size of what it was packed in, which is the input that the bound on memory counts from.

    Raises ``FlightFormatError`` for a dump that cannot be read (cut, hostile, or wanting more memory than ``limits`` grants),
    ``StackFormatError`` for such stacks and ``UnknownContentError`` for anything else.
    """
    try:
        with bounded_memory(len(data) if packed_bytes is None else packed_bytes):
            return _decode(data, modified_ns)
    except MemoryError:
        raise FlightFormatError(f"it takes more than {MEMORY_FACTOR} times its size in memory") from None


def _decode(data: bytes, modified_ns: int | None) -> RankDump | StackDump:
    form = recognise(data[:SNIFF_BYTES])
    if form == "pickle":
        return decode_dump(load_pickle(data), modified_ns=modified_ns)
    if form == "stacks":
        return StackDump(parse_pyspy_text(data, at_ns=modified_ns or 0))
    if form == "json":
        loaded = _load_json(data)
        if isinstance(loaded, list):
            return StackDump((_parse_pyspy_json(data, loaded, modified_ns or 0),))
        return decode_dump(loaded, modified_ns=modified_ns)
    raise UnknownContentError("neither a flight-recorder dump nor py-spy's stacks")


def decode_dump(dump: object, *, modified_ns: int | None = None) -> RankDump:
    """An unpickled or decoded dump. Raises ``FlightFormatError``.

    The record's ``at_ns`` is when the dump was taken: when its file was written, unless its entries say that this was later.
    """
    if not isinstance(dump, Mapping):
        raise FlightFormatError("this is no flight-recorder dump (no entries, no pg_status)")
    config = parse_config(dump.get("pg_config"))
    groups = tuple(Group(name, ranks, description) for name, (description, ranks) in config.items() if ranks)
    world = next((group.ranks for group in groups if group.description == DEFAULT_GROUP), ())
    flight = parse_flight(dump, at_ns=modified_ns or 0, source="file", columns=True)
    newest = flight.newest_ns
    flight = msgspec.structs.replace(flight, at_ns=max(newest or 0, flight.at_ns))
    operations = flight.operations
    kinds = operations.kinds if isinstance(operations, OperationColumns) else operations
    return RankDump(
        flight=flight,
        ranks=_find_owners(dump, groups),
        world=world,
        groups=groups,
        newest_ns=newest,
        synchronised=_synchronised(operations),
        backends=tuple(sorted({kind.backend for kind in kinds})),
        call_sites=any(kind.frames for kind in kinds),
    )


def _find_owners(dump: Mapping[object, object], groups: Sequence[Group]) -> tuple[int, ...]:
    """The ranks whose dump this can be: a rank knows the groups that it is in, and says which end of a send it is."""
    if not groups:
        return ()
    owners = set(groups[0].ranks).intersection(*(group.ranks for group in groups[1:]))
    members = {group.name: group.ranks for group in groups}
    entries = dump.get("entries")
    for entry in entries if len(owners) > 1 and isinstance(entries, (list, tuple)) else ():
        name = entry.get("profiling_name") if isinstance(entry, Mapping) else None
        place = parse_own_place(name) if isinstance(name, str) else None
        group = entry.get("process_group") if place is not None else None
        ranks = (
            members.get(group[0], ())
            if isinstance(group, (list, tuple)) and group and isinstance(group[0], str)
            else ()
        )
        if place is not None and place < len(ranks):
            return (ranks[place],) if ranks[place] in owners else ()
    return tuple(sorted(owners))


def _synchronised(operations: Operations) -> tuple[tuple[Group, int], ...]:
    """The last number of each group that shows that everyone has come so far. Gloo's say nothing: one that failed looks done."""
    ends = ((history.group, last_joined_by_all(history, operations)) for history in histories_of(operations))
    return tuple((group, seq) for group, seq in ends if seq is not None)


def _load_json(data: bytes) -> object:
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FlightFormatError(f"this is no whole JSON: {str(error)[:200] or type(error).__name__}") from None


def _parse_pyspy_json(data: bytes, loaded: Sequence[object], at_ns: int) -> ProcessStack:
    """``py-spy dump --json``: threads that bear their process's pid. Raises ``StackFormatError``."""
    pids = [thread.get("pid") for thread in loaded if isinstance(thread, Mapping)]
    pid = next((pid for pid in pids if type(pid) is int), 0)
    sample = parse_pyspy(data, at_ns=at_ns, pid=pid)
    threads = (
        msgspec.structs.replace(thread, frames=tuple(f for f in thread.frames if is_python(f.file, f.line)))
        for thread in sample.threads
    )
    return ProcessStack(pid, "", msgspec.structs.replace(sample, threads=tuple(threads)))
