"""Takes docs/pictures/*.png, those of the page and the report, from a real hang of 8 ranks and a recorded one made 4,096.

Run: ``pip install pillow``, which nothing else here needs, then ``python docs/screenshots.py``. Chromium and PyTorch have to be
there, as for ``make test``.
"""

from __future__ import annotations

import asyncio
import io
import os
import re
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from PIL import Image

sys.path.extend(str(Path(__file__).resolve().parents[1] / "tests" / part) for part in ("", "browser", "e2e"))

from chromium import Tab, browse, start_chromium
from hangs import hang_of_many, history_of, view_of
from watched_runs import find_bundles

from hangwatch.demos import ENVIRONMENT, find_scenario
from hangwatch.outputs.bundle.bundle import write_bundle
from hangwatch.outputs.metrics.exposition import Metrics
from hangwatch.outputs.web.page import WebPage
from hangwatch.outputs.web.server import Health, start_server
from support import JobRunner

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "pictures"
_WIDTH = 1200
#: A picture is a page of the README: larger ones are not looked at, and everybody who clones has them.
_MOST_BYTES = 150_000
_JOB = "reranker-7b"
#: Long enough for the line of progress to have a past, and for the hang to have lasted.
_STOOD = "[...document.querySelectorAll('.group-card .flight')].some(e => parseFloat(e.textContent) >= 20)"


async def take(tab: Tab, name: str, height: int, top: int = 0) -> None:
    """Keep the part of the page from ``top`` on in 256 colours, which are more than it has."""
    picture = Image.open(io.BytesIO(await tab.picture(_WIDTH, height, top)))
    file = PICTURES / f"{name}.png"
    picture.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(file, optimize=True)
    size_bytes = file.stat().st_size
    print(f"{file.relative_to(ROOT)}: {size_bytes / 1000:.0f} kB")
    if size_bytes > _MOST_BYTES:
        raise SystemExit(f"{file.name} is larger than {_MOST_BYTES / 1000:.0f} kB")


@asynccontextmanager
async def hung_job(jobs: JobRunner, state: Path) -> AsyncIterator[str]:
    """The page of an agent whose job of 8 ranks hangs."""
    scenario = find_scenario("rank-conditional")
    if scenario is None:
        raise SystemExit("the demo is gone")
    project = state.parent / "reranker"
    project.mkdir()
    shutil.copy(scenario.path, project / "train.py")
    launch = ("torchrun", "--nproc-per-node", "8", "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0")
    command = ("hangwatch", "run", "--state-dir", state, "--", *launch, "--rdzv-id", _JOB, "train.py")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    job = jobs.start(command, env={**ENVIRONMENT, "PATH": path}, cwd=project)
    found = re.search(r"page at (http://\S+)", job.wait_for_output("page at http"))
    job.wait_for_output("DEADLOCK", 300.0)
    if found is None:
        raise SystemExit("no page was announced")
    yield found[1]
    jobs.end_all()


async def main() -> None:
    """Take them all."""
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        jobs, browser = JobRunner(folder / "jobs"), JobRunner(folder / "browser")
        try:
            (folder / "profile").mkdir()
            async with browse(start_chromium(browser, folder / "profile")) as tab:
                await _real(tab, jobs, folder / "state")
                await _many(tab, folder / "many")
        finally:
            jobs.end_all()
            browser.end_all()


async def _real(tab: Tab, jobs: JobRunner, state: Path) -> None:
    async with hung_job(jobs, state) as url:
        await tab.look(width=_WIDTH)
        await tab.open(url)
        await tab.wait_for(_STOOD)
        for dark in (False, True):
            await tab.look(dark=dark, width=_WIDTH)
            await take(tab, f"page-{'dark' if dark else 'light'}", 1300)
        await tab.look(width=_WIDTH)
        top = await tab.evaluate("document.querySelector('.group-cards').closest('section').offsetTop")
        await take(tab, "page-below", 900, top - 16)
    (bundle,) = find_bundles(state)
    await tab.open((bundle / "report.html").as_uri())
    await take(tab, "report", 1300)


async def _many(tab: Tab, state: Path) -> None:
    incident, capture = hang_of_many()
    write_bundle(state, incident, None)
    view = view_of(incident, capture)
    server = await start_server("127.0.0.1", 0, Metrics(), Health(dict), WebPage(state, lambda: view, history_of(view)))
    try:
        await tab.look(dark=True, width=_WIDTH)
        await tab.open(server.url)
        await tab.wait_for("document.querySelector('#connection').className === 'live'")
        await take(tab, "page-4096", 1960)
    finally:
        await server.stop()


if __name__ == "__main__":
    os.chdir(ROOT)
    asyncio.run(main())
