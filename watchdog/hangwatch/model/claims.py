"""What an agent says to others of the groups that its processes share with processes which it does not see.

A group that ``new_group`` did not make is known by what its members claim (``sources.beats.worlds``). Where places in it are
claimed by nobody of a node, the node's agent publishes what it has, and reads what others have. MessagePack, every struct an
array; a field is only ever added at the end.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

CLAIMS_VERSION = 1
#: Larger than any that is written: ten bytes a place.
_LIMIT_BYTES = 1 << 20


class ClaimsError(ValueError):
    """Claims that cannot be used: of a newer format, or broken. The message is the reason."""


class World(NamedTuple):
    """A world: where its ranks met, and how many they are.

    A process without one is a world of its own, ``process`` (pid and start in ticks); with a ``size`` it has one of which the
    store cannot be told. ``node``: what only one machine gives a meaning, an address of its own or a pid, is of that one.
    """

    store: str
    size: int | None
    process: tuple[int, int] = (-1, -1)
    node: str = ""


class JobOfWorld(msgspec.Struct, frozen=True, array_like=True):
    """The job that a world is, for those whose processes join it: ``channel`` is where its agents meet, in an exchange at
    ``meeting`` (``HOST:PORT``)."""

    id: str
    channel: str
    meeting: str
    world_size: int | None = None
    launcher: str = "plain"
    command: str = ""
    role: str = ""


class ClaimedWorld(msgspec.Struct, frozen=True, array_like=True):
    """A world that has claims. ``launched``: a launcher started its ranks; ``whole``: all of them are seen by this agent;
    ``since``: the start of the first, in ticks of its machine. ``job`` is None until the agent knows it."""

    world: World
    launched: bool
    whole: bool
    since: int
    job: JobOfWorld | None = None


class PlaceClaim(msgspec.Struct, frozen=True, array_like=True):
    """A process of the world ``worlds[world]``, of ``rank`` there, says that it has a place in a group."""

    place: int
    world: int
    rank: int
    pid: int
    start_ticks: int


class ClaimedGroup(msgspec.Struct, frozen=True, array_like=True):
    """A group: its name, where its members met, how many they are, and who of an agent's processes they are."""

    name: str
    store: str
    size: int
    claims: tuple[PlaceClaim, ...]


class NodeClaims(msgspec.Struct, frozen=True, array_like=True):
    """All that one agent claims for its processes. ``count`` grows by one each time."""

    version: int
    count: int
    worlds: tuple[ClaimedWorld, ...]
    groups: tuple[ClaimedGroup, ...]


class ClaimsElsewhere(NamedTuple):
    """What another agent claims. ``fresh``: it was written just now; else that agent has gone without a word."""

    claims: NodeClaims
    fresh: bool


class OpenGroups(NamedTuple):
    """Groups in which not all places are claimed here, the worlds that have claims, a living process of each (-1: none)."""

    worlds: tuple[ClaimedWorld, ...] = ()
    groups: tuple[ClaimedGroup, ...] = ()
    processes: tuple[int, ...] = ()


class _Version(msgspec.Struct, array_like=True):
    version: int


_encoder = msgspec.msgpack.Encoder()
_versions = msgspec.msgpack.Decoder(_Version)
_decoder = msgspec.msgpack.Decoder(NodeClaims)


def encode_claims(claims: NodeClaims) -> bytes:
    """The claims as they are published."""
    return _encoder.encode(claims)


def parse_claims(data: bytes) -> NodeClaims:
    """What ``encode_claims`` wrote. Raises ``ClaimsError`` for one of a newer format, and for one that is broken."""
    if len(data) > _LIMIT_BYTES:
        raise ClaimsError(f"is broken: {len(data)} bytes are no claims")
    try:
        version = _versions.decode(data).version
        if version > CLAIMS_VERSION:
            raise ClaimsError(f"is in format {version}, and this version of hangwatch reads up to {CLAIMS_VERSION}")
        claims = _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ClaimsError(f"is broken: {error}") from error
    if any(not 0 <= claim.world < len(claims.worlds) for group in claims.groups for claim in group.claims):
        raise ClaimsError("is broken: it has a claim of a world that it does not name")
    return claims
