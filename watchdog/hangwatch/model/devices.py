"""What a node says of the hardware under a job: its GPUs, its fabric ports, the kernel's log, NCCL's view of itself.

Every value is of one node and one moment. Hardware that does not exist (no InfiniBand card) is an ``Absence``, which
is knowledge; hardware that could not be read is a ``Gap`` of the capture.
"""

from __future__ import annotations

from typing import Literal

import msgspec

#: The sources of all this, by the names that gaps and evidence give them.
HARDWARE = ("kernel log", "nvml", "fabric ports", "nccl ras")


class Gpu(msgspec.Struct, frozen=True, omit_defaults=True):
    """One GPU as NVML shows it.

    - ``bus_id``: ``0000:3b:00``, as in the kernel log. ``utilization``: a share (0..1).
    - ``clock_mhz``: of its multiprocessors. ``slowed_by``: what holds its clocks down; ``idle`` if it has no work.
    - ``ranks``: the global ranks that use it.
    - ``links_down``: NVLinks that were up at the first reading. ``link_errors``: by how much their error counters
      have grown since. ``xids``: the Xid events that the driver has reported since.
    - ``lost``: NVML's own word for why it cannot be read.
    """

    index: int
    uuid: str = ""
    bus_id: str = ""
    name: str = ""
    utilization: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    clock_mhz: int | None = None
    slowed_by: tuple[str, ...] = ()
    links_down: tuple[int, ...] = ()
    link_errors: dict[str, int] = {}
    xids: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()
    lost: str | None = None


class KernelEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of the kernel's log that may explain why a rank ended or hangs.

    ``at_ns``: wall clock. ``xid``: a GPU's error (``code``, ``bus_id``); ``sxid``: an NVSwitch's; ``oom``: a process killed
    for memory. ``pid``: the process that the kernel names; ``rank``: its rank.
    """

    at_ns: int
    kind: Literal["xid", "sxid", "oom"]
    text: str
    code: int | None = None
    bus_id: str = ""
    pid: int | None = None
    process: str = ""
    rank: int | None = None


class Port(msgspec.Struct, frozen=True, omit_defaults=True):
    """One port of an InfiniBand or RoCE card.

    ``grown``: error counters that grew over ``window_s`` seconds, and by how much. ``state`` and ``physical_state``:
    the kernel's words (``ACTIVE``, ``LinkUp``); ``was_up``: it was up at the first reading.
    """

    device: str
    port: int
    state: str
    physical_state: str = ""
    rate: str = ""
    grown: dict[str, int] = {}
    window_s: float = 0.0
    was_up: bool = False


class CommunicatorRank(msgspec.Struct, frozen=True, omit_defaults=True):
    """One rank of an NCCL communicator.

    ``place``: its rank *in the communicator*; ``rank``: the global one, if known. ``counts``: operations *launched*
    (given to the GPU, not necessarily finished), by NCCL's names for five types; sends and receives are not counted.
    ``state``: init, running, finalize, abort; for a rank that did not answer: unresponsive, dead (so considered by
    NCCL after a minute), gone (its process answered, and has no such communicator).
    """

    place: int
    host: str
    pid: int
    state: str
    error: str = ""
    counts: dict[str, int] = {}
    rank: int | None = None


class Communicator(msgspec.Struct, frozen=True, omit_defaults=True):
    """An NCCL communicator.

    ``id``: its hash; ``size``: how many ranks it has. ``launching``: the places of the ranks that launched an
    operation between two reports, ``window_s`` seconds apart (0: there was only one report).
    """

    id: str
    size: int
    ranks: tuple[CommunicatorRank, ...] = ()
    launching: tuple[int, ...] = ()
    window_s: float = 0.0


class RasProblem(msgspec.Struct, frozen=True, omit_defaults=True):
    """What NCCL itself reports as wrong: ``dead``, ``incomplete``, ``error``, ``mismatch`` or ``timeout``.

    ``says``: in words. ``processes``: (host, pid) of those concerned; ``ranks``: the global ranks among them, if
    known.
    """

    kind: str
    says: str
    processes: tuple[tuple[str, int], ...] = ()
    ranks: tuple[int, ...] = ()


class RasReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """NCCL's RAS subsystem, asked at ``address``. ``communicators``: empty if only its text form was available."""

    address: str
    nccl_version: str = ""
    communicators: tuple[Communicator, ...] = ()
    problems: tuple[RasProblem, ...] = ()


class Absence(msgspec.Struct, frozen=True):
    """Hardware that this node does not have, so that it cannot be at fault: ``no InfiniBand or RoCE device``."""

    source: str
    says: str


class NodeFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """All hardware facts of one node.

    ``looked``: the sources that answered, even if they had nothing to report; named so in stored bundles.
    """

    node: str
    at_ns: int
    gpus: tuple[Gpu, ...] = ()
    events: tuple[KernelEvent, ...] = ()
    ports: tuple[Port, ...] = ()
    ras: tuple[RasReport, ...] = ()
    absent: tuple[Absence, ...] = ()
    looked: tuple[str, ...] = ()
