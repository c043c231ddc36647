"""Which jobs are joined with no option given, and where the store beside rank 0 listens."""

from __future__ import annotations

import asyncio
import os
import socket
import sys

import pytest

from hangwatch.agent.capturing.local_ranks import LocalRanks
from hangwatch.agent.fleet.joining import choose_channel
from hangwatch.agent.fleet.member import name_node
from hangwatch.exchange import addresses, tcpstore
from hangwatch.exchange.addresses import listen_for
from hangwatch.exchange.opening import parse_exchange
from hangwatch.exchange.protocol import ExchangeError
from hangwatch.exchange.tcpstore import TcpStoreExchange, load_torch
from hangwatch.model.capture import Job, RankIdentity
from hangwatch.sources.discovery.found_jobs import FoundJob
from support import find_free_port


def ranks_of(found: FoundJob) -> LocalRanks:
    """A node's ranks, as they were found."""
    ranks = LocalRanks(found.job)
    ranks.update(found, 0.0)
    return ranks


@pytest.mark.parametrize(("spans", "seen", "joined"), [(True, 1, True), (False, 1, False), (False, 2, False)])
def test_a_job_is_joined_where_its_launcher_says_so(spans: bool, seen: int, joined: bool) -> None:
    """A rank that is not seen may be of this node, and start later or be gone: that alone does not open a port."""
    identities = tuple(RankIdentity(rank, 100 + rank, 1.0, "n0") for rank in range(seen))
    ranks = ranks_of(FoundJob(Job("job", world_size=2), identities, "10.0.0.1:29500", spans))
    assert (choose_channel(ranks, None, only_known=True) is not None) == joined


def test_no_option_is_auto() -> None:
    """An empty setting too; there is a store a job, and no port until one needs it."""
    assert parse_exchange("") == parse_exchange("auto")
    assert not parse_exchange("auto").shared


def test_agents_of_one_node_that_see_different_processes_are_two() -> None:
    """Of two ``run``s on a node none sees the other's ranks; the node's own agent has one name however often it starts."""
    assert len({name_node(), name_node(10), name_node(11)}) == 3
    assert name_node() == name_node(None)


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize(
    ("host", "addresses_of", "where"),
    [
        ("127.0.0.1", ["127.0.0.1"], {"127.0.0.1"}),
        ("localhost", ["127.0.0.1"], {"127.0.0.1"}),
        ("node0", ["127.0.1.1"], {"::", "0.0.0.0"}),  # noqa: S104
        ("node0", ["127.0.0.1", "127.0.0.2"], {"::", "0.0.0.0"}),  # noqa: S104
    ],
    ids=["literal", "localhost", "debian", "several"],
)
def test_the_store_listens_where_others_arrive(
    host: str, addresses_of: list[str], where: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the one address of MASTER_ADDR; on all interfaces where that name does not say at which the others arrive."""
    port = find_free_port()
    known = [(socket.AF_INET, (address, port)) for address in addresses_of]
    monkeypatch.setattr(addresses, "_resolve", lambda _host, _port: known)
    with listen_for(host, port) as listening:
        assert listening.getsockname()[0] in where
        assert listening.getsockname()[1] == port
        with pytest.raises(OSError, match="in use"):
            listen_for(host, port)


@pytest.mark.usefixtures("real")
def test_a_port_that_is_taken_between_binding_and_listening_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two agents of a host may bind it at once; who listens first has it."""
    bind, bound = addresses._bind, []
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", 0))

        def late(family: socket.AddressFamily, address: tuple[str, int]) -> socket.socket:
            bound.append(bind(family, address))
            other.listen()
            return bound[0]

        monkeypatch.setattr(addresses, "_bind", late)
        with pytest.raises(OSError, match="in use"):
            listen_for("127.0.0.1", other.getsockname()[1])
    assert bound[0].fileno() == -1


@pytest.mark.usefixtures("real")
def test_what_stands_between_is_named() -> None:
    """A closed port means that nobody serves the store, one without an answer a firewall: each is one line with its repair."""

    async def fail(exchange: TcpStoreExchange) -> str:
        with pytest.raises(ExchangeError) as raised:
            await exchange.notice("job")
        await exchange.close()
        return str(raised.value)

    port = find_free_port()
    refused = asyncio.run(fail(TcpStoreExchange("127.0.0.1", port, hosting=False)))
    assert refused == (
        f"the store at 127.0.0.1:{port}: connection refused; run hangwatch on 127.0.0.1 too, with the same --exchange, "
        "or use redis://... if its agent is in another network than the job (a container)"
    )
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        port = full.getsockname()[1]
        with socket.create_connection(
            ("127.0.0.1", port)
        ):  # the queue is full: what comes now is dropped, as by a firewall
            dropped = asyncio.run(fail(TcpStoreExchange("127.0.0.1", port, hosting=False)))
    assert dropped.startswith(f"the store at 127.0.0.1:{port}: no answer within 3 s; open port {port} of 127.0.0.1")


def test_without_torch_the_repair_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line; and whatever comes of it, the level of torch's log stays the user's."""
    monkeypatch.setenv("TORCH_CPP_LOG_LEVEL", "INFO")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ExchangeError, match="pip install torch there, or use --exchange redis"):
        load_torch()
    assert os.environ["TORCH_CPP_LOG_LEVEL"] == "INFO"
    monkeypatch.delenv("TORCH_CPP_LOG_LEVEL")
    with pytest.raises(ExchangeError):
        tcpstore.load_torch()
    assert "TORCH_CPP_LOG_LEVEL" not in os.environ
