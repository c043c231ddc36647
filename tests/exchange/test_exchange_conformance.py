"""What every exchange promises, of each of them: in this process, in torch's store, in a real Redis, sealed."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from servers import RedisServer

from hangwatch.exchange.local import LocalExchange
from hangwatch.exchange.opening import open_exchange, parse_exchange
from hangwatch.exchange.protocol import Exchange
from hangwatch.exchange.sealed import SealedExchange
from support import LONG_S, JobRunner, find_free_port

pytestmark = pytest.mark.asyncio
_CHANNELS = (f"channel-{number}" for number in itertools.count())
#: How long values of these tests are good for, where they are to be forgotten.
BRIEF_S = 0.4


@pytest.fixture(scope="module")
def redis_server(real: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """One server for all tests of this file."""
    runner = JobRunner(Path(tmp_path_factory.mktemp("redis")))
    server = RedisServer(runner, find_free_port())
    server.start()
    yield server
    runner.end_all()


@pytest_asyncio.fixture(params=["local", "tcp", "redis", "sealed"])
async def opened(real: None, request: pytest.FixtureRequest) -> AsyncIterator[Callable[[], Exchange]]:
    """Opens an exchange anew for each agent, all of them at one place; the first one keeps it, where it has to be kept."""
    opened: list[Exchange] = []
    shared = LocalExchange()
    if request.param == "redis":
        choice = parse_exchange(request.getfixturevalue("redis_server").url)
    else:
        choice = parse_exchange(f"tcp:{find_free_port()}")

    def open_one() -> Exchange:
        if request.param == "sealed":
            opened.append(SealedExchange(shared, b"a secret of the tests"))
        else:
            opened.append(shared if request.param == "local" else open_exchange(choice, "127.0.0.1:1"))
        return opened[-1]

    yield open_one
    for exchange in reversed(opened):
        await exchange.close()


@pytest.fixture
def channel() -> str:
    """A job of its own."""
    return next(_CHANNELS)


async def until(condition: Callable[[], Awaitable[bool]], timeout_s: float = LONG_S) -> None:
    """Wait for an asynchronous condition."""

    async def met() -> None:
        while not await condition():
            await asyncio.sleep(0.02)

    await asyncio.wait_for(met(), timeout_s)


async def test_digests_are_read_by_all(opened: Callable[[], Exchange], channel: str) -> None:
    """What each node has published last, whoever reads; also the same bytes twice, and bytes that are no text."""
    one, two = opened(), opened()
    assert await one.read(channel) == {}
    await one.publish(channel, "a", b"\x00\xff1", 30.0)
    await two.publish(channel, "b:c/d é", b"2", 30.0)
    await two.publish(channel, "b:c/d é", b"3", 30.0)
    for reader in (one, two):
        assert await reader.read(channel) == {"a": b"\x00\xff1", "b:c/d é": b"3"}


async def test_a_digest_is_forgotten(opened: Callable[[], Exchange], channel: str) -> None:
    """One that is not published again is gone after its time; one that is, is there, even if nothing in it has changed."""
    one, two = opened(), opened()
    await one.publish(channel, "a", b"1", BRIEF_S)

    async def only_b() -> bool:
        await two.publish(channel, "b", b"same", 30.0 * BRIEF_S)
        return await two.read(channel) == {"b": b"same"}

    await two.read(channel)
    await until(only_b)
    await one.publish(channel, "a", b"1", 30.0)
    assert set(await two.read(channel)) == {"a", "b"}


async def test_jobs_are_apart(opened: Callable[[], Exchange], channel: str) -> None:
    """Nothing of one channel is seen in another."""
    one, other = opened(), f"{channel}-other"
    await one.publish(channel, "a", b"1", 30.0)
    await one.post(channel, b"notice", 30.0)
    await one.put(channel, "x", b"data", 30.0)
    assert await one.hold(channel, "me", 30.0)
    assert await one.read(other) == {}
    assert await one.notice(other) is None
    assert await one.get(other, ["x"]) == {}
    assert await one.hold(other, "you", 30.0)


async def test_the_lease_has_one_holder(opened: Callable[[], Exchange], channel: str) -> None:
    """Of many who ask at once one gets it; it keeps it for as long as it asks again, and nobody else can give it up."""
    agents = {f"agent-{number}": opened() for number in range(6)}
    held = await asyncio.gather(*(exchange.hold(channel, name, 30.0) for name, exchange in agents.items()))
    assert sum(held) == 1
    holder = next(name for name, has in zip(agents, held, strict=True) if has)
    other = next(name for name in agents if name != holder)
    assert await agents[holder].hold(channel, holder, 30.0)
    assert not await agents[other].hold(channel, other, 30.0)
    await agents[other].release(channel, other)
    assert not await agents[other].hold(channel, other, 30.0)
    await agents[holder].release(channel, holder)
    assert await agents[other].hold(channel, other, 30.0)
    assert not await agents[holder].hold(channel, holder, 30.0)


async def test_the_lease_of_one_that_is_gone_is_free(opened: Callable[[], Exchange], channel: str) -> None:
    """Not before its time, and then for one of those who ask; who held it learns that it does not any more."""
    one, two = opened(), opened()
    assert await one.hold(channel, "one", 5.0 * BRIEF_S)
    assert not await two.hold(channel, "two", 30.0)

    async def taken() -> bool:
        return await two.hold(channel, "two", 30.0)

    await until(taken)
    assert not await one.hold(channel, "one", BRIEF_S)


async def test_a_notice_wakes_those_who_await_it(opened: Callable[[], Exchange], channel: str) -> None:
    """The last one that was put up is there for all, until its time is over."""
    one, two = opened(), opened()
    assert await two.notice(channel) is None
    waiting = asyncio.create_task(two.await_notice(channel))

    async def woken() -> bool:
        await one.post(channel, b"look", 30.0)  # again: who awaits may not have begun to when the first one came
        return waiting.done()

    await until(woken)
    await waiting
    assert await two.notice(channel) == b"look"
    await one.post(channel, b"look again", 30.0)
    assert await two.notice(channel) == b"look again"
    await one.post(channel, b"look once more", BRIEF_S)

    async def gone() -> bool:
        return await two.notice(channel) is None

    await until(gone)


async def test_captures_are_got_by_name(opened: Callable[[], Exchange], channel: str) -> None:
    """Large ones, as many as are there; those that are not are left out, and they are forgotten, too."""
    one, two = opened(), opened()
    large = bytes(range(256)) * 8192
    await one.put(channel, "q1/a", large, 30.0)
    await two.put(channel, "q1/b", b"", 30.0)
    names = [f"q1/{node}" for node in ("a", "b", "c")]
    assert await two.get(channel, names) == {"q1/a": large, "q1/b": b""}
    await two.put(channel, "q1/b", b"", BRIEF_S)

    async def only_a() -> bool:
        return set(await two.get(channel, names)) == {"q1/a"}

    await until(only_a)
    assert await two.get(channel, []) == {}
