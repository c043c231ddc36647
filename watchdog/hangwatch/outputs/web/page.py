"""The agent's page: the live view and every stored incident. May import the model, the other outputs and aiohttp.

Work that grows with the size of the job runs in a thread, because the agent's tick shares the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from aiohttp import web
from markupsafe import Markup

from hangwatch.model.capture import Capture
from hangwatch.model.incident import Incident
from hangwatch.model.live import LiveView
from hangwatch.outputs.archive import Archive
from hangwatch.outputs.bundle.bundle import BundleError, is_incident_id, read_bundle
from hangwatch.outputs.html.cause_page import render_cause_page
from hangwatch.outputs.html.elements import copy_link, listing, section
from hangwatch.outputs.html.incident import render_incident
from hangwatch.outputs.html.live import lay_out, render_parts
from hangwatch.outputs.html.search import render_found
from hangwatch.outputs.html.shell import MAX_QUERY, read_asset, render_page
from hangwatch.outputs.markdown.report import BRIEF, render_markdown
from hangwatch.outputs.web.events import Events
from hangwatch.outputs.web.history import ProgressHistory
from hangwatch.outputs.wording import title_of

log = logging.getLogger("hangwatch")

_PERIOD_S = 1.0
_ASSETS = {"style.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}
#: Files of a bundle that are served, with their content types.
_FILES = {
    "report.html": "text/html",
    "incident.json": "application/json",
    "stacks.txt": "text/plain",
    "native_stacks.txt": "text/plain",
}
#: From an incident and a cause to the root of the agent.
_ROOT = "../"
#: A bundle is untrusted: its report must not run scripts or act with the origin of this server.
_FILE_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox allow-popups; frame-ancestors 'none'"
)


class WebPage:
    """The page of one agent. ``live`` returns the current state; it is called about once per second and must not block.

    ``history``: progress recorded earlier, if any.
    """

    def __init__(self, state_dir: Path, live: Callable[[], LiveView], history: ProgressHistory | None = None) -> None:
        self._state_dir = state_dir
        self._live = live
        self._archive = Archive(state_dir)
        self._events = Events()
        self._history = history or ProgressHistory()
        #: One thread renders at a time: the archive is not thread-safe, and readers must not take the node's cores.
        self._rendering = asyncio.Lock()

    def attach(self, application: web.Application) -> None:
        """Add the routes, and the task that keeps the page up to date while the application runs."""
        application.router.add_get("/", self._index)
        application.router.add_get("/events", self._events.answer)
        application.router.add_get("/search", self._search)
        application.router.add_get("/static/{name}", _asset)
        application.router.add_get("/causes/{id}", _cause)
        application.router.add_get("/incidents/{id}", self._incident)
        application.router.add_get("/incidents/{id}/issue.md", self._issue)
        application.router.add_get("/incidents/{id}/{name}", self._file)
        application.cleanup_ctx.append(self._running)
        application.on_shutdown.append(self._close)

    async def _running(self, _: web.Application) -> AsyncIterator[None]:
        task = asyncio.create_task(self._keep_current())
        task.add_done_callback(self._stopped)
        yield
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    def _stopped(self, task: asyncio.Task[None]) -> None:
        """Close the connections if the task has failed: a frozen page must not look live."""
        if not task.cancelled() and task.exception() is not None:
            log.error("the page has stopped updating", exc_info=task.exception())
            self._events.close()

    async def _close(self, _: web.Application) -> None:
        self._events.close()

    async def _keep_current(self) -> None:
        while True:
            view = self._live()
            self._history.remember(view)
            if self._events.watched:
                parts = await self._render(view)
                self._events.publish({id: str(html) for id, html in parts.items()})
            await asyncio.sleep(_PERIOD_S)

    async def _render(self, view: LiveView) -> dict[str, Markup]:
        progress = self._history.progress()

        def render() -> dict[str, Markup]:
            return render_parts(view, progress, self._archive.list())

        async with self._rendering:
            return await asyncio.to_thread(render)

    async def _index(self, _: web.Request) -> web.Response:
        parts = lay_out(await self._render(self._live()))
        places = Markup('<div id="found" hidden></div><div id="parts">{}</div>').format(parts)
        return _html(render_page("hangwatch", places, live=True))

    async def _search(self, request: web.Request) -> web.Response:
        query = request.query.get("q", "").strip()[:MAX_QUERY]
        if not query:
            raise web.HTTPBadRequest(text="no query: search?q=RANKS or a name\n")
        async with self._rendering:
            return _html(await asyncio.to_thread(render_found, self._live(), query))

    async def _incident(self, request: web.Request) -> web.Response:
        folder = self._folder(request)

        def render() -> Markup:
            incident, capture = _read(folder)
            available = [name for name in _FILES if (folder / name).is_file()]
            files = listing(
                (Markup('<a href="{0}/{1}">{1}</a>').format(incident.id, name) for name in available), css="files"
            )
            actions = copy_link(f"{incident.id}/issue.md")
            body = render_incident(incident, capture, root=_ROOT, actions=actions)
            return render_page(title_of(incident), body + section("Files", files), root=_ROOT)

        return _html(await asyncio.to_thread(render))

    async def _issue(self, request: web.Request) -> web.Response:
        folder = self._folder(request)

        def render() -> str:
            return render_markdown(_read(folder)[0], BRIEF)

        headers = {"Content-Security-Policy": _FILE_POLICY}
        return web.Response(text=await asyncio.to_thread(render), content_type="text/plain", headers=headers)

    async def _file(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]  # decoded, so it may contain a slash: then it matches no known file
        kind = _FILES.get(name)
        file = self._folder(request) / name
        if kind is None or not file.is_file():
            raise web.HTTPNotFound(text="no such file\n")
        headers = {"Content-Type": f"{kind}; charset=utf-8", "Content-Security-Policy": _FILE_POLICY}
        return web.FileResponse(file, headers=headers)

    def _folder(self, request: web.Request) -> Path:
        name = request.match_info["id"]
        if not is_incident_id(name):
            raise web.HTTPNotFound(text="no such incident\n")
        return self._state_dir / "incidents" / name


def _read(folder: Path) -> tuple[Incident, Capture | None]:
    try:
        incident, capture = read_bundle(folder)
    except BundleError as error:
        raise web.HTTPNotFound(text=f"{error}\n") from error
    if incident is None:
        raise web.HTTPNotFound(text="cannot read incident.json of this incident\n")
    return incident, capture


async def _cause(request: web.Request) -> web.Response:
    cause = request.match_info["id"]
    body = await asyncio.to_thread(render_cause_page, cause)
    if body is None:
        raise web.HTTPNotFound(text="no such cause\n")
    return _html(render_page(f"{cause} - hangwatch", body, root=_ROOT))


async def _asset(request: web.Request) -> web.Response:
    name = request.match_info["name"]
    if name not in _ASSETS:
        raise web.HTTPNotFound(text="no such file\n")
    return web.Response(text=read_asset(name), content_type=_ASSETS[name])


def _html(page: Markup) -> web.Response:
    body = page.encode("utf-8", "backslashreplace")
    return web.Response(body=body, content_type="text/html", charset="utf-8")
