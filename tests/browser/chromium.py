"""A real headless Chromium, driven by its DevTools protocol over aiohttp's websocket.

Protocol: https://chromedevtools.github.io/devtools-protocol/ (domains Target, Page, Runtime, Log, Network, Emulation,
Input, all of them long stable). Nothing outside this machine can be reached: every other host name resolves to nothing.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from support import JobRunner, wait_for

#: What in a page is hard to read, and what is cut or has to be scrolled sideways.
SHORTCOMINGS = (Path(__file__).parent / "shortcomings.js").read_text(encoding="utf-8")
#: A phone, a tablet, a laptop, a large screen.
WIDTHS = (390, 768, 1280, 1920)
#: Where CI finds the pictures; not kept in the repository.
SCREENSHOTS = Path(__file__).resolve().parents[2] / "build" / "screenshots"
#: No sandbox, as CI is root; one process where it may be; nothing that fetches, or slows what is not in the foreground.
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--in-process-gpu", "--disable-software-rasterizer", "--no-zygote",
    "--disable-dev-shm-usage", "--disable-extensions", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--disable-hang-monitor", "--disable-renderer-backgrounding", "--disable-background-timer-throttling",
    "--disable-backgrounding-occluded-windows", "--no-first-run", "--mute-audio", "--remote-debugging-port=0",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1 , EXCLUDE localhost",
)  # fmt: skip
_START_S, _ANSWER_S = 240.0, 240.0


def find_chromium() -> str:
    """The browser's program. One that is missing is a failure: these tests are not for skipping."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert found is not None, "no Chromium: make test installs it on Debian, or: apt-get install chromium"
    return found


def start_chromium(jobs: JobRunner, profile: Path) -> str:
    """Start a browser with a profile of its own; returns the address of its DevTools."""
    command = [find_chromium(), *_FLAGS, f"--user-data-dir={profile}", "about:blank"]
    job = jobs.start(command, env={"HOME": str(profile), "NO_COLOR": None})
    port = profile / "DevToolsActivePort"

    def address() -> str | None:
        assert job.process.poll() is None, job.stderr()[-2000:]
        lines = port.read_text().split() if port.exists() else []
        return f"ws://127.0.0.1:{lines[0]}{lines[1]}" if len(lines) == 2 else None

    return wait_for(address, _START_S, "Chromium's DevTools") or ""


class PageLeftError(Exception):
    """The browser has gone on to another page while this one was asked."""


