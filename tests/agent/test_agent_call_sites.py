"""Call sites are asked for before a verdict where all ranks have come, and a transfer between two of them does not end."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

import pytest

from corpus.catalogue import load_capture, load_catalogue
from hangwatch.agent.job.diagnose import judge, with_order
from hangwatch.analysis.patience import Patience, fixed_patience
from hangwatch.diagnosis.verdict import Diagnosis
from hangwatch.model.capture import Capture
from recorded import without


class Scope:
    """Has the call sites of a hang, and keeps of whom they were asked."""

    def __init__(self, whole: Capture) -> None:
        self.whole = whole
        self.asked: list[tuple[int, ...]] = []

    async def capture(self) -> Capture:
        """Without call sites."""
        return without(self.whole, {rank.rank: frozenset({"sites"}) for rank in self.whole.ranks})

    async def call_sites(self, capture: Capture, ranks: Collection[int] | None) -> Capture:
        """All of them."""
        assert len(capture.ranks) == len(self.whole.ranks)
        self.asked.append(tuple(ranks or ()))
        return self.whole

    async def hardware(self, capture: Capture, only: Collection[str] | None) -> Capture:
        """Nothing."""
        assert only is None
        return capture


@pytest.fixture
def ring() -> Scope:
    """Three ranks of which each sends to the next one first, on NCCL: what they receive is enqueued behind that."""
    (entry,) = load_catalogue(["nccl-edges-sent-first"])
    return Scope(load_capture(entry))


def look(scope: Scope, patience: Patience) -> tuple[Diagnosis, Diagnosis]:
    """What a capture shows by itself, and with what is asked for besides."""

    async def both() -> tuple[Diagnosis, Diagnosis]:
        first = await judge(await scope.capture(), patience)
        return first, await with_order(scope, first, patience)

    return asyncio.run(both())


def test_a_circle_of_sends_is_seen_once_their_call_sites_are(ring: Scope) -> None:
    """``dist.send`` holds up what is behind it, a send in a batch does not: nothing else tells one from the other."""
    before, after = look(ring, fixed_patience(6.0))
    assert (before.verdict.kind, before.case.blame.shape) == ("healthy", "together")
    assert (after.verdict.kind, after.verdict.culprit_ranks, after.verdict.proven) == ("stall", (0, 1, 2), False)
    assert ring.asked == [(0, 1, 2)]


def test_no_call_site_is_asked_for_before_the_patience_is_over(ring: Scope) -> None:
    """It takes a rank's interpreter for a moment, and transfers take time."""
    before, after = look(ring, fixed_patience(600.0))
    assert after is before
    assert ring.asked == []
