"""One entry of a flight-recorder dump as an operation. Pure; may import hangwatch.model and the standard library.

Formats: versions 2.0 to 2.10 of the dump, as torch 2.4 to 2.13 write them. Read in ``torch/csrc/distributed/c10d``:
2.0 in ``TraceUtils.h`` (types have their C++ names there, no ``pg_status``, no ``timeout_ms``), 2.2 and 2.3 in
``NCCLUtils.hpp`` (``pg_status``, JSON), 2.4 to 2.10 in ``FlightRecorder.hpp`` and ``FlightRecorderDetail.hpp``
(threads, ``nccl_version``, then ``comm_lib_version``). Version 1, before 2.0, had one ``seq_id``.

Completion is recorded in two ways. NCCL's entries have events: ``state`` tells, and an entry that is retired without
having completed has timed out. Gloo's have none: they stay ``scheduled``, and ``retired`` tells.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from hangwatch.model.collectives import DEFAULT_GROUP, Group, Operation
from hangwatch.model.stacks import Frame
from hangwatch.sources.flight.groups import GroupTable

_PEER = re.compile(r"(send|recv)\s+(\d{1,7})\s*(->|<-)\s*(\d{1,7})")
FRAMES_LIMIT = 64
Shapes = tuple[tuple[int, ...], ...]
#: Backends whose entries record their own completion (``ProcessGroupNCCL`` and those modelled on it).
WITH_EVENTS = frozenset({"nccl", "ncclx", "rccl", "rcclx", "xccl", "hccl", "mccl"})
#: Internal variants and the name that the program called: both sides of a mismatch must have the same names.
_NAMES = {
    "_allgather_base": "all_gather",
    "_all_gather_base": "all_gather",
    "allgather": "all_gather",
    "_reduce_scatter_base": "reduce_scatter",
    "allreduce": "all_reduce",
    "_allreduce": "all_reduce",
    "allreduce_coalesced": "all_reduce_coalesced",
    "allgather_coalesced": "all_gather_coalesced",
    "allgather_into_tensor_coalesced": "all_gather_into_tensor_coalesced",
    "all_reduce_barrier": "barrier",
    "_broadcast_oop": "broadcast",
    "_reduce_oop": "reduce",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all",
    "all_to_all_single": "all_to_all",
    "gather_single": "gather",
}


class EntryFormatError(ValueError):
    """One entry that cannot be used; others of the dump can."""


def split_name(profiling_name: str) -> tuple[str, str]:
    """Return backend and operation of a profiling name: ``("nccl", "all_gather")`` of ``nccl:_all_gather_base``."""
    backend, separator, rest = profiling_name.partition(":")
    if not separator:
        backend, rest = "", profiling_name
    op = rest.strip().split(" ", 1)[0]
    return backend, _NAMES.get(op, _NAMES.get(op.lower(), op)) or "unknown"


def parse_peer(profiling_name: str) -> int | None:
    """Return the other side of ``nccl:send 0->3`` or ``nccl:recv 0<-3``, as a rank *within the group*; else None."""
    match = _PEER.search(profiling_name)
    return int(match[4]) if match else None


def parse_own_place(profiling_name: str) -> int | None:
    """Return the own side of ``nccl:send 0->3`` or ``nccl:recv 0<-3``, as a rank *within the group*; else None."""
    match = _PEER.search(profiling_name)
    return int(match[2]) if match else None


class EntryParser:
    """Parses the kinds of entries of one dump, sharing frames and shapes between them (a job calls from few places)."""

    def __init__(self, groups: GroupTable) -> None:
        self._groups = groups
        self._frames: dict[tuple[str, str, int], Frame] = {}
        #: By identity, because a pickle refers to one object repeatedly: one with a million references is read once.
        self._frame_of: dict[int, Frame] = {}
        self._sizes_of: dict[int, Shapes | None] = {}
        self._shapes: dict[Shapes, Shapes] = {}
        self._texts_of: dict[int, tuple[str, ...]] = {}

    def parse_kind(self, entry: Mapping[object, object]) -> tuple[int | None, Operation]:
        """Return the entry's ``pg_id`` and its operation, without what changes from call to call.

        Raises ``EntryFormatError``.
        """
        pg_id = parse_number(entry.get("pg_id"))
        name, description = _group_name(entry.get("process_group"), pg_id)
        group = self._groups.find(pg_id, name, description)
        profiling_name = entry.get("profiling_name")
        if not isinstance(profiling_name, str):
            raise EntryFormatError("an entry has no name")
        backend, op = split_name(profiling_name)
        p2p = bool(entry.get("is_p2p", op in {"send", "recv"}))
        return pg_id, Operation(
            record_id=0,
            group=group,
            seq=0,
            op=op,
            completed=False,
            created_ns=0,
            p2p=p2p,
            peer=_global_rank(group, parse_peer(profiling_name)) if p2p else None,
            backend=backend,
            input_sizes=self._parse_sizes(entry.get("input_sizes")),
            output_sizes=self._parse_sizes(entry.get("output_sizes")),
            input_dtypes=self._parse_texts(entry.get("input_dtypes")),
            output_dtypes=self._parse_texts(entry.get("output_dtypes")),
            timeout_ms=parse_number(entry.get("timeout_ms")),
            frames=self._parse_frames(entry.get("frames")),
            thread=_thread(entry.get("thread_id")),
        )

    def _parse_frames(self, value: object) -> tuple[Frame, ...] | None:
        """Return the call site; None if the dump has none."""
        if not isinstance(value, (list, tuple)) or not value:
            return None
        frames = []
        for item in value[:FRAMES_LIMIT]:
            frame = self._frame_of.get(id(item))
            if frame is None:
                if not isinstance(item, Mapping):
                    continue
                line = parse_number(item.get("line")) or 0
                key = (str(item.get("name", "")), str(item.get("filename", "")), line)
                frame = self._frame_of[id(item)] = self._frames.setdefault(key, Frame(*key))
            frames.append(frame)
        return tuple(frames) or None

    def _parse_sizes(self, value: object) -> Shapes:
        """Return the shapes of an entry's tensors. Raises if unreadable, because sizes are compared between ranks."""
        if value is None:
            return ()
        key = id(value)
        if key not in self._sizes_of:
            self._sizes_of[key] = None
            shapes = _sizes(value)
            self._sizes_of[key] = self._shapes.setdefault(shapes, shapes)
        found = self._sizes_of[key]
        if found is None:
            raise EntryFormatError("an entry's sizes cannot be read")
        return found

    def _parse_texts(self, value: object) -> tuple[str, ...]:
        """Return a list of type names."""
        if not isinstance(value, (list, tuple)):
            return ()
        texts = self._texts_of.get(id(value))
        if texts is None:
            texts = self._texts_of[id(value)] = tuple(str(item)[:40] for item in value)
        return texts


