"""The exchange in a Redis or Valkey server. May import its siblings, the redis client (an extra) and the standard library.

Every key belongs to one channel, has an expiry, and uses the channel as hash tag, so that a cluster keeps a channel on one node::

    hangwatch:{CHANNEL}:nodes         set: nodes that have or had a digest
    hangwatch:{CHANNEL}:digest:NODE   string
    hangwatch:{CHANNEL}:lease         string: the holder (redis-py's Lock: SET NX PX, scripts to renew and release it)
    hangwatch:{CHANNEL}:notice        string, and the channel of the same name for agents that await one
    hangwatch:{CHANNEL}:blob:NAME     string
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from hangwatch.exchange.protocol import ExchangeError, hide_password

_TIMEOUT_S = 2.0
_AWAIT_S = 5.0
#: Values per MGET: a few hundred captures in one answer would be in memory twice.
_GOT_AT_ONCE = 64


class RedisExchange:
    """A client of one server, shared by all jobs of this node."""

    def __init__(self, url: str) -> None:
        try:
            import redis.asyncio as client
        except ImportError as error:
            raise ExchangeError("the Redis client is not installed: pip install 'redis>=5.0.1'") from error
        try:
            # An extra, without types that could be checked: its own values are Any.
            self._redis: Any = client.from_url(
                url, socket_timeout=_TIMEOUT_S, socket_connect_timeout=_TIMEOUT_S, retry=None, retry_on_error=[]
            )
        except ValueError as error:
            # The client's message may contain parts of the password.
            repair = "use redis://[:PASSWORD@]HOST[:PORT][/DB], special characters of the password as %XX"
            raise ExchangeError(f"{hide_password(url)} is not a valid Redis URL; {repair}") from error
        place = self._redis.connection_pool.connection_kwargs
        self.endpoint = (str(place["host"]), int(place.get("port", 6379))) if "host" in place else None
        self.authenticated = bool(place.get("password"))
        self._locks: dict[str, Any] = {}
        self._pubsubs: dict[str, Any] = {}

    async def publish(self, channel: str, node: str, digest: bytes, expiry_s: float) -> None:
        expiry_ms = int(expiry_s * 1000)
        with _one_line():
            batch = self._redis.pipeline(transaction=False)
            batch.set(_key(channel, "digest", node), digest, px=expiry_ms)
            batch.sadd(_key(channel, "nodes"), node)
            batch.pexpire(_key(channel, "nodes"), expiry_ms)
            await batch.execute()

    async def read(self, channel: str) -> Mapping[str, bytes]:
        with _one_line():
            members = await self._redis.smembers(_key(channel, "nodes"))
            nodes = sorted(name.decode() for name in members)
            if not nodes:
                return {}
            digests = await self._redis.mget([_key(channel, "digest", node) for node in nodes])
            gone = [node for node, digest in zip(nodes, digests, strict=True) if digest is None]
            if gone:  # a node that publishes again is added again
                await self._redis.srem(_key(channel, "nodes"), *gone)
        return {node: digest for node, digest in zip(nodes, digests, strict=True) if digest is not None}

    async def hold(self, channel: str, holder: str, expiry_s: float) -> bool:
        from redis.exceptions import LockError

        with _one_line():
            lock = self._locks.get(channel)
            if lock is None:
                lock = self._locks[channel] = self._redis.lock(
                    _key(channel, "lease"), timeout=expiry_s, blocking=False, thread_local=False
                )
            if lock.local.token == holder.encode():
                with contextlib.suppress(LockError):
                    await lock.reacquire()
                    return True
            return bool(await lock.acquire(blocking=False, token=holder))

    async def release(self, channel: str, holder: str) -> None:
        from redis.exceptions import LockError

        lock = self._locks.get(channel)
        if lock is not None and lock.local.token == holder.encode():
            with _one_line(), contextlib.suppress(LockError):
                await lock.release()

    async def post(self, channel: str, notice: bytes, expiry_s: float) -> None:
        with _one_line():
            batch = self._redis.pipeline(transaction=False)
            batch.set(_key(channel, "notice"), notice, px=int(expiry_s * 1000))
            batch.publish(_key(channel, "notice"), b"")
            await batch.execute()

    async def notice(self, channel: str) -> bytes | None:
        with _one_line():
            found: bytes | None = await self._redis.get(_key(channel, "notice"))
        return found

    async def await_notice(self, channel: str) -> None:
        with _one_line():
            pubsub = self._pubsubs.get(channel)
            if pubsub is None:
                pubsub = self._pubsubs[channel] = self._redis.pubsub(ignore_subscribe_messages=True)
            try:
                if not pubsub.subscribed:
                    await pubsub.subscribe(_key(channel, "notice"))
                await pubsub.get_message(ignore_subscribe_messages=True, timeout=_AWAIT_S)
            except BaseException:
                # A partial answer may have been read, so the connection is unusable.
                self._pubsubs.pop(channel, None)
                with contextlib.suppress(Exception):  # the connection is dropped in any case
                    await pubsub.aclose()
                raise

    async def put(self, channel: str, name: str, data: bytes, expiry_s: float) -> None:
        with _one_line():
            await self._redis.set(_key(channel, "blob", name), data, px=int(expiry_s * 1000))

    async def get(self, channel: str, names: Collection[str]) -> Mapping[str, bytes]:
        found: dict[str, bytes] = {}
        wanted = list(names)
        with _one_line():
            for start in range(0, len(wanted), _GOT_AT_ONCE):
                part = wanted[start : start + _GOT_AT_ONCE]
                values = await self._redis.mget([_key(channel, "blob", name) for name in part])
                found |= {name: data for name, data in zip(part, values, strict=True) if data is not None}
        return found

    async def close(self) -> None:
        for pubsub in self._pubsubs.values():
            with contextlib.suppress(Exception):  # the connection is dropped in any case
                await pubsub.aclose()
        with contextlib.suppress(Exception):  # the same
            await self._redis.aclose()


def _key(channel: str, *parts: str) -> str:
    return ":".join((f"hangwatch:{{{channel}}}", *parts))


@contextlib.contextmanager
def _one_line() -> Iterator[None]:
    """Turn the client's exceptions into ``ExchangeError``."""
    from redis.exceptions import RedisError

    try:
        yield
    except (RedisError, OSError, asyncio.TimeoutError) as error:
        raise ExchangeError(f"Redis: {' '.join(str(error).split()) or type(error).__name__}") from error