@dataclass
class Tab:
    """A page of the browser. ``problems``: console errors, exceptions, dialogs; ``requests``: the addresses asked for."""

    socket: aiohttp.ClientWebSocketResponse
    session: str = ""
    problems: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    _answers: dict[int, asyncio.Future[dict[str, Any]]] = field(default_factory=dict)
    _loaded: asyncio.Event = field(default_factory=asyncio.Event)

    async def call(self, method: str, **parameters: object) -> dict[str, Any]:
        """One command and its result."""
        number = next(self._numbers)
        message: dict[str, object] = {"id": number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        self._answers[number] = asyncio.get_running_loop().create_future()
        await self.socket.send_json(message)
        answer = await asyncio.wait_for(self._answers[number], _ANSWER_S)
        if "navigated" in str(answer.get("error")):
            raise PageLeftError(method)
        assert "error" not in answer, f"{method}: {answer.get('error')}"
        return dict(answer["result"])

    async def listen(self) -> None:
        """Take in answers and events until the connection ends."""
        async for message in self.socket:
            if message.type is not aiohttp.WSMsgType.TEXT:
                continue
            said = message.json()
            waiting = self._answers.pop(said.get("id", 0), None)
            if waiting is not None and not waiting.done():
                waiting.set_result(said)
            self._note(said.get("method", ""), said.get("params", {}))

    def _note(self, method: str, reported: dict[str, Any]) -> None:
        if method == "Page.loadEventFired":
            self._loaded.set()
        elif method == "Network.requestWillBeSent":
            self.requests.append(reported["request"]["url"])
        elif method == "Page.javascriptDialogOpening":
            self.problems.append(f"dialog: {reported['message']}")
        elif method == "Runtime.exceptionThrown":
            self.problems.append(f"exception: {reported['exceptionDetails']}")
        elif method == "Runtime.consoleAPICalled" and reported["type"] in {"error", "warning", "assert"}:
            self.problems.append(f"console: {reported['args']}")
        elif method == "Log.entryAdded" and reported["entry"]["level"] in {"error", "warning"}:
            self.problems.append(f"log: {reported['entry']['text']} {reported['entry'].get('url', '')}")

    async def open(self, address: str) -> None:
        """Go there and wait until it is loaded."""
        self._loaded.clear()
        await self.call("Page.navigate", url=address)
        await asyncio.wait_for(self._loaded.wait(), _ANSWER_S)

    async def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page (promises are awaited)."""
        result = await self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    async def wait_for(self, condition: str, timeout_s: float = 240.0) -> Any:
        """The first truthy value of an expression; asked for again with every drawn frame of the page."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        while True:
            try:
                value = await self.evaluate(condition)
                if not value:
                    await self.evaluate("new Promise(done => setTimeout(done, 50))")
            except PageLeftError:
                value = None
            if value:
                return value
            assert asyncio.get_running_loop().time() < deadline, f"not true after {timeout_s} s: {condition}"

    async def press(self, key: str, code: int) -> None:
        """One key, as a keyboard sends it."""
        text = {"text": "\r"} if key == "Enter" else {}
        reported = {"key": key, "code": key, "windowsVirtualKeyCode": code, **text}
        await self.call("Input.dispatchKeyEvent", type="keyDown", **reported)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **reported)

    async def look(self, *, dark: bool = False, width: int = 1280, height: int = 900) -> None:
        """The viewport and colour scheme from now on; nothing moves."""
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        features = [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]
        await self.call("Emulation.setEmulatedMedia", features=features)

    async def picture(self, width: int | None = None, height: int | None = None, top: int = 0) -> bytes:
        """The page as PNG: all of it, or so much from ``top`` on."""
        part = {} if height is None else {"clip": {"x": 0, "y": top, "width": width, "height": height, "scale": 1}}
        taken = await self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, **part)
        return base64.b64decode(taken["data"])

    async def shoot(self, name: str) -> Path:
        """A picture of the whole page in ``build/screenshots``."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        file = SCREENSHOTS / f"{name}.png"
        file.write_bytes(await self.picture())
        assert file.stat().st_size > 10_000
        return file


@asynccontextmanager
async def browse(address: str) -> AsyncIterator[Tab]:
    """A new tab of the browser at ``address``, with cookies and a cache of its own; closed at the end."""
    async with aiohttp.ClientSession() as client, client.ws_connect(address, max_msg_size=0) as socket:
        tab = Tab(socket)
        listening = asyncio.create_task(tab.listen())
        try:
            context = (await tab.call("Target.createBrowserContext"))["browserContextId"]
            made = await tab.call("Target.createTarget", url="about:blank", browserContextId=context)
            tab.session = (await tab.call("Target.attachToTarget", targetId=made["targetId"], flatten=True))[
                "sessionId"
            ]
            for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
                await tab.call(f"{domain}.enable")
            await tab.call(
                "Emulation.setScrollbarsHidden", hidden=True
            )  # as on a phone: a picture ends where the page does
            await tab.look()
            yield tab
            tab.session = ""
            await tab.call("Target.disposeBrowserContext", browserContextId=context)
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)


#: Buttons, links, pictures and regions of the accessibility tree that have no name.
_NAMED_ROLES = frozenset(
    {"button", "link", "searchbox", "image", "img", "textbox", "region", "DisclosureTriangle", "heading"}
)


async def unnamed(tab: Tab) -> list[str]:
    """Roles of what a screen reader meets and cannot name."""
    nodes = (await tab.call("Accessibility.getFullAXTree"))["nodes"]
    return [
        node["role"]["value"]
        for node in nodes
        if not node.get("ignored")
        and node.get("role", {}).get("value") in _NAMED_ROLES
        and not node.get("name", {}).get("value", "").strip()
    ]
