"""The report in a real Chromium: what it shows, that it folds, that it loads and runs nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from chromium import SHORTCOMINGS, WIDTHS, browse, unnamed
from hangs import hang_of_eight, hang_of_many

from hangwatch.model.capture import Capture
from hangwatch.model.incident import Incident
from hangwatch.outputs.bundle.bundle import write_bundle
from hangwatch.outputs.markdown.report import BRIEF, render_markdown


@pytest.mark.asyncio
async def test_a_report_shows_its_verdict_and_folds(chromium: str, tmp_path: Path) -> None:
    """The verdict comes first, the tree folds by mouse and by keyboard, nothing is fetched, and the console is silent."""
    incident, capture = hang_of_eight()
    report = write_bundle(tmp_path / "state", incident, capture) / "report.html"
    async with browse(chromium) as tab:
        await tab.open(report.as_uri())
        assert await tab.evaluate("document.querySelector('.banner .kind strong').textContent") == "Deadlock"
        assert await tab.evaluate("document.querySelector('.banner .summary').textContent") == incident.verdict.summary
        sides = await tab.evaluate("[...document.querySelectorAll('.side .line')].map(e => e.textContent)")
        divergence = incident.verdict.divergence
        assert divergence is not None
        assert divergence.culprit is not None
        assert divergence.others is not None
        assert sides == [divergence.culprit.source, divergence.others.source]
        tiles = await tab.evaluate("[...document.querySelectorAll('.tile')].map(e => e.className)")
        assert [rank for rank, css in enumerate(tiles) if "culprit" in css] == [5]

        fold = "document.querySelector('.tree details details')"
        shown = f"{fold}.querySelector('.frames').checkVisibility()"
        assert await tab.evaluate(shown)
        await tab.evaluate(f"{fold}.querySelector('summary').click()")
        assert not await tab.evaluate(shown)
        await tab.evaluate(f"{fold}.querySelector('summary').focus()")
        await tab.press("Enter", 13)
        assert await tab.evaluate(shown)

        assert await unnamed(tab) == []
        assert [address for address in tab.requests if not address.startswith(("file:", "data:"))] == []
        assert await tab.evaluate("document.scripts.length") == 0
        assert tab.problems == []


@pytest.mark.asyncio
@pytest.mark.parametrize(("size", "make"), [("8", hang_of_eight), ("1024", lambda: hang_of_many(1024))])
async def test_a_report_can_be_read_on_any_screen(
    chromium: str, tmp_path: Path, size: str, make: Callable[[], tuple[Incident, Capture]]
) -> None:
    """Phone, tablet, laptop and large screen, light and dark, all folds open: nothing is cut, everything has contrast."""
    incident, capture = make()
    report = write_bundle(tmp_path / "state", incident, capture) / "report.html"
    async with browse(chromium) as tab:
        for width in WIDTHS:
            for scheme in ("light", "dark"):
                await tab.look(dark=scheme == "dark", width=width)
                await tab.open(report.as_uri())
                await tab.evaluate("document.querySelectorAll('details:not(#processes)').forEach(e => e.open = true)")
                await tab.shoot(f"report-{size}-{width}-{scheme}")
                assert await tab.evaluate(SHORTCOMINGS) == [], f"{width} px, {scheme}"
        assert "Mechanism" in await tab.evaluate("document.querySelector('#about-cause').innerText")
        assert await tab.evaluate("document.querySelector('#as-issue textarea').value") == render_markdown(
            incident, BRIEF
        )
        assert tab.problems == []
