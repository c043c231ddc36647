"""Nobody can keep the agent busy by asking, and nobody guesses the token."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangwatch.model.live import LiveView
from hangwatch.outputs.metrics.exposition import Metrics
from hangwatch.outputs.web.access import RateLimit
from hangwatch.outputs.web.page import WebPage
from hangwatch.outputs.web.server import Health, start_server

TOKEN = "0123456789abcdef"  # noqa: S105  # of the test alone


@given(st.lists(st.floats(0.0, 100.0), max_size=200), st.floats(0.1, 10.0), st.integers(1, 20))
def test_no_span_of_time_has_more_than_its_rate(asked_s: list[float], per_s: float, burst: int) -> None:
    """Whenever a caller asks, it gets its burst and its rate, and no more; another caller is not touched by it."""
    rate = RateLimit(per_s, float(burst))
    taken = [at_s for at_s in sorted(asked_s) if rate.allows("one", at_s)]
    for first, start_s in enumerate(taken):
        for last, end_s in enumerate(taken[first:]):
            assert last + 1 <= burst + per_s * (end_s - start_s) + 1e-6
    assert rate.allows("another", 100.0)


def test_callers_are_forgotten_before_they_fill_the_memory() -> None:
    """Ten thousand callers leave a bounded trace."""
    rate = RateLimit(1.0, 1.0)
    assert all(rate.allows(str(number), 0.0) for number in range(10_000))
    assert len(rate._left) <= 1024


@pytest.mark.usefixtures("real")
def test_a_flood_is_refused_and_the_token_cannot_be_guessed(tmp_path: Path) -> None:
    """Of a thousand requests at once some hundreds are answered, of a hundred wrong tokens ten are looked at."""

    async def run() -> tuple[Counter[int], Counter[int]]:
        page = WebPage(tmp_path, lambda: LiveView(1, ()))
        server = await start_server("127.0.0.1", 0, Metrics(), Health(lambda: {"ok": True}), page, TOKEN)
        try:
            async with aiohttp.ClientSession() as client:

                async def get() -> int:
                    async with client.get(f"{server.url}/healthz") as answer:
                        return answer.status

                async def guess(number: int) -> int:
                    async with client.post(f"{server.url}/login", data={"token": f"{number:016d}"}) as answer:
                        return answer.status

                guesses = Counter([await guess(number) for number in range(100)])
                flood = Counter(await asyncio.gather(*(get() for _ in range(1000))))
                return flood, guesses
        finally:
            await server.stop()

    flood, guesses = asyncio.run(run())
    assert flood[200] >= 100
    assert flood[429] >= 300
    assert guesses[403] in range(10, 20)
    assert guesses[429] == 100 - guesses[403]
