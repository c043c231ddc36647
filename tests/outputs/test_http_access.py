"""Who may see the page, and what it sends: on a real server, by real requests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import aiohttp
import pytest
from examples import hang_capture, hang_incident

from hangwatch.model.live import LiveJob, LiveRank, LiveView
from hangwatch.outputs.bundle.bundle import write_bundle
from hangwatch.outputs.metrics.exposition import Metrics
from hangwatch.outputs.web.access import TokenError, read_token
from hangwatch.outputs.web.page import WebPage
from hangwatch.outputs.web.server import Health, start_server

pytestmark = pytest.mark.usefixtures("real")

T = TypeVar("T")
SECRET = "0123456789abcdef"  # noqa: S105  # of the test alone
EVERYWHERE = "0.0.0.0"  # noqa: S104  # that this is closed is what the tests show
ID = hang_incident().id


def view(state: str = "running") -> LiveView:
    """One job of two ranks."""
    return LiveView(1, (LiveJob("job", 2, ranks=(LiveRank(0, "n", 1, state), LiveRank(1, "n", 2, state))),))


def serve(
    state: Path,
    use: Callable[[str, aiohttp.ClientSession], Awaitable[T]],
    *,
    host: str = "127.0.0.1",
    token: str | None = None,
    live: Callable[[], LiveView] = view,
) -> T:
    """Run ``use`` against a server with a page; its address is given by loopback, whatever it listens on."""

    async def run() -> T:
        server = await start_server(host, 0, Metrics(), Health(lambda: {"ok": True}), WebPage(state, live), token)
        try:
            async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as client:
                return await use(server.url, client)
        finally:
            await server.stop()

    return asyncio.run(run())


def statuses(state: Path, asked: list[tuple[str, dict[str, str]]], **how: object) -> list[int]:
    """The statuses of GET requests, each a path and headers."""

    async def use(url: str, client: aiohttp.ClientSession) -> list[int]:
        found = []
        for path, headers in asked:
            async with client.get(url + path, headers=headers, allow_redirects=False) as answer:
                found.append(answer.status)
        return found

    return serve(state, use, **how)  # type: ignore[arg-type]


def test_loopback_is_open_and_says_what_it_may_load(tmp_path: Path) -> None:
    """WebPage, incident, files and assets answer, under a policy that allows nothing from elsewhere."""
    write_bundle(tmp_path, hang_incident(), hang_capture())
    paths = [
        "/",
        "/search?q=0-1",
        f"/incidents/{ID}",
        "/causes/fork-deadlock",
        "/static/style.css",
        "/static/page.js",
        "/static/icon.svg",
    ]
    paths += [f"/incidents/{ID}/{name}" for name in ("report.html", "incident.json", "issue.md", "stacks.txt")]

    async def use(url: str, client: aiohttp.ClientSession) -> list[tuple[int, str]]:
        found = []
        for path in paths:
            async with client.get(url + path) as answer:
                assert answer.headers["X-Content-Type-Options"] == "nosniff"
                found.append((answer.status, answer.headers["Content-Security-Policy"]))
        return found

    found = serve(tmp_path, use)
    assert {status for status, _ in found} == {200}
    assert all(policy.startswith("default-src 'none'") and "unsafe-eval" not in policy for _, policy in found)
    assert all("sandbox" in policy for _, policy in found[7:])


@pytest.mark.parametrize(
    "path",
    ["/incidents/none", "/incidents/..%2f..%2fetc", f"/incidents/{ID}/capture.json", f"/incidents/{ID}/..%2f{ID}%2fincident.json",
     "/static/..%2fshell.py", "/static/none.css"],
)  # fmt: skip
def test_nothing_else_of_the_disk_is_served(tmp_path: Path, path: str) -> None:
    """Other incidents, other files of a bundle, and ways up are not found."""
    write_bundle(tmp_path, hang_incident(), hang_capture())
    assert statuses(tmp_path, [(path, {})]) == [404]


def test_a_name_pointed_at_loopback_reads_nothing(tmp_path: Path) -> None:
    """Without a token the Host has to be loopback's (DNS rebinding); metrics are for whoever scrapes by whatever name."""
    evil = {"Host": "evil.example:80"}
    asked = [(path, evil) for path in ("/", "/events", "/search?q=0", f"/incidents/{ID}", "/metrics", "/healthz")]
    good = [("/", {"Host": host}) for host in ("localhost:1", "127.0.0.1", "[::1]:9753", "a.localhost")]
    assert statuses(tmp_path, [*asked, *good]) == [403, 403, 403, 403, 200, 200, 200, 200, 200, 200]


