"""Agents that meet because processes on their nodes share a group: over a real exchange, with beats by hand."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from hangwatch.agent.capturing.local_ranks import LocalRanks
from hangwatch.agent.fleet import world_links
from hangwatch.agent.fleet.joining import choose_channel
from hangwatch.agent.fleet.world_links import WorldLinks
from hangwatch.exchange.local import LocalExchange
from hangwatch.exchange.protocol import Exchange, ExchangeError
from hangwatch.model.beats import Beat, BeatGroup
from hangwatch.model.capture import Job, RankIdentity
from hangwatch.sources.beats.worlds import Worlds
from hangwatch.sources.discovery.found_jobs import FoundJob
from support import LONG_S

pytestmark = [pytest.mark.asyncio, pytest.mark.usefixtures("real")]
MET = "tcp://10.0.0.1:41000"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same life, faster."""
    monkeypatch.setattr(world_links, "PERIOD_S", 0.05)
    monkeypatch.setattr(world_links, "OPEN_S", 0.2)
    monkeypatch.setattr(world_links, "SILENT_S", 0.8)


def weights(place: int) -> BeatGroup:
    return BeatGroup("weights", (0, 1), place=place, size=2, store=MET, foreign=True)


def one(pid: int, place: int, store: str, *, launched: bool) -> dict[int, Beat]:
    """The only rank of a world."""
    own = BeatGroup("0", (0,), description="default_pg")
    local = 0 if launched else None
    return {pid: Beat(1, pid, 1, 1, 1, 0, 1, local, True, groups=(own, weights(place)), store=store)}


async def until(condition: Callable[[], object]) -> None:
    """Let the links work until something is so."""
    end_s = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < end_s, "waited in vain"
        await asyncio.sleep(world_links.PERIOD_S)


class Node:
    """One node: its beats, and the job that its rank is."""

    def __init__(self, name: str, beats: dict[int, Beat], exchange: Exchange | None) -> None:
        self.beats = beats
        self.links = WorldLinks(Worlds(), lambda: name, lambda _: self.open(exchange), owned=False)
        self.ranks = LocalRanks(Job(f"job-{name}", 1))
        identities = tuple(RankIdentity(0, pid, 1.0, name) for pid in beats)
        self.ranks.update(FoundJob(self.ranks.job, identities, f"{name}:29500"), 0.0)

    def open(self, exchange: Exchange | None) -> Exchange:
        if exchange is None:
            raise ExchangeError("no torch")
        return exchange

    def tick(self) -> dict[int, Beat]:
        """What an agent does each second."""
        found = self.links.worlds.resolve(self.beats)
        self.links.update([self.ranks])
        return found


def make(exchange: Exchange | None) -> tuple[Node, Node]:
    trainer = Node("a", one(10, 0, "tcp://10.0.0.1:29500", launched=True), exchange)
    return trainer, Node("b", one(20, 1, "tcp://127.0.0.1:5000", launched=False), exchange)


async def test_two_agents_meet_in_the_job_of_the_trainers() -> None:
    """Both know where: the trainers' own channel, beside the store in which the group's members met."""
    trainer, engine = make(LocalExchange())

    def joined() -> bool:
        here, there = trainer.tick(), engine.tick()
        return not here[10].groups[-1].outside and not there[20].groups[-1].outside

    await until(joined)
    (away,) = engine.links.worlds.jobs.values()
    assert away == trainer.links.link_of(trainer.ranks)
    assert (away.id, away.meeting) == ("job-a", "10.0.0.1:41000")
    trainer.ranks.link = away
    assert choose_channel(trainer.ranks, None, only_known=True) == away.channel
    await engine.links.close()
    await until(lambda: trainer.tick()[10].groups[-1].outside == (1,))
    assert trainer.tick()[10].groups[-1].ranks == (0,)
    await trainer.links.close()


async def test_a_group_that_is_whole_here_opens_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last member's beat came a moment later than the others': no exchange is opened for that."""
    trainer, engine = make(None)
    monkeypatch.setattr(world_links, "OPEN_S", 1e9)
    for _ in range(5):
        trainer.tick()
    trainer.beats |= engine.beats
    assert trainer.tick()[10].groups[-1].outside == ()
    assert trainer.links._task is None
    await trainer.links.close()


async def test_why_others_cannot_be_met_is_said() -> None:
    """In what is missing from an incident, with the exchange's own words."""
    trainer, _ = make(None)
    await until(lambda: (trainer.tick(), trainer.links.gaps)[1])
    (gap,) = trainer.links.gaps
    assert (gap.source, gap.reason.endswith(": no torch")) == ("peer discovery", True)
    assert trainer.tick()[10].groups[-1].outside == (1,)
    await trainer.links.close()
