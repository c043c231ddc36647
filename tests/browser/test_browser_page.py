"""The agent's page in a real Chromium: live on a real job, at the size of a rack and of a fleet, behind its token."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from chromium import SHORTCOMINGS, WIDTHS, Tab, browse, unnamed
from hangs import (
    fleet,
    hang_of_eight,
    hang_of_many,
    hang_with_text,
    healthy,
    history_of,
    past_incidents,
    view_of,
    view_of_several,
)

from hangwatch.demos import find_scenario
from hangwatch.model.live import LiveView
from hangwatch.outputs.bundle.bundle import write_bundle
from hangwatch.outputs.markdown.report import BRIEF, render_markdown
from hangwatch.outputs.metrics.exposition import Metrics
from hangwatch.outputs.web.history import ProgressHistory
from hangwatch.outputs.web.page import WebPage
from hangwatch.outputs.web.server import Health, start_server
from support import JobRunner

_SUMMARY = "document.querySelector('.banner .summary')?.textContent"


@asynccontextmanager
async def served(
    state: Path,
    view: LiveView | Callable[[], LiveView],
    token: str | None = None,
    history: ProgressHistory | None = None,
) -> AsyncIterator[str]:
    """The address of a server whose page shows ``view``."""
    live = view if callable(view) else lambda: view
    server = await start_server("127.0.0.1", 0, Metrics(), Health(dict), WebPage(state, live, history), token)
    try:
        yield server.url
    finally:
        await server.stop()


@pytest.mark.asyncio
async def test_the_page_follows_a_real_hang(chromium: str, jobs: JobRunner, tmp_path: Path) -> None:
    """Opened while the job runs well, it shows the proven deadlock without being loaded again, then that the agent is gone."""
    scenario = find_scenario("group-order")
    assert scenario is not None
    options = ("--state-dir", tmp_path / "state")
    job = jobs.hangwatch("run", *options, "--", *scenario.command(), env=dict(scenario.full_environment()))
    found = re.search(r"page at (http://\S+)", job.wait_for_output("page at http"))
    assert found is not None
    async with browse(chromium) as tab:
        await tab.open(found[1])
        await tab.evaluate("window.stayed = true")
        await tab.wait_for("document.querySelector('#connection').className === 'live'")
        await tab.wait_for("document.querySelector('.banner .kind strong')?.textContent === 'Deadlock'")
        assert await tab.evaluate("window.stayed")
        assert (await tab.evaluate("document.title")).startswith("Deadlock: ")
        sources = await tab.evaluate("[...document.querySelectorAll('.side .line')].map(e => e.textContent)")
        assert len(sources) == 2
        assert all("all_reduce" in source for source in sources)
        assert {"policy", "value"} <= set(
            await tab.wait_for("[...document.querySelectorAll('.group-card h3 code')].map(e => e.textContent)")
        )
        link = await tab.wait_for("document.querySelector('.incidents a')?.href")
        await tab.open(link)
        assert await tab.wait_for(_SUMMARY)
        assert await tab.evaluate("document.querySelectorAll('.files a').length") == 3
        assert tab.problems == []
        await tab.open(found[1])
        await tab.wait_for("document.querySelector('#connection').className === 'live'")
        jobs.end_all()
        await tab.wait_for("document.querySelector('#connection').className === 'lost'")


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("state", "make"),
    [
        ("healthy", healthy),
        pytest.param("hung", lambda: view_of(*hang_of_eight()), marks=pytest.mark.soak),
        ("two-jobs", view_of_several),
        pytest.param("1024-ranks", lambda: view_of(*hang_of_many(1024)), marks=pytest.mark.soak),
        ("4096-ranks", lambda: view_of(*hang_of_many(4096))),
    ],
)
async def test_the_page_can_be_read_on_any_screen(
    chromium: str, tmp_path: Path, state: str, make: Callable[[], LiveView]
) -> None:
    """Phone, tablet, laptop and large screen, light and dark: nothing is cut, everything has contrast and a name."""
    view = make()
    for incident in (one for job in view.jobs if job.incident is not None for one in past_incidents(job.incident)):
        write_bundle(tmp_path, incident, None)
    async with served(tmp_path, view, history=history_of(view)) as url, browse(chromium) as tab:
        for width in WIDTHS:
            for scheme in ("light", "dark"):
                await tab.look(dark=scheme == "dark", width=width)
                await tab.open(url)
                await tab.wait_for("document.querySelector('#connection').className === 'live'")
                await tab.shoot(f"page-{state}-{width}-{scheme}")
                assert await tab.evaluate(SHORTCOMINGS) == [], f"{width} px, {scheme}"
        assert await unnamed(tab) == []
        assert {address.split("/")[2] for address in tab.requests if "://" in address} == {url.split("/")[2]}
        assert tab.problems == []


@pytest.mark.asyncio
async def test_several_jobs_are_distinguished(chromium: str, tmp_path: Path) -> None:
    """The job that hangs comes first, each has a line above that leads to it, and is called as its script."""
    async with served(tmp_path, view_of_several()) as url, browse(chromium) as tab:
        await tab.open(url)
        names = await tab.evaluate("[...document.querySelectorAll('h1 > bdi')].map(e => e.textContent)")
        assert names == ["reranker.py", "finetune.py"]
        targets = await tab.evaluate(
            "[...document.querySelectorAll('.jobs a')].map(e => !!document.querySelector(e.hash))"
        )
        assert targets == [True, True]


@pytest.mark.asyncio
async def test_a_healthy_job_says_how_it_gets_on(chromium: str, tmp_path: Path) -> None:
    """Its pace, its last progress, and after how long a stall is reported."""
    view = healthy()
    async with served(tmp_path, view, history=history_of(view)) as url, browse(chromium) as tab:
        await tab.open(url)
        assert await tab.evaluate(_SUMMARY) == "18 collectives a second."
        facts = await tab.evaluate("document.querySelector('.banner .facts').innerText")
        assert "just now" in facts
        assert "34 s (as you set it)" in facts


@pytest.mark.asyncio
async def test_an_incident_leads_to_its_cause_and_is_copied_as_an_issue(chromium: str, tmp_path: Path) -> None:
    """From the live page: the page of the cause; the Markdown in the clipboard; times in the reader's own zone."""
    incident, capture = hang_of_eight()
    write_bundle(tmp_path, incident, capture)
    async with served(tmp_path, view_of(incident, capture)) as url, browse(chromium) as tab:
        await tab.call("Emulation.setFocusEmulationEnabled", enabled=True)
        await tab.call("Emulation.setTimezoneOverride", timezoneId="Asia/Tokyo")
        await tab.open(url)
        assert "GMT+9" in await tab.wait_for("document.querySelector('.banner time').title")
        await tab.evaluate("document.querySelector('a[data-copy]').focus()")
        await tab.press("Enter", 13)
        await tab.wait_for("document.querySelector('.actions [role=status]').textContent === 'Copied'")
        await tab.evaluate("document.body.append(document.createElement('textarea'))")
        await tab.evaluate("document.querySelector('textarea').focus()")
        await tab.call("Input.dispatchKeyEvent", type="keyDown", key="v", modifiers=2, commands=["paste"])
        pasted = await tab.wait_for("document.querySelector('textarea').value")
        assert pasted == render_markdown(incident, BRIEF)
        await tab.open(await tab.evaluate("document.querySelector('#cause a').href"))
        headings = await tab.evaluate("[...document.querySelectorAll('h2')].map(e => e.textContent)")
        assert headings == ["Symptom", "Mechanism", "Evidence", "Remedy", "Links"]
        for width in WIDTHS:
            await tab.look(width=width, dark=width == WIDTHS[0])
            await tab.shoot(f"cause-{width}")
            assert await tab.evaluate(SHORTCOMINGS) == []
        await tab.open(f"{url}/incidents/{incident.id}")
        await tab.shoot("incident-page")
        assert await unnamed(tab) == []
        assert tab.problems == []


