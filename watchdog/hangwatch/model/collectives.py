"""Process groups, the operations recorded in them, and how far a rank is in each."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from functools import cached_property
from hashlib import blake2b
from operator import index
from struct import Struct

import msgspec

from hangwatch.model.numbers import world_of
from hangwatch.model.stacks import Frame

#: A place and a number in a column: much faster than a cast of the whole column where only one is read.
_read_place, _read_number = Struct("I").unpack_from, Struct("q").unpack_from
#: The description that torch gives the group of all ranks.
DEFAULT_GROUP = "default_pg"
#: Operations that complete on no rank before all members have joined; a root may be done with a broadcast long before that.
TAKES_ALL = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"})
#: What stands for the launch of several operations at once (``sources/flight/coalescing.py``).
COALESCED = "coalesced"


class Group(msgspec.Struct, frozen=True, order=True, dict=True):
    """A process group, the same for all its members: torch's name for it and its *global* ranks.

    The name alone is not enough: names come from a counter in each process, so rank 0's "1" and rank 2's "1" may be
    different groups. ``ranks``: empty if the members are not known. ``outside``: the places in it (ranks within the
    group) that no rank of the job has claimed; ``ranks`` are the other members. ``backend``: whose operations these
    are, if several backends serve the group; else empty.
    """

    name: str
    ranks: tuple[int, ...] = ()
    description: str = msgspec.field(default="")
    outside: tuple[int, ...] = ()
    backend: str = ""

    @cached_property
    def key(self) -> str:
        """Return what makes two ranks' groups the same group: name, ranks and backend.

        It is short, however many ranks there are.
        """
        ranks = array("q", self.ranks).tobytes()
        return f"{self.name}@{blake2b(ranks, digest_size=12).hexdigest()}{self.backend}"

    @cached_property
    def members(self) -> frozenset[int]:
        """The global ranks as a set: ranks of a large job share their groups, so it is made once for all of them."""
        return frozenset(self.ranks)

    @cached_property
    def worlds(self) -> frozenset[int | None]:
        """The worlds that the members are of, as ``model.numbers.world_of`` has them."""
        return frozenset(map(world_of, self.ranks))

    def rank_at(self, place: int) -> int | None:
        """Return the global rank of a member by its rank within the group; None if not known."""
        if place in self.outside:
            return None
        at = place - sum(other < place for other in self.outside)
        return self.ranks[at] if 0 <= at < len(self.ranks) else None

    @property
    def label(self) -> str:
        """The name for people: ``default_pg``, ``dp``, or ``group 3`` if torch gives no description (``undefined``)."""
        if self.description and self.description != "undefined":
            return self.description
        return f"group {self.name}" if self.name else "a group without a name"


class Operation(msgspec.Struct, frozen=True, omit_defaults=True):
    """One collective or point-to-point operation of one rank, as in the flight recorder.

    - ``op``: the name without its backend (``all_gather``).
    - ``seq``: the group's sequence number. Collectives and point-to-point operations are numbered separately; ``p2p``
      tells which this is.
    - ``completed``: comparable between backends (Gloo: retired; NCCL: state completed, because an operation that is
      only retired has timed out).
    - ``peer``: the *global* rank of the other side, for point-to-point.
    - Sizes are shapes, dtypes torch's scalar type names (``Float``).
    - ``frames``: the call site, deepest first; None if only the JSON form was available.
    - ``thread``: the calling thread, by ``ThreadStack.ident``; 0 if the dump does not tell.
    """

    record_id: int
    group: Group
    seq: int
    op: str
    completed: bool
    created_ns: int
    started: bool = False
    p2p: bool = False
    peer: int | None = None
    backend: str = ""
    input_sizes: tuple[tuple[int, ...], ...] = ()
    output_sizes: tuple[tuple[int, ...], ...] = ()
    input_dtypes: tuple[str, ...] = ()
    output_dtypes: tuple[str, ...] = ()
    timeout_ms: int | None = None
    frames: tuple[Frame, ...] | None = None
    thread: int = 0


class DeviceTime(msgspec.Struct, frozen=True, gc=False):
    """When an operation was found to have ended on its device, and how long it took there, in ns."""

    ended_ns: int
    took_ns: int


def call_group(name: str, description: str) -> str:
    """Return the name of a group whose object a stack shows: the default group as such, others by torch's name."""
    return DEFAULT_GROUP if description == DEFAULT_GROUP else name


class GroupProgress(msgspec.Struct, frozen=True):
    """How far one rank is in one group: last sequence numbers (0: none yet; ``started`` -1 if not recorded).

    ``mixed``: the numbers do not count collectives alone, so they must not be compared with a collective's number.
    NCCL's are those of the last operation, point-to-point or not. A group served by two backends has two progresses.
    """

    group: Group
    enqueued: int
    started: int
    completed: int
    mixed: bool = False


class Segment(msgspec.Struct, frozen=True):
    """Consecutive sequence numbers of a group, from ``start`` on, that one rank has a record of.

    ``marks``: 8 bytes per number, equal for two ranks whose operations agree (see ``analysis.operations.histories``).
    ``places``: 4 bytes per number, the index of the operation among all of the rank's.
    """

    start: int
    marks: bytes
    places: bytes

    @property
    def stop(self) -> int:
        """One past the last number."""
        return self.start + len(self.marks) // 8


