"""What doctor says of an exchange, by a real Redis and a real store; the judgement of others is in ``test_agent_checks``."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from servers import RedisServer

from hangwatch.doctor import exchange as checks_exchange
from hangwatch.doctor.exchange import check_exchange
from hangwatch.sources.discovery.ranks import Discovery
from support import JobRunner, find_free_port

pytestmark = pytest.mark.usefixtures("real")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    """A server without a password."""
    runner = JobRunner(tmp_path)
    server = RedisServer(runner, find_free_port())
    server.start()
    yield server
    runner.end_all()


def test_a_redis_is_tried(server: RedisServer) -> None:
    """One that works; one that asks for a password, without, with a wrong and with the right one; one that is gone."""
    found = check_exchange(server.url)
    assert (found.state, found.says) == ("ok", f"{server.url}: reading and writing work")
    with redis.Redis(port=server.port) as client:
        assert [key for key in client.scan_iter("*") if not client.pttl(key) > 0] == [], (
            "what is left is forgotten soon"
        )
        client.config_set("requirepass", "s3cret")
    for url in (server.url, server.url.replace("://", "://:wr0ng@")):
        refused = check_exchange(url)
        assert refused.state == "failed"
        assert refused.repair.startswith("put the correct password into the URL")
        assert "wr0ng" not in refused.says + refused.repair
    assert check_exchange(server.url.replace("://", "://:s3cret@")).state == "ok"
    server.kill()
    gone = check_exchange(server.url)
    assert (gone.state, "redis-cli" in gone.repair) == ("failed", True)


def test_a_missing_client_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra, or without torch for its store, the repair is what to install."""
    monkeypatch.setattr(checks_exchange.importlib.util, "find_spec", lambda _: None)
    assert check_exchange("redis://h").repair == "pip install 'redis>=5.0.1'"
    assert check_exchange("tcp").repair.startswith("pip install torch")


def test_without_an_option_there_is_nothing_to_repair(monkeypatch: pytest.MonkeyPatch) -> None:
    """While no job spans nodes torch is not needed, and the port is named that will be."""
    monkeypatch.setattr(checks_exchange.importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr(checks_exchange, "discover_node", lambda: (Discovery((), ()), ()))
    found = check_exchange("")
    assert (found.state, "MASTER_ADDR:29717" in found.says) == ("ok", True)


def test_the_store_of_a_job_is_tried() -> None:
    """Where its ranks meet somebody listens at the store's port, or nobody does."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        assert checks_exchange._why_not("127.0.0.1", port) == ""
    assert "refused" in checks_exchange._why_not("127.0.0.1", port)