def _thread(value: object) -> int:
    """Return a thread's number; 0 if ``value`` is none.

    ``c10::str`` writes ``std::thread::id`` as glibc's ``pthread_self``, a decimal number.
    """
    number = parse_number(value)
    return number if number is not None and 0 < number < 1 << 63 else 0


def _group_name(value: object, pg_id: int | None) -> tuple[str, str]:
    """Return name and description of ``process_group``; without one, a name made of ``pg_id``."""
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], str):
        return value[0], value[1] if len(value) > 1 and isinstance(value[1], str) else ""
    if isinstance(value, str):
        return value, ""
    if pg_id is None:
        raise EntryFormatError("an entry has no group")
    return str(pg_id), ""


def _global_rank(group: Group, peer: int | None) -> int | None:
    """Return the global rank of a rank within a group; None if the group's members are not known."""
    if peer is None:
        return None
    if group.ranks or group.outside:
        return group.rank_at(peer)
    return peer if group.description == DEFAULT_GROUP else None


def parse_number(value: object) -> int | None:
    """Return a whole number, also from text, as JSON dumps have it; else None."""
    if type(value) is int:
        return value
    if isinstance(value, str) and len(value) < 20 and value.removeprefix("-").isdecimal():
        return int(value)
    return None


def _sizes(value: object) -> Shapes:
    """Return shapes as tuples. Raises ``EntryFormatError``."""
    if not isinstance(value, (list, tuple)):
        raise EntryFormatError("an entry's sizes are not a list")
    shapes = []
    for shape in value:
        if not isinstance(shape, (list, tuple)):
            raise EntryFormatError("a shape is not a list")
        numbers = [parse_number(size) for size in shape]
        if any(number is None for number in numbers):
            raise EntryFormatError("a shape is not a list of numbers")
        shapes.append(tuple(number for number in numbers if number is not None))
    return tuple(shapes)
