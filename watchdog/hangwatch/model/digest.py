"""The digest: what a node reports to the others of its ranks of one job, each second, in about a hundred bytes a rank.

MessagePack, every struct an array (names would be most of it); a field is only ever added at the end. No time of day is compared
between nodes: ages are in seconds, and how old a digest is, its reader has observed. Lists of members are left out, a
group's key stands for them.
"""

from __future__ import annotations

import msgspec

from hangwatch.model.capture import RankIdentity

DIGEST_VERSION = 1
#: Larger than any that is written; what is larger is not read.
_LIMIT_BYTES = 1 << 20


class DigestError(ValueError):
    """A digest that cannot be used: of a newer format, or broken. The message is the reason."""


class DigestGroup(msgspec.Struct, frozen=True, array_like=True):
    """A process group, once for all ranks of the node: ``Group.key``, and its name for people."""

    key: str
    label: str


class DigestProgress(msgspec.Struct, frozen=True, array_like=True):
    """How far a rank is in ``groups[group]``. ``unmoved_s``: for how long what is in flight has been so, 0 where nothing is."""

    group: int
    enqueued: int
    completed: int
    unmoved_s: float = 0.0


class DigestRank(msgspec.Struct, frozen=True, array_like=True):
    """One rank. ``age_s``: for how long its process has been there. ``state``: running, in_flight, unprobed, alone or lost.

    ``motion`` and ``stack`` (8 bytes, equal for equal main-thread stacks) are of the last capture, empty before the first;
    ``in_op`` is the operation that its oldest pending one was then, ``all_gather``. ``supervised``: it is lost, and who may start
    it anew lives. ``world`` and ``world_rank`` are of a process of another world than the job's own (``RankIdentity``).
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


class Digest(msgspec.Struct, frozen=True, array_like=True):
    """One node's ranks of one job.

    ``node`` is its name for people, ``agent`` names the process that wrote this, ``count`` grows by one each time. ``address``
    is where the node is reached, empty where not known. ``replaced_age_s``: how long ago the
    processes ended that were the job's here before these, None: there were none. ``leaving``: the agent ends, this is its
    last word. ``at_ns`` is the node's own wall clock.
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

    def identity(self, rank: DigestRank, now_ns: int) -> RankIdentity:
        """Who a rank is; its start is on the clock that ``now_ns`` is of, to the second or so."""
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


class _Version(msgspec.Struct, array_like=True):
    version: int


_encoder = msgspec.msgpack.Encoder()
_versions = msgspec.msgpack.Decoder(_Version)
_decoder = msgspec.msgpack.Decoder(Digest)


def encode_digest(digest: Digest) -> bytes:
    """The digest as it is published."""
    return _encoder.encode(digest)


def parse_digest(data: bytes) -> Digest:
    """What ``encode_digest`` wrote. Raises ``DigestError`` for one of a newer format, and for one that is broken."""
    if len(data) > _LIMIT_BYTES:
        raise DigestError(f"is broken: {len(data)} bytes are no digest")
    try:
        version = _versions.decode(data).version
        if version > DIGEST_VERSION:
            raise DigestError(f"is in format {version}, and this version of hangwatch reads up to {DIGEST_VERSION}")
        digest = _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DigestError(f"is broken: {error}") from error
    if any(not 0 <= p.group < len(digest.groups) for rank in digest.ranks for p in rank.groups):
        raise DigestError("is broken: it has progress in a group that it does not name")
    return digest
