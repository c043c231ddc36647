"""What the lease holder asks and reports, and what the others answer: compressed MessagePack. Pure; may import the model."""

from __future__ import annotations

import zlib
from typing import Literal, TypeVar

import msgspec

from hangwatch.model.incident import Incident
from hangwatch.model.transforms.packing import Packed

WIRE_VERSION = 1
#: What one node may send: some ten times what its ranks ever had to tell.
_LIMIT_BYTES = 256 << 20
_T = TypeVar("_T")


QuestionKind = Literal["capture", "asked", "call_sites", "hardware"]


class WireError(ValueError):
    """A message that cannot be used; the message is the reason."""


class Question(msgspec.Struct, frozen=True, array_like=True):
    """What all nodes are asked for at once: a capture, the call sites of ``ranks`` (None: all), the hardware, or who is asked
    over ``connections`` (each as the asking process's end, and the other one).

    ``operations``: of each rank so many of its last operations, None: all. ``only``: these hardware sources, None: all.
    """

    id: str
    kind: QuestionKind
    ranks: tuple[int, ...] | None = None
    operations: int | None = None
    only: tuple[str, ...] | None = None
    connections: tuple[tuple[str, str], ...] = ()


class LeaseNotice(msgspec.Struct, frozen=True, array_like=True):
    """What the holder has put up: its last question, and which incident there is (``revision`` grows when it changes)."""

    version: int
    holder: str
    question: Question | None = None
    incident: str | None = None
    revision: int = 0


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """A node's capture, in answer to a question."""

    version: int
    question: str
    packed: Packed


class SharedRecord(msgspec.Struct, frozen=True, array_like=True):
    """The job's incident, without its ranks. ``announced``: the receivers have been notified. ``node`` has the whole bundle.

    ``complete``: nothing more is needed of the ranks for it, so that a job may be ended.
    ``onset_ns``: when it began, on the clock of ``node``.
    """

    version: int
    revision: int
    incident: Incident
    announced: bool
    node: str
    onset_ns: int
    complete: bool = False


def encode(message: LeaseNotice | Answer | SharedRecord) -> bytes:
    """A message as it is sent."""
    return zlib.compress(msgspec.msgpack.encode(message), 1)


def decode(data: bytes, shape: type[_T]) -> _T:
    """What ``encode`` made of a message of that type. Raises ``WireError`` for anything else, and for a newer version."""
    opened = zlib.decompressobj()
    try:
        plain = opened.decompress(data, _LIMIT_BYTES)
        if opened.unconsumed_tail:
            raise WireError(f"is larger than {_LIMIT_BYTES >> 20} MiB")
        version = msgspec.msgpack.decode(plain, type=_Version).version
        if version > WIRE_VERSION:
            raise WireError(f"is in format {version}, and this version of hangwatch reads up to {WIRE_VERSION}")
        return msgspec.msgpack.decode(plain, type=shape)
    except (zlib.error, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"is broken: {error}") from error


class _Version(msgspec.Struct, array_like=True):
    version: int