@pytest.mark.asyncio
async def test_a_node_without_jobs_says_so(chromium: str, tmp_path: Path) -> None:
    """An empty page says how to start a job, and that there are no incidents."""
    async with served(tmp_path, LiveView(1)) as url, browse(chromium) as tab:
        await tab.open(url)
        assert "hangwatch run" in await tab.evaluate("document.querySelector('.banner').textContent")
        assert "No incidents so far" in await tab.evaluate("document.querySelector('#incidents').textContent")
        assert await unnamed(tab) == []
        assert tab.problems == []


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "text",
    [
        "<script>owned = 1</script><img src=x onerror='owned = 1'><svg onload='owned = 1'>",
        "</title></style></code><a href='javascript:owned = 1'>\"' onfocus='owned = 1' autofocus='",
        "\x1b[2J\u202e\u05d0\u05d1" + "long" * 500,
    ],
    ids=["elements", "attributes", "reordered and long"],
)
async def test_text_of_a_job_does_nothing(chromium: str, tmp_path: Path, text: str) -> None:
    """Whatever a job calls itself: nothing runs or is fetched, and page, incident and report fit a phone."""
    incident, capture = hang_with_text(text)
    report = write_bundle(tmp_path, incident, capture) / "report.html"
    async with served(tmp_path, view_of(incident, capture)) as url, browse(chromium) as tab:
        await tab.look(width=390, height=844)
        for address in (url, f"{url}/incidents/{incident.id}", report.as_uri()):
            await tab.open(address)
            await tab.wait_for(_SUMMARY)
            assert await tab.evaluate("typeof owned") == "undefined"
            assert await tab.evaluate("document.documentElement.scrollWidth <= innerWidth"), address
        asked = {found.split("/")[2] for found in tab.requests if found.startswith(("http:", "https:"))}
        assert asked == {url.split("/")[2]}
        assert tab.problems == []


