"""The agent's HTTP server: ``/metrics``, ``/healthz``, ``/livez``, ``/readyz`` and the page.

May import the other outputs and aiohttp.

The first four are open to everyone who can reach the address, so they show only numbers and names; ``access`` controls
the rest. The address is loopback unless the user sets another.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec
from aiohttp import web

from hangwatch.model.errors import PlainError
from hangwatch.outputs.metrics.exposition import Metrics
from hangwatch.outputs.web.access import Access
from hangwatch.outputs.web.page import WebPage

_LOOPBACK = "127.0.0.1"
#: A token is the only thing a client ever sends.
_MAX_BODY_BYTES = 1024
_MAX_LINE_BYTES = 4096
#: Browsers send the cookies of all other services on this host too.
_MAX_HEADER_BYTES = 32768
_SHUTDOWN_S = 1.0
_LISTEN = re.compile(r"(?P<host>\[[^\[\]\s]+\]|[^:\[\]\s]*):(?P<port>[0-9]{1,5})", re.ASCII)


class ServerError(PlainError):
    """An address that is malformed or cannot be listened on; the message is one line with the repair."""


@dataclass(frozen=True)
class Health:
    """Bodies of the endpoints for probes; the status is 503 if ``ok`` is False, else 200.

    ``agent``: of ``/healthz``. ``job``: of ``/livez``, given the requested job. ``ready``: of ``/readyz``.
    """

    agent: Callable[[], dict[str, object]]
    job: Callable[[str | None], dict[str, object]] = lambda _: {"ok": True}
    ready: Callable[[], dict[str, object]] = lambda: {"ok": True}


class RunningServer:
    """A running server. ``url``: its address for this machine, without a path; ``far_url``: for others, if they reach it."""

    def __init__(self, runner: web.AppRunner, url: str, far_url: str) -> None:
        self.far_url = far_url
        self._runner = runner
        self.url = url

    async def stop(self) -> None:
        """Close the port and all connections within a second. May be called twice."""
        await self._runner.cleanup()


def parse_listen(text: str) -> tuple[str, int]:
    """Return host and port of ``HOST:PORT``, ``[::1]:PORT`` or ``:PORT``, which is loopback; port 0 means any free one.

    Raises:
        ServerError: it is none of these.
    """
    match = _LISTEN.fullmatch(text.strip())
    if match is None or int(match["port"]) > 65535:
        raise ServerError(f"{text!r} is not HOST:PORT; for example {_LOOPBACK}:9753 or [::1]:9753")
    host = match["host"].strip("[]") or _LOOPBACK
    if match["host"].startswith("["):
        try:
            ipaddress.IPv6Address(host.partition("%")[0])
        except ValueError:
            raise ServerError(f"{text!r}: {host!r} is not an IPv6 address; for example [::1]:9753") from None
    return host, int(match["port"])


async def start_server(
    host: str,
    port: int,
    metrics: Metrics,
    health: Health,
    page: WebPage | None = None,
    token: str | None = None,
) -> RunningServer:
    """Listen on ``host`` and ``port`` (0: any free one) and answer until stopped.

    Everything but ``/metrics`` and the endpoints of ``health`` requires ``token``; see ``access`` for None.

    Raises:
        ServerError: the address is in use, not permitted or not an address of this machine.
    """
    application = web.Application(client_max_size=_MAX_BODY_BYTES)
    application.router.add_get("/metrics", _metrics_handler(metrics))
    application.router.add_get("/healthz", _health_handler(lambda _: health.agent()))
    application.router.add_get("/livez", _health_handler(lambda request: health.job(request.query.get("job"))))
    application.router.add_get("/readyz", _health_handler(lambda _: health.ready()))
    Access(host, token).attach(application)
    if page is not None:
        page.attach(application)
    return await _serve(application, host, port)


async def _serve(application: web.Application, host: str, port: int) -> RunningServer:
    runner = web.AppRunner(
        application,
        access_log=None,
        handle_signals=False,
        max_line_size=_MAX_LINE_BYTES,
        max_field_size=_MAX_HEADER_BYTES,
        shutdown_timeout=_SHUTDOWN_S,
    )
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
    except (OSError, OverflowError, UnicodeError) as error:
        await runner.cleanup()
        raise ServerError(_why(error, host, port)) from error
    bound_port = int(runner.addresses[0][1])
    far = socket.gethostname() if _is_any_address(host) else _url_host(host)
    return RunningServer(runner, f"http://{_url_host(host)}:{bound_port}", f"http://{far}:{bound_port}")


def _why(error: Exception, host: str, port: int) -> str:
    repair = f"choose another address with --listen {_LOOPBACK}:0"
    number = error.errno if isinstance(error, OSError) else None
    if number == errno.EADDRINUSE:
        return f"port {port} on {host} is in use; {repair}"
    if number in {errno.EACCES, errno.EPERM}:
        return f"port {port} on {host} is not permitted for this user; {repair}"
    return f"cannot listen on {host} port {port}: {getattr(error, 'strerror', None) or error}; {repair}"


def _is_any_address(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_unspecified
    return False


def _url_host(host: str) -> str:
    """Return a host that a browser on this machine can open, even if the server listens on all addresses."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if address.is_unspecified:
        return _LOOPBACK if address.version == 4 else "[::1]"
    return host if address.version == 4 else f"[{host}]"


def _metrics_handler(metrics: Metrics) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(_: web.Request) -> web.Response:
        body, content_type = metrics.render()
        return web.Response(body=body, headers={"Content-Type": content_type})

    return answer


def _health_handler(
    health: Callable[[web.Request], dict[str, object]],
) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(request: web.Request) -> web.Response:
        answered = health(request)
        status = 503 if answered.get("ok") is False else 200
        return web.Response(body=msgspec.json.encode(answered), status=status, content_type="application/json")

    return answer
