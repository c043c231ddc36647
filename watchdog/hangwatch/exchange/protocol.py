"""The exchange: the protocol for the shared state of the agents of one job. May import the model and the standard library.

A *channel* belongs to one incarnation of one job; channels are isolated from each other. Values are opaque bytes. No wall-clock
times are exchanged, so clocks may differ: expiry is measured by the backend or by the reader.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from hangwatch.model.errors import PlainError


class ExchangeError(PlainError):
    """The exchange is unreachable or its option is invalid: one line with the reason, and the repair if there is one."""


class Exchange(Protocol):
    """Shared by the agents of a job. Every method may raise ``ExchangeError``; none blocks for more than a few seconds."""

    @property
    def endpoint(self) -> tuple[str, int] | None:
        """Host and port; None if it exists only in this process. The route there determines this node's own address."""

    @property
    def authenticated(self) -> bool:
        """True if only those can write there who have a secret or a password of the user's."""

    async def publish(self, channel: str, node: str, digest: bytes, expiry_s: float) -> None:
        """Replace this node's digest; it expires ``expiry_s`` after its last change."""

    async def read(self, channel: str) -> Mapping[str, bytes]:
        """Return the digests of all nodes, by node."""

    async def hold(self, channel: str, holder: str, expiry_s: float) -> bool:
        """Acquire or renew the lease; True if ``holder`` has it.

        It expires ``expiry_s`` after the last renewal.
        """

    async def release(self, channel: str, holder: str) -> None:
        """Release the lease at once, if ``holder`` has it."""

    async def post(self, channel: str, notice: bytes, expiry_s: float) -> None:
        """Replace the lease holder's notice and wake the agents that wait for one."""

    async def notice(self, channel: str) -> bytes | None:
        """Return the current notice; None if there is none."""

    async def await_notice(self, channel: str) -> None:
        """Return when a notice may have been posted since the call, or after a few seconds."""

    async def put(self, channel: str, name: str, data: bytes, expiry_s: float) -> None:
        """Store a larger value (a capture) under a name."""

    async def get(self, channel: str, names: Collection[str]) -> Mapping[str, bytes]:
        """Return the values stored under these names; missing ones are omitted."""

    async def close(self) -> None:
        """Close the connection. Never raises."""


def hide_password(url: str) -> str:
    """Return a URL without user, password and options."""
    scheme, separator, rest = url.partition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2].partition('?')[0]}"
