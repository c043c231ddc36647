"""What a node says of the hardware under a job: its GPUs, its fabric ports, the kernel's log, NCCL's own view of itself.

Every value is of one node and one moment. Something that is not there at all (no InfiniBand card) is an ``Absence``, which
is knowledge; something that could not be read is a ``Gap`` of the capture.
"""

from __future__ import annotations

from typing import Literal

import msgspec

#: The sources of all this, by the names that gaps and evidence give them.
HARDWARE = ("kernel log", "nvml", "fabric ports", "nccl ras")


class Gpu(msgspec.Struct, frozen=True, omit_defaults=True):
    """One GPU as NVML has it. ``bus_id`` is ``0000:3b:00``, as the kernel log writes it; ``utilization`` a share (0..1).

    ``ranks`` are the global ranks that use it; ``mapped_by`` says how that is known: ``pid`` (the driver lists the process),
    or ``environment`` (CUDA_VISIBLE_DEVICES and the local rank: what it should be). ``links_down`` are NVLinks that were up
    at the first reading; ``link_errors`` what their error counters have grown by since, ``xids`` the Xid events the driver has
    reported since. ``lost`` is NVML's own word for why it cannot be read.
    """

    index: int
    uuid: str = ""
    bus_id: str = ""
    name: str = ""
    utilization: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    links_down: tuple[int, ...] = ()
    link_errors: dict[str, int] = {}
    xids: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()
    mapped_by: str = ""
    lost: str | None = None


class KernelEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of the kernel's log that may end or hang a rank. ``at_ns``: wall clock.

    ``xid``: a GPU's error (``code``, ``bus_id``); ``sxid``: an NVSwitch's; ``oom``: a process killed for memory, ``cgroup``
    the one whose limit it was (empty: the machine's). ``pid`` is the process the kernel names, ``rank`` the rank it is.
    """

    at_ns: int
    kind: Literal["xid", "sxid", "oom"]
    text: str
    code: int | None = None
    bus_id: str = ""
    pid: int | None = None
    process: str = ""
    cgroup: str = ""
    rank: int | None = None


class Port(msgspec.Struct, frozen=True, omit_defaults=True):
    """One port of an InfiniBand or RoCE card. ``grown``: error counters that grew over ``window_s`` seconds, and by how much.

    ``state`` and ``physical_state`` are the kernel's words (``ACTIVE``, ``LinkUp``); ``was_up``: it was so at the first reading.
    ``moved_bytes`` is what went through it in the window, both ways.
    """

    device: str
    port: int
    state: str
    physical_state: str = ""
    link_layer: str = ""
    rate: str = ""
    grown: dict[str, int] = {}
    moved_bytes: int | None = None
    window_s: float = 0.0
    was_up: bool = False


class CommunicatorRank(msgspec.Struct, frozen=True, omit_defaults=True):
    """One rank of an NCCL communicator. ``place`` is its rank *in the communicator*; ``rank`` the global one, where known.

    ``counts`` are operations *launched* (given to the GPU, not finished by it), by NCCL's names for five types; sends and
    receives are not counted. ``state`` is init, running, finalize, abort, or for one that did not answer: unresponsive,
    dead (so considered by NCCL after a minute), gone (its process answered, and has no such communicator).
    """

    place: int
    host: str
    pid: int
    state: str
    error: str = ""
    gpu_index: int | None = None
    counts: dict[str, int] = {}
    rank: int | None = None


class Communicator(msgspec.Struct, frozen=True, omit_defaults=True):
    """An NCCL communicator. ``id`` is its hash; ``size`` how many ranks it has.

    ``launching`` are the places of the ranks that launched an operation between two reports, ``window_s`` apart (0: there was
    one report only).
    """

    id: str
    size: int
    ranks: tuple[CommunicatorRank, ...] = ()
    launching: tuple[int, ...] = ()
    window_s: float = 0.0


class RasProblem(msgspec.Struct, frozen=True, omit_defaults=True):
    """What NCCL itself calls wrong: ``dead``, ``incomplete``, ``error``, ``mismatch`` or ``timeout``; ``says`` in words.

    ``processes``: (host, pid) of those concerned; ``ranks`` the global ones among them, where known.
    """

    kind: str
    says: str
    communicator: str = ""
    processes: tuple[tuple[str, int], ...] = ()
    ranks: tuple[int, ...] = ()


class RasReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """NCCL's RAS subsystem, asked at ``address``. ``communicators`` is empty where only its text form could be had."""

    address: str
    nccl_version: str = ""
    communicators: tuple[Communicator, ...] = ()
    problems: tuple[RasProblem, ...] = ()


class Absence(msgspec.Struct, frozen=True):
    """Something this node does not have, so that it cannot be at fault: ``no InfiniBand or RoCE device``."""

    source: str
    says: str


class NodeFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """All of it, of one node.

    ``looked`` names the sources that answered, also where they had nothing to report; it is called so in stored bundles.
    """

    node: str
    at_ns: int
    gpus: tuple[Gpu, ...] = ()
    events: tuple[KernelEvent, ...] = ()
    ports: tuple[Port, ...] = ()
    ras: tuple[RasReport, ...] = ()
    absent: tuple[Absence, ...] = ()
    looked: tuple[str, ...] = ()