def test_another_site_may_link_here_and_nothing_more(tmp_path: Path) -> None:
    """Following a link is fine; fetching, embedding and framing are not."""
    cross = {"Sec-Fetch-Site": "cross-site"}
    asked = [
        ("/", {**cross, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}),
        ("/", {**cross, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}),
        ("/events", {**cross, "Sec-Fetch-Mode": "cors"}),
        ("/static/page.js", {**cross, "Sec-Fetch-Mode": "no-cors"}),
        ("/", {"Origin": "https://evil.example"}),
    ]
    assert statuses(tmp_path, asked) == [200, 403, 403, 403, 403]


def test_other_addresses_are_closed_without_a_token(tmp_path: Path) -> None:
    """All addresses of the machine: metrics and health alone, also for those who come by loopback."""
    asked = [
        (path, {})
        for path in ("/", "/events", f"/incidents/{ID}", "/login", "/metrics", "/healthz", "/livez?job=a", "/readyz")
    ]
    assert statuses(tmp_path, asked, host=EVERYWHERE) == [403, 403, 403, 403, 200, 200, 200, 200]


@pytest.mark.parametrize("host", ["127.0.0.1", EVERYWHERE])
def test_a_token_opens_everything_to_who_has_it(tmp_path: Path, host: str) -> None:
    """By header; a wrong or missing one gets the page to sign in, and nothing of the job."""
    write_bundle(tmp_path, hang_incident(), hang_capture())
    good = {"Authorization": f"Bearer {SECRET}", "Host": "node7.cluster:9753"}
    asked = [("/", good), (f"/incidents/{ID}", good), ("/", {}), ("/", {"Authorization": "Bearer wrong"}), ("/events", {}),
             ("/", {"Authorization": "Bearer "}), ("/", {"Cookie": "hangwatch_9753="}), ("/metrics", {})]  # fmt: skip
    assert statuses(tmp_path, asked, host=host, token=SECRET) == [200, 200, 401, 401, 401, 401, 401, 200]


def test_signing_in_gives_a_cookie_that_is_not_the_token(tmp_path: Path) -> None:
    """It is for this page alone, out of reach of scripts, and opens the page; a wrong token gives none."""

    async def use(url: str, client: aiohttp.ClientSession) -> tuple[int, int, str, int]:
        async with client.post(f"{url}/login", data={"token": "wrong"}) as wrong:
            assert "Set-Cookie" not in wrong.headers
        async with client.post(f"{url}/login", data={"token": SECRET}, allow_redirects=False) as right:
            cookie = right.headers["Set-Cookie"]
        async with client.get(url) as page:
            return wrong.status, right.status, cookie, page.status

    wrong, right, cookie, page = serve(tmp_path, use, token=SECRET)
    assert (wrong, right, page) == (403, 303, 200)
    assert SECRET not in cookie
    assert {"HttpOnly", "SameSite=Lax", "Path=/"} <= set(cookie.split("; "))


def test_no_other_site_signs_in(tmp_path: Path) -> None:
    """A form of another site that posts the token, or a guess at it, gets nothing, and no cookie is set."""
    sites = [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"},
    ]

    async def use(url: str, client: aiohttp.ClientSession) -> None:
        for headers in sites:
            form = {"token": SECRET, "path": "//evil.example/"}
            async with client.post(f"{url}/login", data=form, headers=headers, allow_redirects=False) as answer:
                assert (answer.status, answer.headers.get("Set-Cookie")) == (403, None)
        async with client.post(
            f"{url}/login", data={"token": SECRET, "path": "//evil.example/"}, allow_redirects=False
        ) as answer:
            assert (answer.status, answer.headers["Location"]) == (303, "./")

    serve(tmp_path, use, token=SECRET)


