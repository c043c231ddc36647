"""An exchange in which values count only if their writer has a secret. May import the protocol and the standard library.

Each value is an HMAC-SHA256 (RFC 2104), a counter, and the content; the HMAC covers the place of the value too, so that a value
means nothing at another place. Nothing is encrypted. The lease is not sealed: to take it says nothing about the job.
"""

from __future__ import annotations

import hmac
import itertools
import struct
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from hangwatch.exchange.protocol import Exchange

REMEDY = "set HANGWATCH_SECRET to one secret on all nodes"
#: How a value begins, so that an agent without a secret can tell what it reads.
_MARK = b"hangwatch-sealed1"
#: Stands for a value that was not written with this secret.
REFUSED = b""
_TAG_BYTES = 32
_COUNTER = struct.Struct(">Q")


def is_sealed_otherwise(data: bytes) -> bool:
    """True if a value that was read is of an agent with another secret than this one's: one of them may have none."""
    return data == REFUSED or data.startswith(_MARK)


@dataclass
class SealedExchange:
    """The exchange ``inner``, for agents that have ``secret``."""

    authenticated = True
    inner: Exchange
    secret: bytes = field(repr=False)
    _counts: itertools.count[int] = field(default_factory=lambda: itertools.count(time.time_ns()))
    _newest: dict[str, int] = field(default_factory=dict)

    @property
    def endpoint(self) -> tuple[str, int] | None:
        return self.inner.endpoint

    async def publish(self, channel: str, node: str, digest: bytes, expiry_s: float) -> None:
        await self.inner.publish(channel, node, self._seal(f"{channel}\0digest\0{node}", digest), expiry_s)

    async def read(self, channel: str) -> Mapping[str, bytes]:
        """Return the digests; ``REFUSED`` for what has another secret. One that is older than one read before is omitted."""
        found: dict[str, bytes] = {}
        for node, value in (await self.inner.read(channel)).items():
            place = f"{channel}\0digest\0{node}"
            opened = self._open(place, value)
            if opened is None:
                found[node] = REFUSED
            elif opened[0] >= self._newest.get(place, 0):  # else somebody has put an old one back
                self._newest[place], found[node] = opened
        return found

    async def hold(self, channel: str, holder: str, expiry_s: float) -> bool:
        return await self.inner.hold(channel, holder, expiry_s)

    async def release(self, channel: str, holder: str) -> None:
        await self.inner.release(channel, holder)

    async def post(self, channel: str, notice: bytes, expiry_s: float) -> None:
        await self.inner.post(channel, self._seal(f"{channel}\0notice\0", notice), expiry_s)

    async def notice(self, channel: str) -> bytes | None:
        """Return the notice; ``REFUSED`` for what has another secret."""
        value = await self.inner.notice(channel)
        if value is None:
            return None
        opened = self._open(f"{channel}\0notice\0", value)
        return REFUSED if opened is None else opened[1]

    async def await_notice(self, channel: str) -> None:
        await self.inner.await_notice(channel)

    async def put(self, channel: str, name: str, data: bytes, expiry_s: float) -> None:
        await self.inner.put(channel, name, self._seal(f"{channel}\0blob\0{name}", data), expiry_s)

    async def get(self, channel: str, names: Collection[str]) -> Mapping[str, bytes]:
        """Return the values; what has another secret is missing."""
        found = (await self.inner.get(channel, names)).items()
        opened = {name: self._open(f"{channel}\0blob\0{name}", value) for name, value in found}
        return {name: one[1] for name, one in opened.items() if one is not None}

    async def close(self) -> None:
        await self.inner.close()

    def _tag(self, place: str, rest: bytes) -> bytes:
        # Only the last part of a place is chosen by others, so a place is read in one way.
        where = place.encode("utf-8", "backslashreplace")
        return hmac.digest(self.secret, _MARK + struct.pack(">Q", len(where)) + where + rest, "sha256")

    def _seal(self, place: str, data: bytes) -> bytes:
        rest = _COUNTER.pack(next(self._counts)) + data
        return _MARK + self._tag(place, rest) + rest

    def _open(self, place: str, value: bytes) -> tuple[int, bytes] | None:
        """Return the counter and the content; None if the value was not written here with this secret."""
        start = len(_MARK) + _TAG_BYTES
        tag, rest = value[len(_MARK) : start], value[start:]
        if len(rest) < _COUNTER.size or not hmac.compare_digest(tag, self._tag(place, rest)):
            return None
        return _COUNTER.unpack_from(rest)[0], rest[_COUNTER.size :]
