"""Access control for the agent's pages, which show source lines and stacks. May import aiohttp and ``outputs.html``.

``/metrics``, ``/healthz``, ``/livez`` and ``/readyz`` are open. Everything else needs the token if one is set; otherwise it is
open on a loopback address and closed on any other. Without a token a request must also name a loopback host, so that a web site
whose name resolves to 127.0.0.1 (DNS rebinding) can read nothing, and no other site may embed or fetch anything.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web
from markupsafe import Markup

from hangwatch.model.errors import PlainError
from hangwatch.outputs.html.elements import NOTHING
from hangwatch.outputs.html.shell import PAGE_POLICY, render_page

#: Maximum number of callers tracked; beyond it the least recently seen one is dropped.
_CALLERS_LIMIT = 1024


@dataclass
class RateLimit:
    """A token bucket per caller: ``burst`` requests at once, ``per_s`` per second."""

    per_s: float
    burst: float
    _left: OrderedDict[str, tuple[float, float]] = field(default_factory=OrderedDict)

    def allows(self, caller: str, now_s: float) -> bool:
        """True if this caller may make a request now; an allowed request is counted."""
        left, at_s = self._left.pop(caller, (self.burst, now_s))
        left = min(self.burst, left + (now_s - at_s) * self.per_s)
        allowed = left >= 1.0
        self._left[caller] = (left - 1.0 if allowed else left, now_s)
        while len(self._left) > _CALLERS_LIMIT:
            self._left.popitem(last=False)
        return allowed


#: For clients that cannot keep a secret: Prometheus, and the probes of Kubernetes, whose headers are text in a manifest.
#: They show numbers, names of jobs and one-line summaries, which are in the metrics too.
OPEN_PATHS = frozenset({"/metrics", "/healthz", "/livez", "/readyz"})
#: Variables with the token of the page and the secret of the agents: the job must not inherit them.
TOKEN_VARIABLES = ("HANGWATCH_TOKEN", "HANGWATCH_TOKEN_FILE", "HANGWATCH_SECRET", "HANGWATCH_SECRET_FILE")
#: The resources of the sign-in page.
_SIGN_IN = frozenset({"/login", "/static/style.css", "/static/icon.svg"})
#: Where a browser may be sent after signing in: a path of this server, and no address of another.
_PATH = re.compile(r"(?:/[\w.-]+)*/?", re.ASCII)
_LEAST_CHARACTERS = 16
#: A page and its resources are about ten requests; Prometheus scrapes at most once per second; a token is typed by hand.
_REQUESTS_PER_S, _REQUESTS_AT_ONCE = 50.0, 300.0
_SIGN_INS_PER_S, _SIGN_INS_AT_ONCE = 0.2, 10.0
_HEADERS = {
    "Content-Security-Policy": PAGE_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class TokenError(PlainError):
    """A token that cannot be read or used; the message is one line with the repair."""


def read_token(environ: Mapping[str, str] = os.environ, variable: str = "HANGWATCH_TOKEN") -> str | None:
    """Return ``$HANGWATCH_TOKEN``, else the content of the file ``$HANGWATCH_TOKEN_FILE``; None if neither is set.

    ``variable``: the name of another variable, for the secret of the agents (``HANGWATCH_SECRET``).

    Raises:
        TokenError: the file cannot be read, or the token is too short.
    """
    what = variable.rpartition("_")[2].lower()
    token, file = environ.get(variable, ""), environ.get(f"{variable}_FILE", "")
    if not token and file:
        try:
            token = Path(file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is not text"
            raise TokenError(
                f"cannot read the {what} in {variable}_FILE={file}: {why}; name a readable file"
            ) from error
    elif not token:
        return None
    if len(token) < _LEAST_CHARACTERS or not token.isascii() or not token.isprintable():
        raise TokenError(
            f"the {what} must be at least {_LEAST_CHARACTERS} printable ASCII characters; create one with: openssl rand -hex 16"
        )
    return token


def is_loopback(host: str) -> bool:
    """True if the host of a URL is a loopback address."""
    name = host.strip("[]").lower().rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


class Access:
    """Guards one server. ``host``: the address it listens on."""

    def __init__(self, host: str, token: str | None) -> None:
        self._token = token
        self._local = is_loopback(host)
        self._requests = RateLimit(_REQUESTS_PER_S, _REQUESTS_AT_ONCE)
        self._sign_ins = RateLimit(_SIGN_INS_PER_S, _SIGN_INS_AT_ONCE)
        # Derived from the token: a leaked cookie does not reveal it, and stays valid after a restart of the agent.
        self._cookie = hmac.new((token or "").encode(), b"hangwatch page 1", hashlib.sha256).hexdigest()

    def attach(self, application: web.Application) -> None:
        """Guard all routes of the application."""
        application.middlewares.append(self._guard)
        application.on_response_prepare.append(_protect)
        application.router.add_post("/login", self._sign_in)

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if not self._requests.allows(request.remote or "", time.monotonic()):
            return _say(429, "Too many requests.")
        refused = None if request.path in OPEN_PATHS else self._refuse(request)
        return refused if refused is not None else await handler(request)

    def _refuse(self, request: web.Request) -> web.Response | None:
        if _from_elsewhere(request):
            return _say(403, "Cross-site request refused. Open the page directly.")
        if self._token is None:
            if not self._local:
                return _say(403, "No token is set, so only /metrics and the health endpoints are served on this address. "
                            "Start hangwatch with HANGWATCH_TOKEN or HANGWATCH_TOKEN_FILE.")  # fmt: skip
            if not is_loopback(_host_of(request)):
                return _say(
                    403,
                    "Without a token the page is served to localhost only. Set HANGWATCH_TOKEN, or open it at 127.0.0.1.",
                )
            return None
        if self._allowed(request, self._token) or request.path in _SIGN_IN:
            return None
        return _sign_in_page(401, request.path, NOTHING)

    def _allowed(self, request: web.Request, token: str) -> bool:
        scheme, _, said = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer" and _same(said.strip(), token):
            return True
        return _same(request.cookies.get(_cookie_name(request), ""), self._cookie)

    async def _sign_in(self, request: web.Request) -> web.Response:
        if not self._sign_ins.allows(request.remote or "", time.monotonic()):
            return _say(429, "Too many tries. Wait a minute.")
        form = await request.post()
        wanted = str(form.get("path", ""))
        wanted = wanted if _PATH.fullmatch(wanted) else "/"
        if self._token is None or not _same(str(form.get("token", "")), self._token):
            return _sign_in_page(403, wanted, Markup('<p role="alert">Wrong token.</p>'))
        # Relative to /login, so that it works under any path of a reverse proxy.
        answer = web.Response(status=303, headers={"Location": f".{wanted}"})
        answer.set_cookie(
            _cookie_name(request), self._cookie, httponly=True, samesite="Lax", secure=request.secure, path="/"
        )
        return answer


async def _protect(_: web.Request, answer: web.StreamResponse) -> None:
    """Add the default security headers to every response."""
    for name, value in _HEADERS.items():
        answer.headers.setdefault(name, value)


def _same(said: str, wanted: str) -> bool:
    return hmac.compare_digest(said.encode("utf-8", "replace"), wanted.encode())


def _cookie_name(request: web.Request) -> str:
    """Return a cookie name for this port.

    Browsers do not separate cookies by port, and a machine may have several agents.
    """
    return f"hangwatch_{request.url.port or 0}"


def _host_of(request: web.Request) -> str:
    name = request.headers.get("Host", "")
    return name.partition("]")[0] if name.startswith("[") else name.rpartition(":")[0] or name


def _from_elsewhere(request: web.Request) -> bool:
    """True if another site embeds or fetches this page; following a link is allowed."""
    site = request.headers.get("Sec-Fetch-Site", "none")
    navigates = request.method == "GET" and request.headers.get("Sec-Fetch-Mode") == "navigate"
    framed = request.headers.get("Sec-Fetch-Dest") in {"iframe", "frame", "embed", "object"}
    if site not in {"same-origin", "none"} and (framed or not navigates):
        return True
    origin = request.headers.get("Origin")
    return origin is not None and origin.partition("://")[2] != request.headers.get("Host", "")


def _say(status: int, words: str) -> web.Response:
    return web.Response(status=status, text=words + "\n")


def _sign_in_page(status: int, path: str, said: Markup) -> web.Response:
    """Return the sign-in page. ``path``: the requested path, shown after signing in."""
    # After a wrong token the browser is at /login, whatever was asked for first.
    root = "../" * (path.count("/") - 1) if status == 401 else ""
    body = Markup(
        '<section><h1>Sign in</h1>{said}<form method=post action="{root}login"><label for=token>Token of this agent'
        ' (HANGWATCH_TOKEN)</label><input id=token name=token type=password autocomplete="current-password" required autofocus>'
        '<input type=hidden name=path value="{path}"> <button>Sign in</button></form></section>'
    ).format(said=said, root=root, path=path)
    page = render_page("hangwatch: sign in", body, root=root, signed_in=False)
    return web.Response(status=status, text=page, content_type="text/html")