@pytest.mark.asyncio
async def test_a_token_is_asked_for_once(chromium: str, tmp_path: Path) -> None:
    """The page to sign in takes the token by the keyboard and leads to what was asked for; a wrong one leads nowhere."""
    incident, capture = hang_of_eight()
    write_bundle(tmp_path, incident, capture)
    token = "-".join(["a", "token", "of", "enough", "characters"])
    async with served(tmp_path, view_of(incident, capture), token) as url, browse(chromium) as tab:
        await tab.open(f"{url}/incidents/{incident.id}")
        await tab.wait_for("document.activeElement.id === 'token'")
        await tab.shoot("sign-in")
        assert await unnamed(tab) == []
        assert incident.verdict.summary not in await tab.evaluate("document.documentElement.outerHTML")
        for typed, seen in (("wrong", "[role=alert]"), (token, ".banner .summary")):
            await tab.call("Input.insertText", text=typed)
            await tab.press("Enter", 13)
            await tab.wait_for(f"document.querySelector('{seen}') !== null && document.readyState === 'complete'")
        assert await tab.evaluate("location.href") == f"{url}/incidents/{incident.id}"
        await tab.open(url)
        await tab.wait_for("document.querySelector('#connection').className === 'live'")
        assert token not in await tab.evaluate("document.cookie + location.href")


#: Sections of what was found, and the first column of its tables.
_TITLES = "[...document.querySelectorAll('#found h2')].map(e => e.textContent)"
_ROWS = "[...document.querySelectorAll('#found tbody tr')].map(e => e.cells[0].textContent)"


async def _search(tab: Tab, query: str, seen: str) -> None:
    """Type a query over what was typed before, and wait until ``seen`` is in what was found."""
    await tab.press("/", 191)
    await tab.wait_for("document.activeElement.id === 'search'")
    await tab.evaluate("document.activeElement.select()")
    await tab.call("Input.insertText", text=query)
    await tab.wait_for(f"!document.getElementById('found').hidden && {_FOUND}.includes({seen!r})")


_FOUND = "document.getElementById('found').textContent"


