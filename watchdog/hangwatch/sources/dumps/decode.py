"""Decodes one file that people have after a crash: a rank's flight-recorder dump, stacks, or neither. Pure.

May import hangwatch.model, hangwatch.sources' own parts, msgspec and the standard library. The content decides, never
the file's name: pickle, JSON, py-spy's JSON or its text. Some bytes make a parser take gigabytes before it notices
anything (a huge index in a pickle, references to references, endless brackets). They cannot be recognised beforehand,
so memory itself is limited.
"""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from hangwatch.analysis.operations.histories import histories_of, last_joined_by_all
from hangwatch.model.collectives import DEFAULT_GROUP, FlightRecord, Group, OperationColumns, Operations
from hangwatch.sources.dumps.debug_server import DebugDump, is_traceback, parse_debug_dump, parse_traceback
from hangwatch.sources.dumps.pyspy_text import ProcessStack, is_python, parse_pyspy_text
from hangwatch.sources.flight.entries import parse_own_place
from hangwatch.sources.flight.groups import parse_config
from hangwatch.sources.flight.pickles import FlightFormatError, load_pickle
from hangwatch.sources.flight.recorder import parse_flight
from hangwatch.sources.stacks.samples import parse_pyspy

#: Decoding may take this many times the size of the input, plus a fixed amount. Real dumps take up to eight times theirs.
#: For a member of an archive the input is the archive; the fixed amount covers the rest.
MEMORY_FACTOR = 32
MEMORY_FLOOR_BYTES = 256 << 20


@contextlib.contextmanager
def bounded_memory(input_bytes: int) -> Iterator[None]:
    """Limit the memory that the process may take within the block.

    The limit is what it has now, plus ``MEMORY_FACTOR`` times ``input_bytes``, plus ``MEMORY_FLOOR_BYTES``. Beyond
    that, allocations in any thread raise MemoryError. For commands and worker processes only: children inherit the
    limit, so the agent's own process never uses this.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = _address_space_bytes() + MEMORY_FACTOR * input_bytes + MEMORY_FLOOR_BYTES
    if any(limit != resource.RLIM_INFINITY and limit < wanted for limit in (soft, hard)):
        yield  # a stricter one is set already
        return
    resource.setrlimit(resource.RLIMIT_AS, (wanted, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _address_space_bytes() -> int:
    return int(Path("/proc/self/statm").read_bytes().split(maxsplit=1)[0]) * os.sysconf("SC_PAGE_SIZE")


#: How much of a file tells what it is.
SNIFF_BYTES = 4096
_BLANK = b" \t\r\n\xef\xbb\xbf"


class RankDump(msgspec.Struct, frozen=True):
    """One rank's recorder.

    ``ranks``: the ranks whose dump this can be by its content; one if the content tells, empty if nothing does.
    ``world``: the members of the default group; empty if the dump lacks them. ``groups``: all groups whose members it
    knows. ``newest_ns``: the latest time of any entry; None without entries. ``synchronised``: by group, the last
    completed operation of all members, which proves that each of them had joined it; only if completion can be
    trusted. ``backends``: of its entries. ``call_sites``: the entries have them.
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
    """Stacks of one or more processes, each with its pid (0 if py-spy's JSON lacks it)."""

    processes: tuple[ProcessStack, ...]


class UnknownContentError(ValueError):
    """A file that is neither a dump nor stacks; the message is one line for people."""


def recognise(head: bytes) -> str | None:
    """Return what a file's beginning may be: ``pickle``, ``json``, ``debug``, ``stacks``; None for anything else."""
    if head[:1] == b"\x80" and head[1:2] <= b"\x05":
        return "pickle"
    text = head.lstrip(_BLANK)
    if text[:1] in {b"{", b"["}:
        return "json"
    if text.startswith((b"=== Rank ", b"PARTIAL DATA: ")):
        return "debug"
    lines = text[:SNIFF_BYTES].splitlines()
    stacks = is_traceback(text[:SNIFF_BYTES]) or any(line.startswith((b"Process ", b"Thread ")) for line in lines[:20])
    return "stacks" if stacks else None


Decoded = RankDump | StackDump | DebugDump


