"""What the agent's page costs a reader: bytes of the first load, milliseconds until a scroll or a search is drawn, in Chromium.

Usage: python benchmarks/page_cost.py [RANKS ...]   (default 4096 16384; a hang of one rank, as in tests/browser)
"""

import asyncio
import sys
import tempfile
from pathlib import Path
from statistics import median

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "tests" / part) for part in ("", "browser", "causes")]

from chromium import browse, start_chromium  # noqa: E402
from hangs import fleet, history_of  # noqa: E402
from test_browser_page import served  # noqa: E402

from support import JobRunner  # noqa: E402

_BYTES = """
['navigation', 'resource'].flatMap(kind => performance.getEntriesByType(kind)).reduce((sum, one) => sum + one.transferSize, 0)
"""
_SCROLLS = """
(async () => {
  const drawn = () => new Promise(done => requestAnimationFrame(() => setTimeout(done, 0)));
  const took = [];
  for (let y = 0; y < document.body.scrollHeight; y += 200) {
    const start = performance.now();
    window.scrollTo(0, y);
    await drawn();
    took.push(performance.now() - start);
  }
  return took;
})()
"""
_SEARCHES = """
(async () => {
  const drawn = () => new Promise(done => requestAnimationFrame(() => setTimeout(done, 0)));
  const took = [];
  for (const query of ["5", "2730", "40-47", "gpu-0341", "mesh_tp", "stuck", "waiting"]) {
    const start = performance.now();
    field.value = query;
    await search();
    await drawn();
    took.push(performance.now() - start);
  }
  return took;
})()
"""


async def measure(browser: str, ranks: int) -> None:
    """Print the figures of a page with so many ranks."""
    view = fleet(ranks)
    with tempfile.TemporaryDirectory() as state:
        async with served(Path(state), view, history=history_of(view)) as url, browse(browser) as tab:
            await tab.look(dark=True, width=1280)
            await tab.open(url)
            await tab.wait_for("document.querySelector('#connection').className === 'live'")
            size = await tab.evaluate(_BYTES)
            elements = await tab.evaluate("document.querySelectorAll('*').length")
            took = await tab.evaluate(_SCROLLS)
            found = await tab.evaluate(_SEARCHES)
    print(f"{ranks} ranks: {size / 1e3:.0f} kB, {elements} elements")
    print(f"  a scroll {median(took):.0f} ms, longest {max(took):.0f} ms")
    print(f"  a search {median(found):.0f} ms, longest {max(found):.0f} ms")


def main() -> None:
    """Measure each size in a browser of its own."""
    with tempfile.TemporaryDirectory() as folder:
        jobs = JobRunner(Path(folder))
        try:
            browser = start_chromium(jobs, Path(folder) / "profile")
            for ranks in map(int, sys.argv[1:] or ("4096", "16384")):
                asyncio.run(measure(browser, ranks))
        finally:
            jobs.end_all()


if __name__ == "__main__":
    main()
