"""Nodes of a job in one process: real watches and a real exchange, over the ranks of a recorded hang instead of processes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from hangwatch.agent.fleet import link as fleet_link
from hangwatch.agent.fleet import peers as fleet_members
from hangwatch.agent.fleet.member import JobFleet, name_channel
from hangwatch.agent.job.watch import JobWatch, watch_job
from hangwatch.config.settings import Settings
from hangwatch.exchange.protocol import Exchange
from hangwatch.model.beats import BEAT_VERSION, Beat, BeatGroup
from hangwatch.model.capture import Capture, Gap, RankCapture, RankIdentity
from hangwatch.model.devices import NodeFacts
from hangwatch.model.incident import Incident
from hangwatch.model.left import Left
from hangwatch.model.transforms.clocks import shift
from hangwatch.sources.discovery.found_jobs import FoundJob
from support import LONG_S

#: The beat of the tests: ticks come as often.
TICK_S = 0.1


@dataclass
class Recorded:
    """Beats of ranks that stand where a recorded capture has them; ``moving``: as if they still went on."""

    capture: Capture
    began_s: float = field(default_factory=time.monotonic)
    moving: bool = False

    def read(self) -> tuple[dict[int, Beat], tuple[Gap, ...]]:
        """One beat a rank, by pid."""
        return {r.identity.pid: self._beat(r) for r in self.capture.ranks if r.progress is not None}, ()

    def last_of(self, ranks: Iterable[RankIdentity]) -> dict[int, Beat]:
        """Nobody has left anything."""
        del ranks
        return {}

    def read_left(self, ranks: Iterable[RankIdentity]) -> dict[int, Left]:
        """Nobody has ended."""
        del ranks
        return {}

    def _beat(self, rank: RankCapture) -> Beat:
        still_s = 0.0 if self.moving else time.monotonic() - self.began_s
        more = int((time.monotonic() - self.began_s) * 100) if self.moving else 0
        groups = tuple(
            BeatGroup(
                p.group.name, p.group.ranks, number, p.group.description, "gloo",
                p.enqueued + more, -1, p.enqueued + more if self.moving else p.completed, still_s,
            )
            for number, p in enumerate(rank.progress or ())
        )  # fmt: skip
        world = self.capture.job.world_size
        return Beat(BEAT_VERSION, rank.identity.pid, 1, 1, time.time_ns(), rank.rank, world, 0, True, groups=groups)


@dataclass(eq=False)
class Node:
    """One node with some ranks of a recorded hang. ``announced`` is what it has alerted of, ``of_peers`` what another did.

    ``hardware`` is what it says of its devices when asked.
    """

    name: str
    exchange: Exchange
    state_dir: Path
    whole: Capture
    ranks: tuple[int, ...]
    channel: str = ""
    announced: list[Incident] = field(default_factory=list)
    of_peers: list[Incident] = field(default_factory=list)
    acted_on: list[Incident] = field(default_factory=list)
    hardware: NodeFacts | None = None
    skew_ns: int = 0
    watch: JobWatch = field(init=False)
    reader: Recorded = field(init=False)
    fleet: JobFleet = field(init=False)

    def __post_init__(self) -> None:
        """Begin to watch; within a running loop."""
        own = msgspec.structs.replace(self.whole, ranks=tuple(r for r in self.whole.ranks if r.rank in self.ranks))
        own = msgspec.structs.replace(own, ranks=tuple(self._here(r) for r in own.ranks))
        self.reader = Recorded(own)
        self.watch = watch_job(
            self.whole.job,
            self.state_dir,
            self._announce,
            on_peer_incident=self._on_peer_incident,
            tell_stand=self._tell_stand,
            settings=Settings(stall_after_s=5.0),
            reader=self.reader,
        )
        self.watch.local.capture = self._capture  # type: ignore[method-assign]
        self.watch.local.hardware = self._hardware  # type: ignore[method-assign]
        identities = tuple(r.identity for r in own.ranks)
        self.watch.update_ranks(FoundJob(self.whole.job, identities, "10.0.0.1:29500"), time.monotonic())
        self.channel = self.channel or name_channel(self.whole.job.id, "10.0.0.1:29500", self.whole.job.world_size)
        self.fleet = JobFleet(
            self.watch.ranks,
            self.watch.local,
            self.watch.incidents,
            self.exchange,
            self.channel,
            self.name,
            lambda: None,
            self.reader,
            node=self.name,
        )
        self.watch.join(self.fleet)

    def _here(self, rank: RankCapture) -> RankCapture:
        identity = msgspec.structs.replace(rank.identity, node=self.name, start_time=time.time() - 1000.0)
        return msgspec.structs.replace(rank, identity=identity)

    async def _hardware(self, capture: Capture, only: Collection[str] | None) -> Capture:
        del only
        if self.hardware is None:
            return capture
        return msgspec.structs.replace(capture, nodes=(self.hardware,))

    async def _capture(self) -> Capture:
        """The recorded capture, as if it had begun to hang when this node began, by the node's own clock."""
        await asyncio.sleep(0.05)
        began_ns = time.time_ns() - int((time.monotonic() - self.reader.began_s) * 1e9) + self.skew_ns
        now = shift(self.reader.capture, began_ns - self.reader.capture.at_ns)
        now = msgspec.structs.replace(now, at_ns=time.time_ns() + self.skew_ns)
        if not self.reader.moving:
            return now
        ranks = tuple(msgspec.structs.replace(r, flight=None, progress=None, stacks=()) for r in now.ranks)
        return msgspec.structs.replace(now, ranks=ranks)

    async def _announce(self, incident: Incident, path: Path | None) -> None:
        del path
        self.announced.append(incident)

    async def _on_peer_incident(self, incident: Incident, path: Path | None) -> None:
        del path
        self.of_peers.append(incident)

    async def _tell_stand(self, incident: Incident, path: Path | None, owned: bool) -> None:
        del path, owned
        if incident.may_be_acted_on:
            self.acted_on.append(incident)

    async def tick(self) -> None:
        """One tick."""
        await self.watch.tick(self.reader.read()[0], time.monotonic())

    async def die(self) -> None:
        """End its agent without a word."""
        await self.fleet.link.stop()

    @property
    def owns_incident(self) -> bool:
        """Whether it has an incident whose end it is to report."""
        record = self.watch.incidents.record
        return record is not None and not record.owned_by_peer

    @property
    def bundles(self) -> list[Incident]:
        """The documents on its disk."""
        found = sorted(self.state_dir.glob("incidents/*/incident.json"))
        return [msgspec.json.decode(path.read_bytes(), type=Incident) for path in found]


