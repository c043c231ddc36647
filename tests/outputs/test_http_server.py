"""The agent's HTTP server on a real socket."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from typing import TypeVar

import aiohttp
import pytest

from hangwatch.outputs.metrics.exposition import Metrics
from hangwatch.outputs.web.server import Health, RunningServer, ServerError, parse_listen, start_server

pytestmark = pytest.mark.usefixtures("real")

T = TypeVar("T")


def serve(use: Callable[[RunningServer, aiohttp.ClientSession], Awaitable[T]], ok: bool = True) -> T:
    """Run ``use`` against a server on a free port."""

    async def run() -> T:
        server = await start_server("127.0.0.1", 0, Metrics(), Health(lambda: {"ok": ok, "ticks": 3}))
        try:
            async with aiohttp.ClientSession() as client:
                return await use(server, client)
        finally:
            await server.stop()
            await server.stop()

    return asyncio.run(run())


def test_metrics_are_served_with_their_content_type() -> None:
    """A scrape gets the exposition and the type Prometheus asks for."""

    async def use(server: RunningServer, client: aiohttp.ClientSession) -> tuple[int, str, str]:
        async with client.get(f"{server.url}/metrics") as answer:
            return answer.status, answer.headers["Content-Type"], await answer.text()

    status, content_type, body = serve(use)
    assert status == 200
    assert content_type.startswith("text/plain; version=")
    assert "hangwatch_build_info" in body


@pytest.mark.parametrize(("ok", "status"), [(True, 200), (False, 503)])
def test_health_is_json_and_its_status_tells(ok: bool, status: int) -> None:
    """A supervisor needs the status alone, a person reads the rest."""

    async def use(server: RunningServer, client: aiohttp.ClientSession) -> tuple[int, object]:
        async with client.get(f"{server.url}/healthz") as answer:
            return answer.status, json.loads(await answer.text())

    assert serve(use, ok) == (status, {"ok": ok, "ticks": 3})


def test_a_liveness_probe_fails_for_the_job_that_hangs() -> None:
    """And for no other: /livez is asked by the job's name, and /readyz is the agent's own."""

    def job(name: str | None) -> dict[str, object]:
        return {"ok": name not in {None, "llama"}, "hangs": [name]}

    async def ask() -> list[tuple[int, object]]:
        health = Health(lambda: {"ok": True}, job, lambda: {"ok": False})
        server = await start_server("127.0.0.1", 0, Metrics(), health)
        said = []
        try:
            async with aiohttp.ClientSession() as client:
                for path in ("/livez?job=llama", "/livez?job=qwen", "/livez", "/readyz"):
                    async with client.get(server.url + path) as answer:
                        said.append((answer.status, json.loads(await answer.text()).get("hangs")))
        finally:
            await server.stop()
        return said

    assert asyncio.run(ask()) == [(503, ["llama"]), (200, ["qwen"]), (503, [None]), (503, None)]


def test_nothing_else_is_served() -> None:
    """Other paths, other methods and overlong requests are refused."""

    async def use(server: RunningServer, client: aiohttp.ClientSession) -> list[int]:
        statuses = []
        for method, path in (("GET", "/"), ("GET", "/metrics/../x"), ("POST", "/metrics"), ("GET", "/" + "x" * 9000)):
            async with client.request(method, server.url + path, data=b"x" * 10) as answer:
                statuses.append(answer.status)
        return statuses

    assert serve(use) == [404, 404, 405, 400]


def test_a_port_in_use_is_one_line_with_the_repair() -> None:
    """The error names port, host and the option; a free port then works."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ServerError) as caught:
            asyncio.run(start_server("127.0.0.1", port, Metrics(), Health(dict)))
    assert str(caught.value) == f"port {port} on 127.0.0.1 is in use; choose another address with --listen 127.0.0.1:0"


@pytest.mark.parametrize("host", ["203.0.113.7", "no.such.host.invalid", "x" * 300])
def test_an_address_that_is_not_ours_is_one_line(host: str) -> None:
    """A host that cannot be listened on is an error with the repair, never a traceback."""
    with pytest.raises(
        ServerError, match=r"^cannot listen on .*; choose another address with --listen 127\.0\.0\.1:0$"
    ):
        asyncio.run(start_server(host, 0, Metrics(), Health(dict)))


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9753", ("127.0.0.1", 9753)),
        ("localhost:0", ("localhost", 0)),
        ("[::1]:80", ("::1", 80)),
        (":9753", ("127.0.0.1", 9753)),
        ("0.0.0.0:9753", ("0.0.0.0", 9753)),  # noqa: S104 - named by the user
    ],
)
def test_listen_addresses_are_understood(text: str, address: tuple[str, int]) -> None:
    """No host means loopback: nothing is opened to others unless they are named."""
    assert parse_listen(text) == address


@pytest.mark.parametrize(
    "text", ["", "9753", "host", "host:", "host:http", "::1:80", "[::g]:1", "h:70000", "h:-1", "a b:1"]
)
def test_other_listen_texts_are_one_line(text: str) -> None:
    """What cannot be understood is named, with an example of what can."""
    with pytest.raises(ServerError, match=r"^'.*; for example [^\n]*$"):
        parse_listen(text)