class GroupHistory(msgspec.Struct, frozen=True):
    """All recorded collectives of one rank in one group, by sequence number: segments in ascending order."""

    group: Group
    segments: tuple[Segment, ...]

    @property
    def newest(self) -> int:
        """The last sequence number on record."""
        return self.segments[-1].stop - 1

    def place(self, seq: int) -> int | None:
        """Return the index, among the rank's operations, of the one with that number; None if not recorded."""
        for segment in self.segments:
            if segment.start <= seq < segment.stop:
                place: int = _read_place(segment.places, 4 * (seq - segment.start))[0]
                return place
        return None


class OperationColumns(msgspec.Struct, frozen=True):
    """A rank's operations as columns of about 30 bytes each; iterating or indexing yields operations.

    A job calls the same few operations again and again. ``kinds``: each of them once, with everything that does not
    change from call to call. The other columns are in the machine's byte order: ``kind`` (4 bytes per operation),
    ``records``, ``seqs`` and ``created_ns`` (8 bytes, signed), ``states`` (one byte: 0 enqueued, 1 started, 3
    completed).
    """

    kinds: tuple[Operation, ...]
    kind: bytes
    records: bytes
    seqs: bytes
    created_ns: bytes
    states: bytes
    #: Named as bundles have it.
    histories: tuple[GroupHistory, ...] = msgspec.field(name="lanes")

    def __len__(self) -> int:
        """Return how many operations there are."""
        return len(self.states)

    def __getitem__(self, place: int) -> Operation:
        """Return one operation; negative places count from the end."""
        at = index(place)
        at += len(self) if at < 0 else 0
        if not 0 <= at < len(self):
            raise IndexError(place)
        record, seq = _read_number(self.records, 8 * at)[0], _read_number(self.seqs, 8 * at)[0]
        return _called(self.kind_at(at), record, seq, self.created_ns_at(at), self.states[at])

    def __iter__(self) -> Iterator[Operation]:
        """Yield all operations, in order."""
        kinds = self.kinds
        records, seqs, created = (memoryview(c).cast("q") for c in (self.records, self.seqs, self.created_ns))
        places = memoryview(self.kind).cast("I")
        for kind, record, seq, created_ns, state in zip(places, records, seqs, created, self.states, strict=True):
            yield _called(kinds[kind], record, seq, created_ns, state)

    def kind_at(self, place: int) -> Operation:
        """Return a call of the same kind as the one at a place (from 0).

        Its numbers and times are those of another call.
        """
        at: int = _read_place(self.kind, 4 * place)[0]
        return self.kinds[at]

    def created_ns_at(self, place: int) -> int:
        """Return when the operation at a place (from 0) was enqueued, in ns."""
        created_ns: int = _read_number(self.created_ns, 8 * place)[0]
        return created_ns

    def in_flight(self) -> tuple[Operation, ...]:
        """Return the operations that have not completed, without building the others."""
        states = self.states
        return tuple(self[at] for at in range(len(states)) if states[at] != 3) if states.strip(b"\3") else ()


def _called(kind: Operation, record_id: int, seq: int, created_ns: int, state: int) -> Operation:
    """Return one call of a kind of operation."""
    return msgspec.structs.replace(
        kind, record_id=record_id, seq=seq, completed=state == 3, created_ns=created_ns, started=state != 0
    )


#: A rank's operations in order of record id: one by one, or as columns for large jobs.
Operations = tuple[Operation, ...] | OperationColumns


def first_record_id(operations: Operations) -> int | None:
    """Return the record id of the oldest recorded operation; None if there is none."""
    if isinstance(operations, OperationColumns):
        return int(memoryview(operations.records).cast("q")[0]) if operations.records else None
    return operations[0].record_id if operations else None


def in_flight(operations: Operations) -> tuple[Operation, ...]:
    """Return the operations that have not completed."""
    return (
        operations.in_flight()
        if isinstance(operations, OperationColumns)
        else tuple(o for o in operations if not o.completed)
    )


class Completion(msgspec.Struct, frozen=True, array_like=True):
    """When a collective was found completed, by its group's key and its sequence number."""

    group: str
    seq: int
    at_ns: int


class Timed(msgspec.Struct, frozen=True):
    """Operations as they were launched, and the time of each on its device."""

    operations: Operations
    times: tuple[DeviceTime | None, ...]


class FlightRecord(msgspec.Struct, frozen=True):
    """What one rank's flight recorder holds: operations in order of record id (a ring: the oldest may be gone).

    - ``source``: ``pickle`` (with call sites), ``json`` (without the GIL, no call sites), ``status`` (the beat:
      progress only), ``file`` (a dump found on disk).
    - ``version``: the dump's own.
    - ``dropped``: how many entries could not be read.
    - ``whole``: a group that it lacks was never used; else the ring may have lost it.
    - ``newest_ns``: the latest time of any entry (enqueued, found started or found completed); None if not known.
    - ``completions``: in dumps, when the last collectives of all members were found completed.
    - ``timed``: in dumps, the same with times on the device; None if torch has timed none.
    """

    at_ns: int
    source: str
    version: str
    operations: Operations
    progress: tuple[GroupProgress, ...]
    dropped: int = 0
    whole: bool = True
    newest_ns: int | None = None
    completions: tuple[Completion, ...] = ()
    timed: Timed | None = None

    @property
    def blank(self) -> bool:
        """True if the rank has used no group: there are no operations, and completed ones were not left out either."""
        return not len(self.operations) and not any(one.enqueued for one in self.progress)
