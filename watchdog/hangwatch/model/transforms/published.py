"""What agents of a job publish to each other: MessagePack, every struct an array that begins with its format. Pure."""

from __future__ import annotations

from typing import TypeVar

import msgspec

#: More than any node with its ranks or groups ever writes.
_LIMIT_BYTES = 1 << 20
_T = TypeVar("_T")


class PublishedError(ValueError):
    """Published bytes that cannot be used: of a newer format, or broken. The message is the reason."""


class _Version(msgspec.Struct, array_like=True):
    version: int


def parse_published(data: bytes, shape: type[_T], version: int, limit_bytes: int = _LIMIT_BYTES) -> _T:
    """Return the struct of type ``shape`` that ``msgspec.msgpack.encode`` wrote, in any format up to ``version``.

    Raises ``PublishedError`` for a newer format, for broken bytes, and for more than ``limit_bytes``.
    """
    if len(data) > limit_bytes:
        raise PublishedError(f"is broken: {len(data)} bytes are too many")
    try:
        found = msgspec.msgpack.decode(data, type=_Version).version
        if found > version:
            raise PublishedError(f"is in format {found}, but this version of hangwatch reads up to {version}")
        return msgspec.msgpack.decode(data, type=shape)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise PublishedError(f"is broken: {error}") from error
