"""Server-sent events: parts of a page, sent to each client when they have changed. May import aiohttp and msgspec.

A slow client gets the latest version of each part, never a queue of versions; the number of clients is limited, which
bounds their cost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec
from aiohttp import web

_MAX_CLIENTS = 32
#: Proxies close connections that are idle for a minute.
_ALIVE_S = 15.0
#: Reconnect delay of clients, in milliseconds.
_RETRY_MS = 2000


class _Client:
    def __init__(self, parts: Mapping[str, str]) -> None:
        self.pending = dict(parts)
        self.layout: list[str] | None = list(parts)
        self.wake = asyncio.Event()
        self.wake.set()


class Events:
    """The clients of one page, and the parts it has now: element id to HTML, in their order on the page."""

    def __init__(self) -> None:
        self.parts: dict[str, str] = {}
        self._clients: set[_Client] = set()
        self._closed = False

    @property
    def watched(self) -> bool:
        """True if there are clients."""
        return bool(self._clients)

    def publish(self, parts: Mapping[str, str]) -> None:
        """Replace the parts; clients are sent those that differ."""
        changed = {id: html for id, html in parts.items() if self.parts.get(id) != html}
        moved = list(parts) != list(self.parts)
        self.parts = dict(parts)
        for client in self._clients:
            client.pending.update(changed)
            client.layout = list(parts) if moved else client.layout
            if changed or moved:
                client.wake.set()

    def close(self) -> None:
        """Disconnect every client."""
        self._closed = True
        for client in self._clients:
            client.wake.set()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Serve one client until it disconnects or the server stops."""
        if len(self._clients) >= _MAX_CLIENTS or self._closed:
            return web.Response(status=503, text="too many open pages\n", headers={"Retry-After": "10"})
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"})
        client = _Client(self.parts)
        self._clients.add(client)
        try:
            await response.prepare(request)
            await response.write(f"retry: {_RETRY_MS}\n\n".encode())
            while not self._closed:
                await self._serve(client, response)
        except ConnectionResetError:
            pass  # the client has disconnected
        finally:
            self._clients.discard(client)
        return response

    async def _serve(self, client: _Client, response: web.StreamResponse) -> None:
        try:
            await asyncio.wait_for(client.wake.wait(), _ALIVE_S)
        except asyncio.TimeoutError:
            await response.write(b": alive\n\n")
            return
        client.wake.clear()
        pending, client.pending = client.pending, {}
        layout, client.layout = client.layout, None
        if layout:
            await response.write(b"event: layout\ndata: " + msgspec.json.encode(layout) + b"\n\n")
        for id, html in pending.items():
            await response.write(b"event: part\ndata: " + msgspec.json.encode({"id": id, "html": html}) + b"\n\n")
