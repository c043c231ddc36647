"""The exchange in torch's TCPStore, served next to rank 0. May import the protocol, torch (lazily) and the stdlib.

The store has no expiry, so readers implement it: every value carries a counter and a lifetime, and a value that has not changed
for that long, on the reader's own monotonic clock, has expired. The lease is such a value, and compare_set resolves races for
it. Keys::

    CHANNEL/slots, CHANNEL/slot/N    number of nodes that ever joined, and their names
    CHANNEL/node/NODE                marks that the node has a slot
    CHANNEL/digest/NODE, CHANNEL/lease, CHANNEL/notice, CHANNEL/blob/NAME
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import queue
import socket
import struct
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

from hangwatch.exchange.addresses import listen_for
from hangwatch.exchange.protocol import ExchangeError
from hangwatch.exchange.waiting import wait_within

#: Above 1024, below the ephemeral range, and not registered with IANA.
DEFAULT_PORT = 29717
_TIMEOUT_S = 3.0
_POLL_S = 0.25
_LOG_LEVEL = "TORCH_CPP_LOG_LEVEL"
_HEADER = struct.Struct(">IQ")  # lifetime in ms, and a counter that changes with every write
_T = TypeVar("_T")


@dataclass
class _Worker:
    """A thread for calls to the store, which may block for many minutes if the host is unreachable.

    It is not an executor's thread, because those are joined when the process exits.
    """

    calls: queue.SimpleQueue[Callable[[], None] | None] = field(default_factory=queue.SimpleQueue)

    def __post_init__(self) -> None:
        threading.Thread(target=self._work, name="hangwatch-exchange", daemon=True).start()

    def _work(self) -> None:
        while (call := self.calls.get()) is not None:
            call()

    async def do(self, call: Callable[[], _T]) -> _T:
        """Run a call in the thread and return its result."""
        loop = asyncio.get_running_loop()
        result: asyncio.Future[_T] = loop.create_future()

        def settle(value: _T | None, error: BaseException | None) -> None:
            if not result.done():
                result.set_exception(error) if error is not None else result.set_result(value)  # type: ignore[arg-type]

        def work() -> None:
            try:
                value, error = call(), None
            except (RuntimeError, ValueError, TypeError, OSError) as raised:
                value, error = None, raised
            with contextlib.suppress(RuntimeError):  # the event loop has been closed
                loop.call_soon_threadsafe(settle, value, error)

        self.calls.put(work)
        return await wait_within(result, _TIMEOUT_S + 1.0)


@dataclass
class _Seen:
    """A value and the time of its last observed change."""

    value: bytes
    since_s: float


class TcpStoreExchange:
    """A client of the store at ``host``. ``hosting``: serve the store in this process unless another process already does."""

    authenticated = False  # torch's store lets everybody in

    def __init__(
        self, host: str, port: int = DEFAULT_PORT, *, hosting: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        load_torch()  # fail now with a clear message, not at the first call
        self._host, self._port, self._hosting, self._clock = host, port, hosting, clock
        self.endpoint = (host, port)
        self._worker = _Worker()
        self._store: Any = None
        #: The store served by this process; it closes when the last reference is dropped.
        self._server: Any = None
        self._counts = itertools.count(time.time_ns())
        self._named: set[tuple[str, str]] = set()
        self._names: dict[str, list[str]] = {}
        self._seen: dict[str, _Seen] = {}
        self._leases: dict[str, bytes] = {}

    async def publish(self, channel: str, node: str, digest: bytes, expiry_s: float) -> None:
        value = self._sealed(digest, expiry_s)

        def call(store: Any) -> None:
            _set(store, f"{channel}/digest/{node}", value)
            if (channel, node) in self._named:
                return
            if not store.check([f"{channel}/node/{node}"]):
                store.set(f"{channel}/node/{node}", b"1")
                slot = store.add(f"{channel}/slots", 1)
                store.set(f"{channel}/slot/{slot}", node.encode())
            self._named.add((channel, node))

        await self._do(call)

    async def read(self, channel: str) -> Mapping[str, bytes]:

        def call(store: Any) -> dict[str, bytes]:
            names = self._names.setdefault(channel, [])
            count = store.add(f"{channel}/slots", 0)
            while len(names) < count and store.check([f"{channel}/slot/{len(names) + 1}"]):
                names.append(store.get(f"{channel}/slot/{len(names) + 1}").decode())
            keys = [f"{channel}/digest/{name}" for name in names]
            return dict(zip(names, store.multi_get(keys) if keys else (), strict=True))

        found = await self._do(call)
        opened = {name: self._opened(f"{channel}/digest/{name}", value) for name, value in found.items()}
        return {name: digest for name, digest in opened.items() if digest is not None}

    async def hold(self, channel: str, holder: str, expiry_s: float) -> bool:
        key, mine = f"{channel}/lease", self._sealed(holder.encode(), expiry_s)
        own = self._leases.get(channel)

        def current(store: Any) -> bytes:
            return store.get(key) if store.check([key]) else b""

        found = await self._do(current)
        if found != own and self._opened(key, found) not in {None, holder.encode()}:
            self._leases.pop(channel, None)
            return False
        result: bytes = await self._do(lambda store: store.compare_set(key, found, mine))
        if result != mine:
            self._leases.pop(channel, None)
            return False
        self._leases[channel] = mine
        return True

    async def release(self, channel: str, holder: str) -> None:
        own = self._leases.pop(channel, None)
        if own is not None and _HEADER.size < len(own) and own[_HEADER.size :] == holder.encode():
            free = self._sealed(b"", 0.0)
            await self._do(lambda store: store.compare_set(f"{channel}/lease", own, free))

    async def post(self, channel: str, notice: bytes, expiry_s: float) -> None:
        value = self._sealed(notice, expiry_s)
        await self._do(lambda store: _set(store, f"{channel}/notice", value))

    async def notice(self, channel: str) -> bytes | None:
        return (await self._got({f"{channel}/notice": ""})).get("")

    async def await_notice(self, channel: str) -> None:
        """Poll, because the store has no notifications."""
        before = await self.notice(channel)
        for _ in range(int(5.0 / _POLL_S)):
            await asyncio.sleep(_POLL_S)
            if await self.notice(channel) != before:
                return

    async def put(self, channel: str, name: str, data: bytes, expiry_s: float) -> None:
        value = self._sealed(data, expiry_s)
        await self._do(lambda store: _set(store, f"{channel}/blob/{name}", value))

    async def get(self, channel: str, names: Collection[str]) -> Mapping[str, bytes]:
        return await self._got({f"{channel}/blob/{name}": name for name in names})

    async def close(self) -> None:
        self._worker.calls.put(self._forget)
        self._worker.calls.put(None)

    def _forget(self) -> None:
        """Close the connection, in the worker thread."""
        self._store = self._server = None

    async def _got(self, wanted: Mapping[str, str]) -> dict[str, bytes]:
        """Return the values of keys that exist and have not expired, by the names in ``wanted``."""

        def call(store: Any) -> dict[str, bytes]:
            there = [key for key in wanted if store.check([key])]
            return dict(zip(there, store.multi_get(there) if there else (), strict=True))

        found = await self._do(call)
        opened = {wanted[key]: self._opened(key, value) for key, value in found.items()}
        return {name: data for name, data in opened.items() if data is not None}

    def _sealed(self, data: bytes, expiry_s: float) -> bytes:
        return _HEADER.pack(int(expiry_s * 1000), next(self._counts)) + data

    def _opened(self, key: str, value: bytes) -> bytes | None:
        """Return the payload of a value; None if it is missing or has expired."""
        if len(value) < _HEADER.size:
            return None
        now_s = self._clock()
        seen = self._seen.get(key)
        if seen is None or seen.value[: _HEADER.size] != value[: _HEADER.size]:
            seen = self._seen[key] = _Seen(value[: _HEADER.size], now_s)
        expiry_ms, _ = _HEADER.unpack_from(value)
        return value[_HEADER.size :] if now_s - seen.since_s < expiry_ms / 1000 else None

    async def _do(self, call: Callable[[Any], _T]) -> _T:
        """Run a call with the store, connecting first if needed. A failed or hanging call drops the connection."""
        try:
            return await self._worker.do(lambda: call(self._connected()))
        except (RuntimeError, ValueError, TypeError, OSError, asyncio.TimeoutError, asyncio.CancelledError) as error:
            self._worker.calls.put(None)  # a stuck worker exits when its call returns
            self._worker = _Worker()
            self._store = None
            self._named.clear()
            self._names.clear()
            if isinstance(error, asyncio.CancelledError):
                raise
            raise ExchangeError(f"the store at {self._host}:{self._port}: {self._explain(error)}") from error

    def _connected(self) -> Any:
        if self._store is None:
            from torch.distributed import TCPStore

            limit = timedelta(seconds=_TIMEOUT_S)
            if self._hosting and self._server is None:
                with contextlib.suppress(OSError, RuntimeError):  # another agent on this host serves it
                    listening = listen_for(self._host, self._port).detach()
                    self._server = TCPStore(
                        self._host, self._port, None, True, limit, False, master_listen_fd=listening
                    )
            # torch's client says the same of a closed port and of one behind a firewall, and tries both until its limit.
            socket.create_connection((self._host, self._port), _TIMEOUT_S).close()
            self._store = TCPStore(self._host, self._port, None, False, limit, False)
        return self._store

    def _explain(self, error: BaseException) -> str:
        """Return why a call failed, with the repair if known."""
        if isinstance(error, ConnectionRefusedError):
            other = "or use redis://... if its agent is in another network than the job (a container)"
            return f"connection refused; run hangwatch on {self._host} too, with the same --exchange, {other}"
        if isinstance(error, asyncio.TimeoutError | TimeoutError):
            other = "or name an open one on all nodes with --exchange tcp:PORT"
            return f"no answer within {_TIMEOUT_S:g} s; open port {self._port} of {self._host} to this node, {other}"
        return (str(error).splitlines() or [""])[0].strip()[:160]


def load_torch() -> None:
    """Import torch, which takes seconds the first time, with the log of its C++ code kept off our stderr.

    That code logs every failed connection with a stack, and reads its log level when it is loaded (2.13,
    ``c10/util/Logging.cpp``). Raises ``ExchangeError`` if there is no torch.
    """
    before = os.environ.get(_LOG_LEVEL)
    os.environ[_LOG_LEVEL] = "FATAL"
    try:
        import torch.distributed  # noqa: F401
    except (ImportError, OSError) as error:
        raise ExchangeError(
            "no torch in the agent's environment; its TCPStore connects the nodes of a job. Run pip "
            "install torch there, or use --exchange redis://..."
        ) from error
    finally:
        if before is None:
            os.environ.pop(_LOG_LEVEL)
        else:
            os.environ[_LOG_LEVEL] = before


def _set(store: Any, key: str, value: bytes) -> None:
    """Set a key and wait until it is set: the store acknowledges reads, but not ``set``."""
    store.set(key, value)
    store.check([key])
