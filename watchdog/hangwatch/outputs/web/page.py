"""The agent's page: what stands now, live; and every stored incident. May import the model, the other outputs and aiohttp.

All work that grows with the job is done in a thread: the agent's tick shares our event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from aiohttp import web
from markupsafe import Markup

from hangwatch.model.live import LiveView
from hangwatch.outputs.archive import Archive
from hangwatch.outputs.bundle.bundle import BundleError, is_incident_id, read_bundle
from hangwatch.outputs.html.elements import listing
from hangwatch.outputs.html.incident import render_incident
from hangwatch.outputs.html.live import lay_out, render_parts
from hangwatch.outputs.html.report import title_of
from hangwatch.outputs.html.shell import read_asset, render_page
from hangwatch.outputs.web.events import Events
from hangwatch.outputs.web.history import History

log = logging.getLogger("hangwatch")

_PERIOD_S = 1.0
_ASSETS = {"style.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}
#: Files of a bundle that are handed out, and as what.
_FILES = {
    "report.html": "text/html",
    "incident.json": "application/json",
    "stacks.txt": "text/plain",
    "stacks.speedscope.json": "application/json",
}
#: A bundle may have come from anywhere: whatever its report holds may not run, nor speak for this address.
_FILE_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox allow-popups; frame-ancestors 'none'"
)


class Page:
    """One agent's page. ``live`` tells how things stand; it is called about once a second and must not block.

    ``history``: what has been seen already, where there is such.
    """

    def __init__(self, state_dir: Path, live: Callable[[], LiveView], history: History | None = None) -> None:
        self._state_dir = state_dir
        self._live = live
        self._archive = Archive(state_dir)
        self._events = Events()
        self._history = history or History()
        self._rendering = asyncio.Lock()

    def attach(self, application: web.Application) -> None:
        """Add the routes, and the task that keeps the page current while the application runs."""
        application.router.add_get("/", self._index)
        application.router.add_get("/events", self._events.answer)
        application.router.add_get("/static/{name}", _asset)
        application.router.add_get("/incidents/{id}", self._incident)
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
        """Nothing but our own end may stop the task; if something has, a page that stands still must not look alive."""
        if not task.cancelled() and task.exception() is not None:
            log.error("the page is not kept current any more", exc_info=task.exception())
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
        points = self._history.points()

        def render() -> dict[str, Markup]:
            return render_parts(view, points, self._archive.list())

        async with self._rendering:  # the archive is for one at a time
            return await asyncio.to_thread(render)

    async def _index(self, _: web.Request) -> web.Response:
        parts = lay_out(await self._render(self._live()))
        return _html(render_page("hangwatch", Markup('<div id="parts">{}</div>').format(parts), live=True))

    async def _incident(self, request: web.Request) -> web.Response:
        folder = self._folder(request)

        def render() -> Markup:
            incident, capture = read_bundle(folder)
            if incident is None:
                raise web.HTTPNotFound(text="this incident's document cannot be read\n")
            there = [name for name in _FILES if (folder / name).is_file()]
            files = listing(
                (Markup('<a href="{0}/{1}">{1}</a>').format(incident.id, name) for name in there), css="files"
            )
            body = render_incident(incident, capture) + Markup("<section><h2>Files</h2>{}</section>").format(files)
            return render_page(title_of(incident), body, root="../")

        try:
            return _html(await asyncio.to_thread(render))
        except BundleError as error:
            raise web.HTTPNotFound(text=f"{error}\n") from error

    async def _file(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]  # decoded: it may hold a slash, and is none of ours then
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


async def _asset(request: web.Request) -> web.Response:
    name = request.match_info["name"]
    if name not in _ASSETS:
        raise web.HTTPNotFound(text="no such file\n")
    return web.Response(text=read_asset(name), content_type=_ASSETS[name])


def _html(page: Markup) -> web.Response:
    body = page.encode("utf-8", "backslashreplace")
    return web.Response(body=body, content_type="text/html", charset="utf-8")
