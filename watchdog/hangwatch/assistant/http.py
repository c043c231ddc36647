"""The MCP server over HTTP (the protocol's *streamable HTTP*), behind the access rules of the agent's page.

The MCP SDK has an ASGI application; an aiohttp handler calls it, so that the same guard (``outputs.web.access``)
decides who may ask. Every request is answered on its own, as JSON: there are no sessions to take over, and no
streams.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from aiohttp import web
from mcp.server import MCPServer
from mcp.server.transport_security import TransportSecuritySettings

from hangwatch.outputs.web.access import Access
from hangwatch.outputs.web.server import RunningServer, serve

PATH = "/mcp"
#: A request names a tool and a few arguments.
_MAX_BODY_BYTES = 64 << 10
#: Headers of the answer that are the server's own business.
_OWN_HEADERS = frozenset({"content-length", "connection", "transfer-encoding"})

Application = Callable[
    [dict[str, Any], Callable[[], Awaitable[Any]], Callable[[Any], Awaitable[None]]], Awaitable[None]
]


async def serve_over_http(server: MCPServer[Any], host: str, port: int, token: str | None) -> RunningServer:
    """Listen on ``host`` and ``port`` (0: any free one). ``token``: see ``outputs.web.access``. Raises ``ServerError``."""
    # It comes with routes and a web server of its own; of these only the handler is used.
    server.streamable_http_app(
        json_response=True,
        stateless_http=True,
        max_request_body_size=_MAX_BODY_BYTES,
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),  # Access sees to it
    )
    manager = server.session_manager
    application = web.Application(client_max_size=_MAX_BODY_BYTES)
    Access(host, token).attach(application)

    async def running(_: web.Application) -> AsyncIterator[None]:
        async with manager.run():
            yield

    async def answer(request: web.Request) -> web.Response:
        return await call_asgi(manager.handle_request, request)

    application.cleanup_ctx.append(running)
    application.router.add_post(PATH, answer)
    return await serve(application, host, port)


async def call_asgi(application: Application, request: web.Request) -> web.Response:
    """Return the whole answer of an ASGI application (asgi.readthedocs.io, HTTP 2.4) to one request."""
    body = await request.read()
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": request.scheme,
        "path": request.path,
        "raw_path": request.raw_path.encode(),
        "query_string": request.query_string.encode(),
        "root_path": "",
        "headers": [(name.lower(), value) for name, value in request.raw_headers],
        "client": (request.remote or "", 0),
        "server": None,
    }
    whole = {"type": "http.request", "body": body, "more_body": False}
    messages = [whole]
    status, headers, parts = 500, [], []

    async def receive() -> dict[str, Any]:
        return messages.pop() if messages else {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        nonlocal status, headers
        if message["type"] == "http.response.start":
            status, headers = message["status"], message.get("headers", [])
        else:
            parts.append(message.get("body", b""))

    await application(scope, receive, send)
    answer = web.Response(status=status, body=b"".join(parts))
    for name, value in headers:
        if name.decode("latin-1").lower() not in _OWN_HEADERS:
            answer.headers[name.decode("latin-1")] = value.decode("latin-1")
    return answer
