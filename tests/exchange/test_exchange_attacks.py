"""A hostile peer where the agents of a job meet: what it may write there, and what comes of that.

The promises are those of docs/security.md, "The port between nodes".
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from simulated import Node, run_until, spread_ranks

from hangwatch.agent.fleet.wire import WIRE_VERSION, LeaseNotice, SharedRecord, encode
from hangwatch.exchange.local import LocalExchange
from hangwatch.exchange.opening import open_exchange, parse_exchange
from hangwatch.exchange.protocol import Exchange
from hangwatch.exchange.redis import RedisExchange
from hangwatch.exchange.sealed import REFUSED, SealedExchange
from hangwatch.exchange.tcpstore import TcpStoreExchange
from hangwatch.model.incident import Incident, SecondLook
from hangwatch.outputs.web.access import read_token
from support import find_free_port

sys.path.append(str(Path(__file__).resolve().parent.parent / "causes"))
from recorded import load

pytestmark = pytest.mark.asyncio
HANG = "rank_conditional"
SECRET, CHANNEL = b"a secret of the tests", "job-1"
PASSED = SecondLook("2026-05-28T21:01:30.000Z", "a rank moves", "end the job", passed=True)


@dataclass
class Port(LocalExchange):
    """A place where everybody may write, as at torch's store."""

    @property
    def authenticated(self) -> bool:
        """False: nobody is asked who he is."""
        return False


@pytest_asyncio.fixture
async def port(real: None) -> AsyncIterator[Port]:
    """Where the agents meet, and the hostile peer."""
    yield Port()


def make_nodes(folder: Path, exchange: Exchange, secret: bytes | None = None, count: int = 2) -> list[Node]:
    """A recorded hang on so many nodes, each with an exchange of its own if they have a secret."""
    whole, spread = load(HANG), spread_ranks(load(HANG), count)
    own = [SealedExchange(exchange, secret) if secret else exchange for _ in spread]
    return [Node(f"n{n}", own[n], folder / f"n{n}", whole, ranks) for n, ranks in spread.items()]


async def end(nodes: list[Node]) -> None:
    """End all agents."""
    for node in nodes:
        await node.watch.end(0)


async def reported(folder: Path) -> Incident:
    """An incident as the agent that leads would put it up."""
    shared = LocalExchange()
    nodes = make_nodes(folder, shared)
    await run_until(nodes, lambda: any(node.announced for node in nodes))
    await end(nodes)
    return next(node.announced[0] for node in nodes if node.announced)


async def put_up(exchange: Exchange, channel: str, incident: Incident, revision: int = 1) -> None:
    """What a peer writes that takes itself for the one that leads."""
    await exchange.hold(channel, "evil/1", 600.0)
    record = SharedRecord(WIRE_VERSION, revision, incident, False, "evil", 1, True)
    await exchange.put(channel, "incident", encode(record), 600.0)
    await exchange.post(channel, encode(LeaseNotice(WIRE_VERSION, "evil/1", None, incident.id, revision)), 600.0)


async def test_without_a_secret_a_hang_of_several_nodes_is_reported_and_not_acted_on(
    port: Port, tmp_path: Path
) -> None:
    """No action rests on the word of another node that anybody could have written; the report says so, and how to change it."""
    nodes = make_nodes(tmp_path, port)
    await run_until(nodes, lambda: all(node.bundles for node in nodes))
    captures = {node.name: node.watch.captures for node in nodes}
    await run_until(nodes, lambda: any(node.watch.captures >= captures[node.name] + 2 for node in nodes))
    for node in nodes:
        look = node.bundles[0].second_look
        assert look is not None
        assert (look.passed, look.until) == (False, "")
        assert "set HANGWATCH_SECRET to one secret on all nodes" in look.called_off
        assert not node.acted_on
        assert [record.stands for record in node.watch.records] == [False], "/livez goes on answering"
    await end(nodes)


async def test_with_a_secret_all_nodes_act(port: Port, tmp_path: Path) -> None:
    """The same place, the same hang: each agent is told once that it may act."""
    nodes = make_nodes(tmp_path, port, SECRET)
    await run_until(nodes, lambda: all(node.acted_on for node in nodes))
    assert len({node.acted_on[0].id for node in nodes}) == 1
    await end(nodes)


