"""The site of the documentation in a real browser, served as any web server serves files."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from chromium import browse

from documentation import make_site

#: Of the article, margins included.
_END_OF_TEXT = "document.querySelector('article').lastElementChild.getBoundingClientRect().bottom"


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def address(real: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the site is served, ending in a slash."""
    site = tmp_path_factory.mktemp("site")
    make_site(site)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(site))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.mark.asyncio
async def test_a_cause_is_found_and_nothing_is_loaded_from_elsewhere(chromium: str, address: str) -> None:
    """Somebody types what the verdict says; the page of the cause fits a phone, in the dark."""
    async with browse(chromium) as tab:
        await tab.open(address)
        await tab.shoot("site")
        await tab.evaluate("document.querySelector('input.md-search__input').focus()")
        await tab.call("Input.insertText", text="forked child waits for a lock")
        await tab.press("End", 35)  # the page looks again when a key comes up: the text may come after its index
        found = await tab.wait_for("document.querySelector('.md-search-result__link')?.href")
        assert found.startswith(f"{address}causes/fork-deadlock/")
        await tab.look(dark=True, width=400)
        await tab.open(f"{address}causes/fork-deadlock/")
        assert await tab.evaluate("document.body.dataset.mdColorScheme") == "slate"
        assert await tab.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        await tab.shoot("site-cause-phone")
        assert [one for one in tab.requests if not one.startswith((address, "data:"))] == []
        assert tab.problems == []


@pytest.mark.asyncio
async def test_what_to_do_now_fits_one_screen(chromium: str, address: str) -> None:
    """At three in the morning nobody scrolls: the page ends above the lower edge of a small laptop's screen, and a usual one."""
    async with browse(chromium) as tab:
        for width, height in ((1280, 720), (1440, 900)):
            await tab.look(width=width, height=height)
            await tab.open(f"{address}now/")
            ends_at = await tab.evaluate(_END_OF_TEXT)
            print(f"at {width}x{height} the page ends at {ends_at:.0f}")
            await tab.shoot(f"site-now-{width}")
            assert 0 < ends_at <= height
        assert tab.problems == []