def test_a_token_cannot_be_guessed_by_trying(tmp_path: Path) -> None:
    """After ten tries at once no more are answered for a while, the right token neither."""

    async def use(url: str, client: aiohttp.ClientSession) -> list[int]:
        found = []
        for number in range(11):
            form = {"token": SECRET if number == 10 else f"{number:016}"}
            async with client.post(f"{url}/login", data=form, allow_redirects=False) as answer:
                found.append(answer.status)
        return found

    assert serve(tmp_path, use, token=SECRET) == [403] * 10 + [429]


def test_a_request_has_a_size(tmp_path: Path) -> None:
    """More than 1 KiB of body, 4 KiB of request line or 32 KiB in a header is refused; then the next request is answered."""

    async def use(url: str, client: aiohttp.ClientSession) -> list[int]:
        found = []
        large = "a" * 4096
        async with client.post(f"{url}/login", data={"token": large}) as answer:
            found.append(answer.status)
        for path, headers in ((f"/{large}", {}), ("/", {"X-Large": large * 9}), ("/", {})):
            async with client.get(url + path, headers=headers) as answer:
                found.append(answer.status)
        return found

    assert serve(tmp_path, use) == [413, 400, 400, 200]


def test_events_bring_what_has_changed_and_nothing_else(tmp_path: Path) -> None:
    """First the layout and every part, then only the parts that differ."""
    shown = [view()]

    async def use(url: str, client: aiohttp.ClientSession) -> tuple[list[str], list[str]]:
        async with client.get(f"{url}/events") as answer:
            assert answer.headers["Content-Type"].startswith("text/event-stream")

            async def parts_until(last: str) -> list[str]:
                found: list[str] = []
                async for line in answer.content:
                    if line.startswith(b"data: {"):
                        found.append(line.decode().split('"')[3].rpartition("-")[2])
                        if found[-1] == last:
                            break
                return found

            first = await parts_until("incidents")
            shown[0] = view("communicating")
            return first, await parts_until("ranks")

    first, then = serve(tmp_path, use, live=lambda: shown[0])
    assert first == ["head", "verdict", "ranks", "reasons", "groups", "stacks", "missing", "incidents"]
    assert then == ["verdict", "ranks"]


def test_the_number_of_open_pages_is_bounded(tmp_path: Path) -> None:
    """The 33rd is rejected with Retry-After, and accepted when another has disconnected."""

    async def use(url: str, client: aiohttp.ClientSession) -> list[int]:
        held = [await client.get(f"{url}/events") for _ in range(32)]
        async with client.get(f"{url}/events") as refused:
            found = [refused.status]
        for one in held:
            one.close()
        while True:
            async with client.get(f"{url}/events") as again:
                if again.status == 200:
                    return [*found, again.status]
            await asyncio.sleep(0.05)

    async def with_room(url: str, _: aiohttp.ClientSession) -> list[int]:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:
            return await use(url, client)

    assert serve(tmp_path, with_room) == [503, 200]


def test_the_token_comes_from_a_variable_or_a_file(tmp_path: Path) -> None:
    """The variable counts first; neither is no token."""
    file = tmp_path / "token"
    file.write_text(f"{SECRET}\n")
    assert read_token({}) is None
    assert read_token({"HANGWATCH_TOKEN_FILE": str(file)}) == SECRET
    assert read_token({"HANGWATCH_SECRET_FILE": str(file)}, "HANGWATCH_SECRET") == SECRET
    assert read_token({"HANGWATCH_TOKEN": SECRET}, "HANGWATCH_SECRET") is None
    assert read_token({"HANGWATCH_TOKEN": SECRET[::-1], "HANGWATCH_TOKEN_FILE": str(file)}) == SECRET[::-1]


@pytest.mark.parametrize(
    "environ", [{"HANGWATCH_TOKEN": "short"}, {"HANGWATCH_TOKEN": "é" * 20}, {"HANGWATCH_TOKEN_FILE": "/none"}]
)
def test_a_token_that_protects_nothing_is_one_line(environ: dict[str, str]) -> None:
    """Too short, not printable, or a file that is not there: an error with its repair, and no open page."""
    with pytest.raises(TokenError, match=r"openssl rand -hex 16|name a readable file") as caught:
        read_token(environ)
    assert "\n" not in str(caught.value)
