"""What the lease holder asks and reports, and what the others answer: compressed MessagePack.

Pure; may import the model and ``slow``.
"""

from __future__ import annotations

import zlib
from typing import Literal, TypeVar

import msgspec

from hangwatch.model.incident import Incident
from hangwatch.model.slowness import Profile
from hangwatch.model.transforms.packing import Packed
from hangwatch.model.transforms.published import PublishedError, parse_published
from hangwatch.slow.sampling import SentCalls

WIRE_VERSION = 1
#: The most that one node may send: some ten times what was ever needed.
_LIMIT_BYTES = 256 << 20
_T = TypeVar("_T")


QuestionKind = Literal["capture", "asked", "call_sites", "hardware", "calls", "profile"]
#: These are asked while a job goes on, again and again: agents do not publish and read more often for them.
UNHURRIED = frozenset({"calls", "profile"})


class Question(msgspec.Struct, frozen=True, array_like=True):
    """What all nodes are asked for at once.

    A capture, the call sites of ``ranks`` (None: all), the hardware, which process has the other end of
    ``connections`` (each as the asking process's end, and the other one), when ``ranks`` joined their operations, or
    where they spend the next ``seconds``. ``operations``: how many of each rank's last operations, None: all.
    ``only``: these hardware sources, None: all.
    """

    id: str
    kind: QuestionKind
    ranks: tuple[int, ...] | None = None
    operations: int | None = None
    only: tuple[str, ...] | None = None
    connections: tuple[tuple[str, str], ...] = ()
    seconds: float = 0.0


class LeaseNotice(msgspec.Struct, frozen=True, array_like=True):
    """What the holder posted: its last question, and the current incident (``revision`` grows with each change)."""

    version: int
    holder: str
    question: Question | None = None
    incident: str | None = None
    revision: int = 0


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """What a node answers to a question: a capture, or what is known of ranks that may be late."""

    version: int
    question: str
    packed: Packed | None = None
    calls: tuple[SentCalls, ...] = ()
    profiles: tuple[Profile, ...] = ()


class SharedRecord(msgspec.Struct, frozen=True, array_like=True):
    """The job's incident, without its ranks.

    ``announced``: the receivers have been notified. ``node``: has the whole bundle. ``complete``: the bundle needs
    nothing more of the ranks, so the job may be ended. ``onset_ns``: when it began, on the clock of ``node``.
    ``agents``: those that its writer knows of, by ``Digest.agent``: to them it is news, and nothing that was put back.
    """

    version: int
    revision: int
    incident: Incident
    announced: bool
    node: str
    onset_ns: int
    complete: bool = False
    agents: tuple[str, ...] = ()


def encode(message: LeaseNotice | Answer | SharedRecord) -> bytes:
    """Return a message as it is sent."""
    return zlib.compress(msgspec.msgpack.encode(message), 1)


def decode(data: bytes, shape: type[_T]) -> _T:
    """Return what ``encode`` made of a message of that type. Raises ``PublishedError`` for anything else, or a newer version."""
    opened = zlib.decompressobj()
    try:
        plain = opened.decompress(data, _LIMIT_BYTES)
    except zlib.error as error:
        raise PublishedError(f"is broken: {error}") from error
    if opened.unconsumed_tail:
        raise PublishedError(f"is larger than {_LIMIT_BYTES >> 20} MiB")
    return parse_published(plain, shape, WIRE_VERSION, _LIMIT_BYTES)
