"""What makes a job slow that goes on: a rank, a link, or something that all ranks meet; and where the time goes."""

from __future__ import annotations

import msgspec

from hangwatch.model.devices import Gpu
from hangwatch.model.incident import Lateness
from hangwatch.model.stacks import Frame

#: How often a second a stack is looked at.
PROFILE_RATE_HZ = 50


class ProfiledStack(msgspec.Struct, frozen=True):
    """A stack of the main thread, deepest first, and the share of the time that it was seen, 0 to 1."""

    frames: tuple[Frame, ...]
    share: float


class Profile(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where the main thread of a rank was, in ``samples`` looks at its stack.

    Shares of the time, None if not known: ``reading`` (in a system call that reads a file, a pipe or a connection),
    ``sleeping`` (in one that only lets time pass), ``locked`` (in ``futex``: it waited for another thread, or in an operation),
    ``running`` (on a core), ``queued`` (it waited for a free core), ``throttled`` (its cgroup had used up its CPU time).
    ``fetching``: the share in which its DataLoader's workers loaded something, on average; None if it has none.
    """

    rank: int
    samples: int
    stacks: tuple[ProfiledStack, ...]
    reading: float | None = None
    sleeping: float | None = None
    locked: float | None = None
    running: float | None = None
    queued: float | None = None
    throttled: float | None = None
    fetching: float | None = None


class SlowRank(msgspec.Struct, frozen=True, omit_defaults=True, tag="rank"):
    """A rank makes the others late: the one that ``lateness`` names. ``onset_ns`` (wall clock): when its first late step began.

    ``profiles``: of this rank, and of one that is as fast as most; empty if not seen. ``gpus``: of both, if known.
    """

    lateness: Lateness
    onset_ns: int
    profiles: tuple[Profile, ...] = ()
    gpus: tuple[Gpu, ...] = ()

    @property
    def lost(self) -> float:
        """The share of the time that the job loses."""
        return self.lateness.lost


class SlowJob(msgspec.Struct, frozen=True, omit_defaults=True, tag="job"):
    """The job's steps take ``step_s``; they took ``before_s``. ``onset_ns`` (wall clock): when the change was first seen.

    ``operations``: what these steps have in common. ``profiles``: of one rank, now and before; ``gpus``: its GPU now and before,
    if known.
    """

    step_s: float
    before_s: float
    onset_ns: int
    operations: tuple[str, ...]
    profiles: tuple[Profile, ...]
    gpus: tuple[Gpu, ...] = ()

    @property
    def lost(self) -> float:
        """The share of the time that the job loses."""
        return 1 - self.before_s / self.step_s


class Traffic(msgspec.Struct, frozen=True, array_like=True):
    """What the ranks of a node send to one address.

    ``busy``: the share of the time in which data waited for the network, of the connection where it is largest. ``sent``:
    bytes a second; ``rate``: as many on that connection while there was enough to send; ``repeated``: bytes a second that had to
    be sent again.
    """

    local: str
    remote: str
    busy: float
    sent: int
    rate: int
    repeated: int


class SlowLink(msgspec.Struct, frozen=True, tag="link"):
    """Links on which data waits for the network: all those of one node, or the one between two.

    ``busy``: for which share of the time at least; ``others``: at most on the other links that carry as much. ``repeated``: the
    share of the data that has to be sent again, where it is largest.
    """

    nodes: tuple[str, ...]
    busy: float
    others: float
    repeated: float = 0.0


#: What makes a job slow that goes on.
Slow = SlowRank | SlowLink | SlowJob
