"""Process groups, the operations recorded in them, and how far a rank has come in each."""

from __future__ import annotations

import msgspec

from hangwatch.model.stacks import Frame


def label_group(name: str, description: str) -> str:
    """A group's description, or its number where nobody gave it one (torch writes ``undefined`` then)."""
    return description if description and description != "undefined" else f"group {name}"


class Group(msgspec.Struct, frozen=True, order=True):
    """A process group as it is the same for all its members: torch's name for it and its *global* ranks.

    The name alone is not enough: names come from a counter in each process, so rank 0's "1" and rank 2's "1" may be
    different groups. ``ranks`` is empty where membership is not known.
    """

    name: str
    ranks: tuple[int, ...] = ()
    description: str = msgspec.field(default="")

    @property
    def key(self) -> tuple[str, tuple[int, ...]]:
        """What makes two ranks' groups the same group."""
        return (self.name, self.ranks)

    @property
    def label(self) -> str:
        """The name for people: ``default_pg``, ``dp``, or ``group 3`` where nobody gave one."""
        return label_group(self.name, self.description)


class Operation(msgspec.Struct, frozen=True, omit_defaults=True):
    """One collective or point-to-point operation of one rank, as the flight recorder has it.

    ``op`` is the name without its backend (``all_gather``); ``seq`` is the group's sequence number (collectives and
    point-to-point operations are numbered apart: ``p2p`` says which). ``completed`` is already made comparable between
    backends (Gloo: retired; NCCL: state completed or retired). ``peer`` is the *global* rank of the other side for
    point-to-point. Sizes are shapes, dtypes torch's scalar type names (``Float``). ``frames`` is the call site, deepest
    first, None where only the JSON form could be had.
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


class GroupProgress(msgspec.Struct, frozen=True):
    """How far one rank is in one group: last sequence numbers (0: none yet; ``started`` -1 where not recorded).

    ``mixed``: these are not the numbers of collectives alone, so they must not be compared with a collective's. NCCL's are
    those of the last operation, point-to-point or not; a group served by two backends has two progresses.
    """

    group: Group
    enqueued: int
    started: int
    completed: int
    mixed: bool = False


class FlightRecord(msgspec.Struct, frozen=True):
    """What one rank's flight recorder holds: operations in order of record id (a ring: the oldest may be gone).

    ``source`` says how it was had: ``pickle`` (with call sites), ``json`` (without the GIL, no call sites), ``status``
    (the beat: progress only), ``file`` (a dump found on disk). ``version`` is the dump's own. ``dropped`` counts entries
    that could not be read.
    """

    at_ns: int
    source: str
    version: str
    operations: tuple[Operation, ...]
    progress: tuple[GroupProgress, ...]
    dropped: int = 0