async def run_until(nodes: list[Node], condition: Callable[[], object], timeout_s: float = LONG_S) -> None:
    """Let the nodes tick, each at its own pace, until something is so."""
    end_s = time.monotonic() + timeout_s

    async def live(node: Node) -> None:
        while not condition():
            await node.tick()
            await asyncio.sleep(TICK_S)

    tasks = [asyncio.ensure_future(live(node)) for node in nodes]
    done, pending = await asyncio.wait(tasks, timeout=end_s - time.monotonic())
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    for task in done:
        task.result()
    assert condition(), "waited in vain"


def spread_ranks(capture: Capture, count: int) -> Mapping[int, tuple[int, ...]]:
    """The ranks of a capture on so many nodes, in order."""
    ranks = sorted(r.rank for r in capture.ranks)
    return {node: tuple(ranks[node::count]) for node in range(count)}


def quicken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have agents live five times as fast."""
    monkeypatch.setattr(fleet_link, "PERIOD_S", 0.2)
    monkeypatch.setattr(fleet_link, "HURRIED_S", 0.05)
    # A process on a busy machine may stand still for a second or two, and another node would lead.
    monkeypatch.setattr(fleet_link, "LEASE_S", 4.0)
    monkeypatch.setattr(fleet_link, "ALONE_S", 4.0)
    monkeypatch.setattr(fleet_link, "_ASK_SILENT_S", 0.8)
    monkeypatch.setattr(fleet_members, "SILENT_S", 1.6)