def decode_content(data: bytes, *, modified_ns: int | None = None, packed_bytes: int | None = None) -> Decoded:
    """Return what one file holds.

    ``modified_ns``: when it was written, by its file system or archive. ``packed_bytes``: the size of what it was
    packed in, from which the memory limit is computed. Raises ``FlightFormatError`` for a dump that cannot be read
    (cut, hostile, or larger than the memory limit), ``StackFormatError`` for such stacks and ``UnknownContentError``
    for anything else.
    """
    try:
        with bounded_memory(len(data) if packed_bytes is None else packed_bytes):
            return _decode(data, modified_ns)
    except MemoryError:
        raise FlightFormatError(f"it needs more than {MEMORY_FACTOR} times its size in memory") from None


def _decode(data: bytes, modified_ns: int | None) -> Decoded:
    form = recognise(data[:SNIFF_BYTES])
    if form == "debug" and (debug := parse_debug_dump(data, at_ns=modified_ns or 0)) is not None:
        return debug
    if form == "pickle":
        return decode_dump(load_pickle(data), modified_ns=modified_ns)
    if form == "stacks":
        parse = parse_traceback if is_traceback(data[:SNIFF_BYTES]) else parse_pyspy_text
        return StackDump(parse(data, at_ns=modified_ns or 0))
    if form == "json":
        loaded = _load_json(data)
        if isinstance(loaded, list):
            return StackDump((_parse_pyspy_json(data, loaded, modified_ns or 0),))
        return decode_dump(loaded, modified_ns=modified_ns)
    raise UnknownContentError("neither a flight-recorder dump nor py-spy's stacks")


def decode_dump(dump: object, *, modified_ns: int | None = None) -> RankDump:
    """Return an unpickled or decoded dump as a value. Raises ``FlightFormatError``.

    The record's ``at_ns`` is when the dump was taken: when its file was written, or the time of its newest entry if
    that is later.
    """
    if not isinstance(dump, Mapping):
        raise FlightFormatError("not a flight-recorder dump (no entries, no pg_status)")
    if _is_torchcomms(dump):
        raise FlightFormatError(
            "torchcomms' recorder does not record whether an operation has completed, and numbers those of all "
            "communicators together"
        )
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


def _is_torchcomms(dump: Mapping[object, object]) -> bool:
    """True for a dump of torchcomms, which has the keys of torch's and other meanings: read as torch's it shows false hangs.

    torchcomms 0.3 (``comms/torchcomms/hooks/fr/FlightRecorder.cpp``): no status, a group's description is its backend,
    an entry is retired when the call returns, and ``collective_seq_id`` counts all calls of the process.
    """
    entries = dump.get("entries")
    first = entries[0] if isinstance(entries, (list, tuple)) and entries else None
    group = first.get("process_group") if isinstance(first, Mapping) else None
    if dump.get("pg_status") != {} or not isinstance(first, Mapping) or not isinstance(group, (list, tuple)):
        return False
    return str(first.get("profiling_name")).startswith(f"{group[-1] if group else ''}:")


def _find_owners(dump: Mapping[object, object], groups: Sequence[Group]) -> tuple[int, ...]:
    """Return the ranks whose dump this can be: a rank knows its groups, and a send or receive names its side."""
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
    """Return, by group, the number of the last operation that proves that every member had joined it.

    Gloo's operations prove nothing: a failed one looks completed.
    """
    ends = ((history.group, last_joined_by_all(history, operations)) for history in histories_of(operations))
    return tuple((group, seq) for group, seq in ends if seq is not None)


def _load_json(data: bytes) -> object:
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FlightFormatError(f"not complete JSON: {str(error)[:200] or type(error).__name__}") from None


def _parse_pyspy_json(data: bytes, loaded: Sequence[object], at_ns: int) -> ProcessStack:
    """Return the stack of ``py-spy dump --json``; its threads carry their process's pid. Raises ``StackFormatError``."""
    pids = [thread.get("pid") for thread in loaded if isinstance(thread, Mapping)]
    pid = next((pid for pid in pids if type(pid) is int), 0)
    sample = parse_pyspy(data, at_ns=at_ns, pid=pid)
    threads = (
        msgspec.structs.replace(thread, frames=tuple(f for f in thread.frames if is_python(f.file, f.line)))
        for thread in sample.threads
    )
    return ProcessStack(pid, "", msgspec.structs.replace(sample, threads=tuple(threads)))
