"""The exchange: what agents of one job ask of the place they share. May import the model and the standard library.

A *channel* is one incarnation of one job: what is kept under it is never seen by another. Values are bytes that the exchange does
not look into. No time of day passes through it, so clocks that differ do no harm: an expiry is counted where it is kept, or by
whoever reads.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from hangwatch.model.errors import PlainError


class ExchangeError(PlainError):
    """The exchange cannot be used now, or was named wrongly: one line with the reason, and the repair where there is one."""


class Exchange(Protocol):
    """Shared by the agents of a job. Every method may raise ``ExchangeError``, and none waits for longer than a few seconds."""

    @property
    def endpoint(self) -> tuple[str, int] | None:
        """Host and port of it, None where it is in this process: the way to it shows by which address this node is known."""
        ...

    async def publish(self, channel: str, node: str, digest: bytes, expiry_s: float) -> None:
        """Make this node's digest known, instead of the one before; it is forgotten ``expiry_s`` after its last change."""
        ...

    async def read(self, channel: str) -> Mapping[str, bytes]:
        """The digests of all nodes, by node."""
        ...

    async def hold(self, channel: str, holder: str, expiry_s: float) -> bool:
        """Take the lease, or keep it: whether ``holder`` has it now. It is free ``expiry_s`` after it was kept last."""
        ...

    async def release(self, channel: str, holder: str) -> None:
        """Give the lease up at once, if ``holder`` has it."""
        ...

    async def post(self, channel: str, notice: bytes, expiry_s: float) -> None:
        """Put up the lease holder's notice, instead of the one before, and wake those who await one."""
        ...

    async def notice(self, channel: str) -> bytes | None:
        """The notice that is up; None where there is none."""
        ...

    async def await_notice(self, channel: str) -> None:
        """Return when a notice may have been put up since this was called, or after a while in any case."""
        ...

    async def put(self, channel: str, name: str, data: bytes, expiry_s: float) -> None:
        """Leave something larger (a capture) for others to get, under a name."""
        ...

    async def get(self, channel: str, names: Collection[str]) -> Mapping[str, bytes]:
        """What was left under these names, as far as it is there."""
        ...

    async def close(self) -> None:
        """Let go of it. Never raises."""
        ...


def hide_password(url: str) -> str:
    """An address without who and what may be in it: user, password, options."""
    scheme, separator, rest = url.partition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2].partition('?')[0]}"
