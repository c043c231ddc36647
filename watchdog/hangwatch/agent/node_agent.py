"""The agent of one node: finds jobs, keeps a watch on each, and keeps the metrics current."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hangwatch.agent.capturing.source_health import Ledger
from hangwatch.agent.fleet.joining import Fleets
from hangwatch.agent.incidents.record import Announce, Told, tell_nobody
from hangwatch.agent.incidents.reopen import Reopening
from hangwatch.agent.job.telemetry import TrainingTelemetry
from hangwatch.agent.job.watch import JobWatch
from hangwatch.agent.live import live_view
from hangwatch.agent.published import job_metrics
from hangwatch.causes import registry
from hangwatch.exchange.opening import ExchangeChoice
from hangwatch.model.beats import Beat
from hangwatch.model.capture import Gap
from hangwatch.model.live import LiveView
from hangwatch.outputs.metrics.exposition import Metrics
from hangwatch.outputs.metrics.view import AgentMetrics, MetricsView, ReceiverMetrics
from hangwatch.sources.beats.node_beats import NodeBeats
from hangwatch.sources.discovery.ranks import Discovery, RankFinder
from hangwatch.sources.stacks.permission import check_stacks

log = logging.getLogger("hangwatch")

TICK_S = 1.0


@dataclass
class Agent:
    """Watches every job it can find: below ``root`` (a pid) or, with None, on the whole node.

    ``run_dir`` is where probes leave their beats, besides those that say another place themselves. ``announce`` is told of
    every incident, when it is confirmed, when its kind changes, and when it is over. ``receivers`` are those who are told
    elsewhere, for the metrics. ``logs`` are globs of files that the job writes. ``ticked`` is called after every tick that
    came to its end. ``reopening`` holds what an agent before this one has left open.
    ``exchange`` is what agents of several nodes share, None where there is one node; ``hear`` is told of incidents that another
    node tells of. ``job`` names jobs that their environment does not name.
    """

    run_dir: Path
    state_dir: Path
    announce: Announce
    metrics: Metrics
    root: Callable[[], int | None] = lambda: None
    stall_after_s: float | None = None
    with_values: bool = False
    receivers: Callable[[], tuple[ReceiverMetrics, ...]] = tuple
    logs: tuple[str, ...] = ()
    ticked: Callable[[], None] = lambda: None
    reopening: Reopening = field(default_factory=Reopening)
    hear: Announce = tell_nobody
    exchange: ExchangeChoice | None = None
    job: str | None = None
    jobs: dict[str, JobWatch] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    totals: Counter[str] = field(default_factory=Counter)
    ledger: Ledger = field(default_factory=Ledger)
    tick_sum_s: float = 0.0
    last_tick_s: float | None = None
    _reader: NodeBeats = field(init=False)
    _finder: RankFinder = field(init=False)
    _fleets: Fleets | None = None
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _checked: frozenset[int] = frozenset()
    _beats: Mapping[int, Beat] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Open the sources. Raises ``ExchangeError`` where the exchange cannot be."""
        self._reader = NodeBeats(self.run_dir)
        self._finder = RankFinder(self.job)
        if self.exchange is not None:
            self._fleets = Fleets(self.exchange, self._wake.set)

    async def run(self, stop: asyncio.Event) -> None:
        """Tick until told to stop. A tick that fails is counted and logged; the next one comes all the same."""
        while not stop.is_set():
            started_s = time.monotonic()
            soonest_s = await self.guarded_tick()
            self.tick_sum_s += time.monotonic() - started_s
            pause_s = TICK_S if soonest_s is None else min(TICK_S, soonest_s)
            pause_s = max(0.02, pause_s - (time.monotonic() - started_s if soonest_s is None else 0.0))
            await self._pause(stop, pause_s)

    async def _pause(self, stop: asyncio.Event, pause_s: float) -> None:
        """Wait until it is time, until told to stop, or until another node asks for something."""
        reasons = [asyncio.ensure_future(event.wait()) for event in (stop, self._wake)]
        await asyncio.wait(reasons, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)
        for reason in reasons:
            reason.cancel()
        self._wake.clear()

    async def close(self, *, over: bool = True) -> None:
        """The end of the watch, and with ``over`` of all jobs: incidents that are open are over. Else they stay open."""
        for watch in self.jobs.values():
            watch.training.stop()
            await watch.completed()
            if over:
                await watch.end(time.time_ns())
            elif watch.fleet is not None:
                await watch.fleet.pause()
        if self._fleets is not None:
            await self._fleets.close()

    def set_patience(self, stall_after_s: float | None) -> None:
        """Another patience from now on, for all jobs."""
        self.stall_after_s = stall_after_s
        for watch in self.jobs.values():
            watch.stall_after_s = stall_after_s

    def open_incidents(self) -> tuple[Told, ...]:
        """The incidents that were told and are not over."""
        return tuple(told for watch in self.jobs.values() for told in watch.all_told if told.active and not told.heard)

    async def guarded_tick(self) -> float | None:
        """One tick, its failure counted (``hangwatch_agent_errors_total``) and logged."""
        try:
            soonest_s = await self.tick()
            self.ticked()
            return soonest_s
        except Exception:  # the tick's edge: whatever happens, the agent goes on watching
            self.counts["errors"] += 1
            log.exception("a tick failed; the next one follows")
            return None

    async def tick(self) -> float | None:
        """Observe, let every job's watch decide, and publish. Returns when to come back at the latest, in seconds."""
        self.counts["ticks"] += 1
        now_s = time.monotonic()
        with self.ledger.look("beats") as look:
            beats, gaps = self._reader.read()
            look.tried, look.failed = len(beats) + len(gaps) or 1, len(gaps)
        with self.ledger.look("processes") as look:
            found = self._finder.find(self.root(), beats)
            look.tried, look.failed = 1, bool(found.gaps)
        self._reader.follow(self._finder.probed())
        await self._meet(found, gaps, now_s)
        for one in self.reopening.take_ended():
            await one.as_told().close(self.state_dir, self.announce, time.time_ns())
        self._check_stacks()
        soonest: list[float | None] = []
        looked = False
        for watch in list(self.jobs.values()):
            before, looks = {told.incident.id for told in watch.all_told}, watch.looks
            soonest.append(await watch.tick(beats, time.monotonic()))
            looked = looked or watch.looks > looks
            told = (t.incident for t in watch.all_told if not t.heard)
            self.totals.update(incident.verdict.kind for incident in told if incident.id not in before)
            if watch.over:
                watch.training.stop()
                del self.jobs[watch.job.id]
        self.last_tick_s = time.monotonic()
        if looked:  # that took a second or more: an incident must not stand beside numbers from before it
            beats, _ = self._reader.read()
        self._beats = beats
        self.metrics.update(self._view(beats))
        return min((s for s in soonest if s is not None), default=None)

    async def _meet(self, found: Discovery, gaps: tuple[Gap, ...], now_s: float) -> None:
        here = {job.job.id: job for job in found.jobs}
        for job_id, job in here.items():
            if job_id not in self.jobs:
                watch = JobWatch(job.job, self.state_dir, self.announce, self.stall_after_s, self._reader, self.ledger)
                watch.hear = self.hear
                watch.training = TrainingTelemetry(self.logs)
                watch.with_values = self.with_values
                for one in self.reopening.take(job.ranks):
                    log.info("incident %s of job %s is open still", one.incident.id, job_id)
                    watch.take_up(one, now_s)
                self.jobs[job_id] = watch
        for job_id, watch in self.jobs.items():
            watch.meet(here.get(job_id), now_s)
            apart = await self._fleets.meet(watch) if self._fleets is not None else ()
            watch.gaps = (*gaps, *found.gaps, *watch.training.gaps, *apart)

    def _check_stacks(self) -> None:
        """Find out of every new rank whether its stacks could be read: whoever is alerted of it can mend it before a hang."""
        pids = frozenset(i.pid for w in self.jobs.values() for r, i in w.ranks.items() if r not in w.lost_since_s)
        with self.ledger.look("stacks") as look:
            look.tried = len(new := pids - self._checked)
            look.failed = len(check_stacks(new))
        self._checked = pids

    def watches(self) -> tuple[JobWatch, ...]:
        """The jobs under watch now."""
        return tuple(self.jobs.values())

    def healthz(self) -> dict[str, object]:
        """What ``/healthz`` answers: not ok when the last tick is long ago."""
        age_s = None if self.last_tick_s is None else time.monotonic() - self.last_tick_s
        return {"ok": age_s is None or age_s < 30.0, "last_tick_age_s": age_s, "jobs": sorted(self.jobs)}

    def live(self) -> LiveView:
        """How all jobs stood at the last tick, with their open incidents: what the page shows."""
        return live_view(self.jobs, self._beats, time.time_ns() if self.last_tick_s is not None else 0)

    def _view(self, beats: Mapping[int, Beat]) -> MetricsView:
        now_ns = time.time_ns()
        return MetricsView(
            jobs=tuple(job_metrics(self.jobs[job_id], beats, now_ns) for job_id in sorted(self.jobs)),
            incidents_total=dict(self.totals),
            sources=self.ledger.metrics(),
            receivers=self.receivers(),
            agent=AgentMetrics(
                ticks_total=self.counts["ticks"],
                tick_duration_sum_s=self.tick_sum_s,
                captures_total=self.ledger.captures,
                capture_duration_sum_s=self.ledger.captures_sum_s,
                errors_total=self.counts["errors"] + registry.failed.total(),
            ),
        )
