"""What systemd hears of us, on a real socket."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import pytest

from hangwatch.agent.host.systemd import ServiceManager, parse_service_manager, take_service_manager
from hangwatch.agent.incidents.record import announce_to_nobody
from hangwatch.agent.node_agent import Agent
from hangwatch.outputs.metrics.exposition import Metrics
from hangwatch.sources.discovery.ranks import Discovery, RankFinder

pytestmark = pytest.mark.usefixtures("real")


def _received(end: socket.socket) -> list[bytes]:
    found = []
    end.setblocking(False)
    while True:
        try:
            found.append(end.recv(4096))
        except BlockingIOError:
            return found


@pytest.mark.parametrize("abstract", [False, True])
def test_the_manager_hears_all_of_our_life(tmp_path: Path, abstract: bool) -> None:
    """Ready, alive, reloading, stopping, each a datagram as sd_notify(3) has them, by a path and by an abstract name."""
    name = f"@hangwatch-test-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.bind("\0" + name[1:] if abstract else name)
        environ = {"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid()), "HOME": "/"}
        manager = take_service_manager(environ)
        assert environ == {"HOME": "/"}, "what we start must not speak for us"
        assert manager.watchdog_s == 30.0
        manager.ready("watching")
        manager.alive()
        manager.reloading()
        manager.stopping()
        ready, alive, reloading, stopping = _received(end)
    assert ready == b"READY=1\nSTATUS=watching"
    assert alive == b"WATCHDOG=1"
    assert reloading.startswith(b"RELOADING=1\nMONOTONIC_USEC=")
    assert stopping == b"STOPPING=1"


def test_nothing_is_sent_where_nobody_asked(tmp_path: Path) -> None:
    """Without a socket, with one that is gone or full, and with another process's watchdog, nothing is sent and nothing fails."""
    for manager in (ServiceManager(), ServiceManager(str(tmp_path / "gone"), 1.0)):
        manager.ready("x")
        manager.alive()
        manager.stopping()
    assert parse_service_manager({"NOTIFY_SOCKET": "relative", "WATCHDOG_USEC": "1"}, 7) == ServiceManager()
    other = parse_service_manager({"NOTIFY_SOCKET": "/s", "WATCHDOG_USEC": "5000000", "WATCHDOG_PID": "8"}, 7)
    assert other == ServiceManager("/s", None)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.bind(str(tmp_path / "full"))
        manager = ServiceManager(str(tmp_path / "full"), 1.0)
        for _ in range(2000):
            manager.alive()
        assert 0 < len(_received(end)) < 2000


def test_an_agent_whose_ticks_fail_gives_no_sign_of_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each tick that comes to its end is a sign, one that fails is none and is counted: the manager starts such an agent anew."""
    signs: list[str] = []
    agent = Agent(tmp_path, tmp_path, announce_to_nobody, Metrics(), os.getpid, ticked=lambda: signs.append("alive"))

    def fail(*_: object) -> Discovery:
        raise RuntimeError("no /proc today")

    asyncio.run(agent.guarded_tick())
    with monkeypatch.context() as broken:
        broken.setattr(RankFinder, "find", fail)
        asyncio.run(agent.guarded_tick())
    assert (signs, agent.counts["errors"]) == (["alive"], 1)
    asyncio.run(agent.guarded_tick())
    assert len(signs) == 2
