"""What an agent tells others of groups that its processes share with processes it does not see.

A group that ``new_group`` did not make is known by its members' claims (``sources.beats.worlds``). If nobody on a
node claims some of its places, the node's agent publishes what it has, and reads what others have. MessagePack, every
struct an array; fields are only ever added at the end.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from hangwatch.model.transforms.published import PublishedError, parse_published

CLAIMS_VERSION = 1


class World(NamedTuple):
    """A world: where its ranks met, and how many they are.

    ``process``: pid and start in ticks of a process without a store, which is a world of its own; if it has a
    ``size``, it is in a world whose store is not known. ``node``: set if the address or the pid means something only
    on one machine.
    """

    store: str
    size: int | None
    process: tuple[int, int] = (-1, -1)
    node: str = ""


class JobOfWorld(msgspec.Struct, frozen=True, array_like=True):
    """The job of a world, for those who join it.

    ``channel``: where its agents meet, in an exchange at ``meeting`` (``HOST:PORT``).
    """

    id: str
    channel: str
    meeting: str
    world_size: int | None = None
    launcher: str = "plain"
    command: str = ""
    role: str = ""
    name: str = ""
    script: str = ""


class ClaimedWorld(msgspec.Struct, frozen=True, array_like=True):
    """A world that has claims.

    ``launched``: a launcher started its ranks. ``whole``: this agent sees all of them. ``since``: the start of the
    first, in ticks of its machine. ``job``: None until the agent knows it.
    """

    world: World
    launched: bool
    whole: bool
    since: int
    job: JobOfWorld | None = None


class PlaceClaim(msgspec.Struct, frozen=True, array_like=True):
    """A process's claim to a place in a group: the process is of the world ``worlds[world]``, with ``rank`` there."""

    place: int
    world: int
    rank: int
    pid: int
    start_ticks: int


class ClaimedGroup(msgspec.Struct, frozen=True, array_like=True):
    """A group: its name, where its members met, how many they are, and which of an agent's processes belong to it."""

    name: str
    store: str
    size: int
    claims: tuple[PlaceClaim, ...]


class NodeClaims(msgspec.Struct, frozen=True, array_like=True):
    """All claims of one agent for its processes. ``count`` grows by one each time."""

    version: int
    count: int
    worlds: tuple[ClaimedWorld, ...]
    groups: tuple[ClaimedGroup, ...]


class ClaimsElsewhere(NamedTuple):
    """The claims of another agent. ``fresh``: True if written just now; else the agent has stopped writing."""

    claims: NodeClaims
    fresh: bool


class OpenGroups(NamedTuple):
    """Groups with places that nobody here claims, the worlds that have claims, a living process of each (-1: none)."""

    worlds: tuple[ClaimedWorld, ...] = ()
    groups: tuple[ClaimedGroup, ...] = ()
    processes: tuple[int, ...] = ()


def encode_claims(claims: NodeClaims) -> bytes:
    """Return the claims as they are published."""
    return msgspec.msgpack.encode(claims)


def parse_claims(data: bytes) -> NodeClaims:
    """Return what ``encode_claims`` wrote. Raises ``PublishedError`` for a newer format, and for broken bytes."""
    claims = parse_published(data, NodeClaims, CLAIMS_VERSION)
    if any(not 0 <= claim.world < len(claims.worlds) for group in claims.groups for claim in group.claims):
        raise PublishedError("is broken: it names an unknown job")
    return claims
