"""The digest: what a node tells the others of its ranks of one job, each second, in about a hundred bytes per rank.

MessagePack, every struct an array (names would be most of it); fields are only ever added at the end. Times of day
are never compared between nodes: ages are in seconds, and a reader observes itself how old a digest is. Lists of
members are left out; a group's key stands for them.
"""

from __future__ import annotations

import msgspec

from hangwatch.model.capture import RankIdentity
from hangwatch.model.slowness import Traffic
from hangwatch.model.transforms.published import PublishedError, parse_published

DIGEST_VERSION = 1


class DigestGroup(msgspec.Struct, frozen=True, array_like=True):
    """A process group, once for all ranks of the node: ``Group.key``, and its name for people."""

    key: str
    label: str


class DigestProgress(msgspec.Struct, frozen=True, array_like=True):
    """How far a rank is in ``groups[group]``.

    ``unmoved_s``: how long the operation in flight has been so; 0 if there is none.
    """

    group: int
    enqueued: int
    completed: int
    unmoved_s: float = 0.0


class DigestRank(msgspec.Struct, frozen=True, array_like=True):
    """One rank.

    - ``age_s``: how long its process has existed.
    - ``state``: running, in_flight, unprobed, alone or lost.
    - ``motion``, ``stack``, ``in_op``: empty. Older versions filled them and nothing read them; they keep their places.
    - ``supervised``: it is lost, and a living process may restart it.
    - ``world``, ``world_rank``: of a process of another world than the job's own (``RankIdentity``).
    - ``waited``: for which share of the newest steps its device was in operations; None if not known.
    """

    rank: int
    pid: int
    age_s: float
    state: str
    groups: tuple[DigestProgress, ...] = ()
    local_rank: int | None = None
    restart: int = 0
    motion: str = ""
    stack: bytes = b""
    in_op: str = ""
    beat_age_s: float | None = None
    supervised: bool = False
    world: str = ""
    world_rank: int | None = None
    waited: float | None = None


class Digest(msgspec.Struct, frozen=True, array_like=True):
    """One node's ranks of one job.

    - ``node``: its name for people. ``agent``: the process that wrote this. ``count``: grows by one each time.
    - ``address``: where the node is reached; empty if not known.
    - ``replaced_age_s``: how long ago the processes ended that were the job's here before these; None if there were
      none.
    - ``leaving``: the agent ends, and this is its last digest.
    - ``at_ns``: the node's own wall clock.
    - ``links``: the busiest, to other nodes.
    """

    version: int
    node: str
    agent: str
    count: int
    at_ns: int
    address: str
    world_size: int | None
    ranks: tuple[DigestRank, ...]
    groups: tuple[DigestGroup, ...]
    replaced_age_s: float | None = None
    leaving: bool = False
    links: tuple[Traffic, ...] = ()

    def identity(self, rank: DigestRank, now_ns: int) -> RankIdentity:
        """Return the identity of a rank.

        Its start time is by the clock that ``now_ns`` is of, accurate to a second or so.
        """
        return RankIdentity(
            rank.rank,
            rank.pid,
            now_ns / 1e9 - rank.age_s,
            self.node,
            rank.local_rank,
            rank.restart,
            world=rank.world,
            world_rank=rank.world_rank,
        )


def encode_digest(digest: Digest) -> bytes:
    """Return the digest as it is published."""
    return msgspec.msgpack.encode(digest)


def parse_digest(data: bytes) -> Digest:
    """Return what ``encode_digest`` wrote. Raises ``PublishedError`` for a newer format, and for broken bytes."""
    digest = parse_published(data, Digest, DIGEST_VERSION)
    if any(not 0 <= p.group < len(digest.groups) for rank in digest.ranks for p in rank.groups):
        raise PublishedError("is broken: it has progress in an unknown group")
    return digest