@pytest.mark.parametrize("look", [None, PASSED], ids=["no-second-look", "passed"])
@pytest.mark.parametrize("kind", ["deadlock", "silent_failure"])
async def test_a_forged_incident_ends_nothing(port: Port, tmp_path: Path, look: SecondLook | None, kind: Any) -> None:
    """Whoever reaches the port can have an agent report a hang of its job, and never act on it."""
    incident = await reported(tmp_path / "before")
    verdict = msgspec.structs.replace(incident.verdict, kind=kind)
    (node,) = make_nodes(tmp_path, port, count=1)
    node.reader.moving = True
    await put_up(port, node.channel, msgspec.structs.replace(incident, verdict=verdict, second_look=look))
    await run_until([node], lambda: node.bundles)
    assert [one.may_be_acted_on for one in (*node.of_peers, *node.bundles)] == [False] * (len(node.of_peers) + 1)
    assert not node.acted_on
    await end([node])


async def test_without_the_secret_nothing_is_reported_either(port: Port, tmp_path: Path) -> None:
    """A forged incident, summary and question of a peer that has another secret, or none, count for nothing, and are named."""
    incident = msgspec.structs.replace(await reported(tmp_path / "before"), second_look=PASSED)
    (node,) = make_nodes(tmp_path, port, SECRET, count=1)
    node.reader.moving = True
    for peer in (port, SealedExchange(port, SECRET[::-1])):
        await put_up(peer, node.channel, incident)
        await peer.publish(node.channel, "evil", b"a summary", 600.0)
        notice = node.fleet.link.exchange.notice
        await run_until([node], lambda: node.fleet.link._refused)
        assert await notice(node.channel) == REFUSED
        assert await node.fleet.link.exchange.get(node.channel, ["incident"]) == {}
    await port.release(node.channel, "evil/1")
    await run_until([node], lambda: node.fleet.leads and node.fleet.gaps)
    assert any("evil has another secret" in str(gap) and "HANGWATCH_SECRET" in str(gap) for gap in node.fleet.gaps)
    assert node.bundles == []
    await end([node])


async def test_what_was_recorded_in_an_earlier_run_is_no_ground_to_act(port: Port, tmp_path: Path) -> None:
    """All that the agents of one run wrote, put back for the agents of the next one, which have the same secret and channel."""
    nodes = make_nodes(tmp_path / "before", port, SECRET)
    await run_until(nodes, lambda: all(node.acted_on for node in nodes))
    recorded = dict(port._kept)
    await end(nodes)
    port._kept.clear()
    (node,) = make_nodes(tmp_path, port, SECRET, count=1)
    node.reader.moving = True
    port._kept |= recorded | {("lease", node.channel, ""): (b"evil/1", 1e12)}
    await run_until([node], lambda: node.bundles)
    assert not node.bundles[0].may_be_acted_on
    assert not node.acted_on
    await end([node])


async def test_an_incident_that_is_over_is_not_put_back(port: Port, tmp_path: Path) -> None:
    """Neither for an agent that has seen it, and its end."""
    nodes = make_nodes(tmp_path, port, SECRET)
    await run_until(nodes, lambda: all(node.acted_on for node in nodes))
    recorded = {place: kept for place, kept in port._kept.items() if place[0] in {"notice", "blob"}}
    for node in nodes:
        node.reader.moving = True
    await run_until(nodes, lambda: all(node.watch.incidents.open_record is None for node in nodes))
    second = next(node for node in nodes if node.fleet.follows)
    before = second.fleet.sharing.shared
    told = len(second.of_peers)
    port._kept |= recorded
    notice = second.fleet.link.notice
    await run_until([second], lambda: second.fleet.link.notice != notice)
    await second.tick()
    assert second.fleet.sharing.shared == before
    assert second.watch.incidents.open_record is None
    assert len(second.of_peers) == told
    await end(nodes)


