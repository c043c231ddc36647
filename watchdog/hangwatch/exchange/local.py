"""The in-process exchange. May import the protocol and the standard library."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

#: Maximum duration of one wait for a notice.
_AWAIT_S = 5.0


@dataclass
class LocalExchange:
    """Values in a dictionary, each with an expiry on this process's clock."""

    endpoint = None
    authenticated = True  # only this process can write there
    clock: Callable[[], float] = time.monotonic
    _kept: dict[tuple[str, str, str], tuple[bytes, float]] = field(default_factory=dict)
    _posted: dict[str, asyncio.Event] = field(default_factory=dict)

    async def publish(self, channel: str, node: str, digest: bytes, expiry_s: float) -> None:
        self._keep("digest", channel, node, digest, expiry_s)

    async def read(self, channel: str) -> Mapping[str, bytes]:
        now_s = self.clock()
        for place in [place for place, (_, end_s) in self._kept.items() if end_s <= now_s]:
            del self._kept[place]
        return {name: data for (kind, of, name), (data, _) in self._kept.items() if kind == "digest" and of == channel}

    async def hold(self, channel: str, holder: str, expiry_s: float) -> bool:
        if self._find("lease", channel, "") not in {None, holder.encode()}:
            return False
        self._keep("lease", channel, "", holder.encode(), expiry_s)
        return True

    async def release(self, channel: str, holder: str) -> None:
        if self._find("lease", channel, "") == holder.encode():
            del self._kept["lease", channel, ""]

    async def post(self, channel: str, notice: bytes, expiry_s: float) -> None:
        self._keep("notice", channel, "", notice, expiry_s)
        self._posted.pop(channel, asyncio.Event()).set()

    async def notice(self, channel: str) -> bytes | None:
        return self._find("notice", channel, "")

    async def await_notice(self, channel: str) -> None:
        posted = self._posted.setdefault(channel, asyncio.Event())
        await asyncio.wait([task := asyncio.ensure_future(posted.wait())], timeout=_AWAIT_S)
        task.cancel()

    async def put(self, channel: str, name: str, data: bytes, expiry_s: float) -> None:
        self._keep("blob", channel, name, data, expiry_s)

    async def get(self, channel: str, names: Collection[str]) -> Mapping[str, bytes]:
        found = {name: self._find("blob", channel, name) for name in names}
        return {name: data for name, data in found.items() if data is not None}

    async def close(self) -> None:
        """Do nothing: others in this process continue to use it."""

    def _keep(self, kind: str, channel: str, name: str, data: bytes, expiry_s: float) -> None:
        self._kept[kind, channel, name] = (data, self.clock() + expiry_s)

    def _find(self, kind: str, channel: str, name: str) -> bytes | None:
        data, end_s = self._kept.get((kind, channel, name), (b"", 0.0))
        return data if end_s > self.clock() else None
