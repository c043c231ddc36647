"""Whose flight record counts."""

from __future__ import annotations

import asyncio
import time

import pytest

from hangwatch.agent.capturing import capture
from hangwatch.model.beats import Beat
from hangwatch.model.capture import Gap, RankIdentity


def beat(pid: int, age_s: float, *, initialized: bool, server: str | None = "/run/server") -> Beat:
    """The last beat of one rank."""
    at_ns = time.time_ns() - int(age_s * 1e9)
    return Beat(1, pid, 1, 1, at_ns, pid, 4, initialized=initialized, server=server)


def test_record_of_a_rank_whose_beat_is_late_counts_whatever_the_beat_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank may have made its groups and then held the interpreter: its beat is of before, its recorder of now."""

    async def fetch(beat: Beat, *, rank: int, call_sites: bool) -> Gap:
        assert not call_sites
        return Gap("flight recorder", "a test", rank)

    monkeypatch.setattr(capture, "fetch_flight", fetch)
    beats = {
        1: beat(1, 0.1, initialized=True),
        2: beat(2, 0.1, initialized=False),
        3: beat(3, 9.0, initialized=False),
        4: beat(4, 9.0, initialized=False, server=None),
    }
    ranks = [RankIdentity(pid, pid, 1.0) for pid in (1, 2, 3, 4, 5)]
    records = asyncio.run(capture._fetch_records(ranks, beats, call_sites=False))
    assert list(records) == [1, 3]