async def test_a_value_counts_where_it_was_written_and_as_it_was() -> None:
    """A changed one, one at another place, and an older summary than the last are refused; so is all of another secret."""
    port = Port()
    one, two, other = (SealedExchange(port, secret) for secret in (SECRET, SECRET, SECRET[::-1]))
    await one.publish(CHANNEL, "a", b"first", 600.0)
    first = port._kept["digest", CHANNEL, "a"]
    await one.publish(CHANNEL, "a", b"second", 600.0)
    await one.put(CHANNEL, "q/a", b"answer", 600.0)
    await one.post(CHANNEL, b"question", 600.0)
    assert await two.read(CHANNEL) == {"a": b"second"}
    assert await two.get(CHANNEL, ["q/a"]) == {"q/a": b"answer"}
    assert await two.notice(CHANNEL) == b"question"
    assert await other.read(CHANNEL) == {"a": REFUSED}
    assert await other.get(CHANNEL, ["q/a"]) == {}
    assert await other.notice(CHANNEL) == REFUSED
    value, until_s = port._kept["digest", CHANNEL, "a"]
    for forged in (value[:-1] + b"?", value[:40], b"", value[:20] + bytes([value[20] ^ 1]) + value[21:]):
        port._kept["digest", CHANNEL, "a"] = (forged, until_s)
        assert await two.read(CHANNEL) == {"a": REFUSED}
    port._kept["digest", CHANNEL, "a"] = first
    assert await two.read(CHANNEL) == {}
    del port._kept["digest", CHANNEL, "a"]
    for place in (("digest", CHANNEL, "b"), ("digest", "job-2", "a"), ("blob", CHANNEL, "a"), ("notice", CHANNEL, "")):
        port._kept[place] = (value, until_s)
    assert await two.read(CHANNEL) == {"b": REFUSED}
    assert await two.read("job-2") == {"a": REFUSED}
    assert await two.get(CHANNEL, ["a"]) == {}
    assert await two.notice(CHANNEL) == REFUSED


@pytest.mark.usefixtures("real")
async def test_who_is_trusted() -> None:
    """Agents with one secret, a Redis with a password, and this process itself; a secret is shown nowhere."""
    secret = read_token({"HANGWATCH_SECRET": "0123456789abcdef"}, "HANGWATCH_SECRET")
    assert secret is not None
    trusting = replace(parse_exchange("tcp"), secret=secret)
    sealed = open_exchange(trusting, "127.0.0.1:1")
    found = [
        sealed,
        LocalExchange(),
        RedisExchange("redis://:word@h"),
        RedisExchange("redis://h"),
        TcpStoreExchange("h", hosting=False),
    ]
    assert [one.authenticated for one in found] == [True, True, True, False, False]
    assert secret not in repr(trusting) + repr(sealed) + trusting.shown


@pytest.mark.usefixtures("real")
async def test_a_peer_that_sends_anything_stops_nobody() -> None:
    """Bytes that are no request, and values where others are awaited, end neither the agent nor what it serves."""
    number = find_free_port()
    serving, other = (TcpStoreExchange("127.0.0.1", number, hosting=hosting) for hosting in (True, False))
    await serving.publish(CHANNEL, "a", b"1", 600.0)
    from torch.distributed import TCPStore

    evil = TCPStore("127.0.0.1", number, None, False)
    for key in ("lease", "notice", "blob/incident", "slots", "slot/1", "digest/a"):
        evil.set(f"{CHANNEL}/{key}", os.urandom(64))
    for junk in (os.urandom(4096), b"\x00" * 4096, b"\xff" * 4096, b"GET / HTTP/1.1\r\n\r\n", b""):
        with socket.create_connection(("127.0.0.1", number), 10.0) as connection:
            connection.sendall(junk)
    await other.publish("job-2", "b", b"2", 600.0)
    assert await serving.read("job-2") == {"b": b"2"}
    assert await serving.hold("job-2", "me", 30.0)
    for exchange in (serving, other):
        await exchange.close()


@pytest.mark.usefixtures("real")
async def test_the_port_listens_where_the_job_meets_and_nowhere_else() -> None:
    """The store of a job that meets at one address is not reachable at another one of this machine."""
    number = find_free_port()
    serving = TcpStoreExchange("127.0.0.1", number, hosting=True)
    await serving.publish(CHANNEL, "a", b"1", 600.0)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", number), 10.0)
    await serving.close()