@pytest.mark.asyncio
async def test_ranks_and_groups_of_a_fleet_are_found(chromium: str, tmp_path: Path) -> None:
    """By number, node, group and state; by the keyboard alone, and read out; nothing stays of it."""
    async with served(tmp_path, fleet(4096)) as url, browse(chromium) as tab:
        await tab.call("Emulation.setFocusEmulationEnabled", enabled=True)
        await tab.open(url)
        await tab.wait_for("document.querySelector('#connection').className === 'live'")
        below = await tab.evaluate("scrollTo(0, 900), scrollY")
        field = await tab.evaluate("JSON.stringify(document.getElementById('search').getBoundingClientRect())")

        await _search(tab, "2730", "gpu-0341")
        assert await tab.evaluate("document.getElementById('parts').hidden")
        assert await tab.evaluate(_ROWS) == ["2730 culprit", "default_pg", "mesh_tp [2728-2735]"]
        assert await tab.evaluate("document.getElementById('hits').textContent") == (
            "1 of 4096 ranks, 2 of 513 process groups"
        )
        await _search(tab, "5,9", "2 of 4096 ranks")
        assert (await tab.evaluate(_ROWS))[:2] == ["5", "9"]
        await _search(tab, "gpu-0341", "8 of 4096 ranks")
        assert (await tab.evaluate(_ROWS))[:2] == ["2730 culprit", "2728"]
        await _search(tab, "MESH_TP [40-47]", "1 of 513 process groups")
        assert (await tab.evaluate(_ROWS))[:9] == [*map(str, range(40, 48)), "mesh_tp [40-47]"]
        await _search(tab, "waiting", "4095 of 4096 ranks")
        assert await tab.evaluate("document.querySelectorAll('#found svg .s-waiting, #found svg .s-other').length") == 2
        await tab.shoot("search-many")
        assert await unnamed(tab) == []
        assert await tab.evaluate(SHORTCOMINGS) == []
        await _search(tab, "gpu-9999", "No rank, node, group or state matches gpu-9999.")
        assert await tab.evaluate(f"{_TITLES}.length") == 0

        await tab.press("Escape", 27)
        assert await tab.evaluate("document.getElementById('found').hidden && !document.getElementById('search').value")
        assert await tab.evaluate("scrollY") == below
        await tab.press("/", 191)
        await tab.press("Escape", 27)
        assert await tab.evaluate("scrollY") == below
        moved = "scrollTo(0, 900), JSON.stringify(document.getElementById('search').getBoundingClientRect())"
        assert await tab.evaluate(moved) == field
        assert await tab.evaluate("location.href") == f"{url}/"
        assert tab.problems == []


@pytest.mark.asyncio
async def test_what_is_found_follows_the_job(chromium: str, tmp_path: Path) -> None:
    """A rank that changes leaves a search for its old state, on a phone too; without an agent the page says so."""
    shown = [healthy()]
    async with browse(chromium) as tab:
        async with served(tmp_path, lambda: shown[0]) as url:
            await tab.call("Emulation.setFocusEmulationEnabled", enabled=True)
            await tab.look(width=390, dark=True)
            await tab.open(url)
            await tab.wait_for("document.querySelector('#connection').className === 'live'")
            await _search(tab, "running", "5 of 8 ranks")
            await tab.shoot("search-phone")
            assert await tab.evaluate(SHORTCOMINGS) == []
            shown[0] = _changed(shown[0], 1, "busy")
            await tab.wait_for(f"{_FOUND}.includes('4 of 8 ranks')")
        await _search(tab, "busy", "The agent does not answer")


@pytest.mark.asyncio
async def test_an_update_changes_only_what_is_new(chromium: str, tmp_path: Path) -> None:
    """What is selected, focused and unfolded stays so while the page is sent again, and a rank has another state."""
    view = view_of(*hang_of_eight())
    shown = [view]
    async with served(tmp_path, lambda: shown[0], history=history_of(view)) as url, browse(chromium) as tab:
        await tab.call("Emulation.setFocusEmulationEnabled", enabled=True)
        await tab.open(url)
        await tab.evaluate(
            "window.kept = [...document.querySelectorAll('#parts *')].filter(e => !e.closest('.legend'))"
        )
        await tab.evaluate("getSelection().selectAllChildren(document.querySelector('.tile b'))")
        await tab.evaluate("document.querySelector('.tree summary').focus()")
        await tab.evaluate("document.querySelector('.tree details details').open = false")
        await tab.wait_for("document.querySelector('#connection').className === 'live'")
        shown[0] = _changed(view, 3, "busy")
        await tab.wait_for("document.querySelector('.tile.s-busy') !== null")
        assert await tab.evaluate("kept.filter(e => !e.isConnected).map(e => e.outerHTML)") == []
        assert await tab.evaluate("getSelection().toString()") == "0"
        assert await tab.evaluate("document.activeElement === document.querySelector('.tree summary')")
        assert not await tab.evaluate("document.querySelector('.tree details details').open")
        assert tab.problems == []


def _changed(view: LiveView, rank: int, state: str) -> LiveView:
    """The view a second later, when one rank has another state."""
    (job,) = view.jobs
    ranks = tuple(msgspec.structs.replace(one, state=state) if one.rank == rank else one for one in job.ranks)
    job = msgspec.structs.replace(job, ranks=ranks)
    return LiveView(view.at_ns + 1_000_000_000, (job,))
