"""The agent of one node: finds jobs, keeps a watch on each, and keeps the metrics current.

May import the rooms of the agent and the sources; decides only the order of the steps.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import msgspec

from hangwatch.agent.capturing.source_health import SourceHealth
from hangwatch.agent.fleet.joining import Fleets
from hangwatch.agent.fleet.member import name_node
from hangwatch.agent.fleet.world_links import WorldLinks
from hangwatch.agent.host.stall_timeouts import StallTimeout, remove_stall_timeouts, write_stall_timeouts
from hangwatch.agent.incidents.actions import Actor
from hangwatch.agent.incidents.history import Histories
from hangwatch.agent.incidents.lifecycle import close_left_open
from hangwatch.agent.incidents.record import (
    Announce,
    IncidentRecord,
    TellStand,
    announce_to_nobody,
    tell_nobody,
)
from hangwatch.agent.incidents.reopen import Reopening
from hangwatch.agent.job.state import JobState
from hangwatch.agent.job.watch import JobWatch, watch_job
from hangwatch.agent.published import job_metrics, watched_job
from hangwatch.config.settings import Settings
from hangwatch.diagnosis import registry
from hangwatch.exchange.opening import parse_exchange
from hangwatch.exchange.protocol import ExchangeError
from hangwatch.model.beats import Beat
from hangwatch.model.capture import Gap, Job
from hangwatch.model.incident import HANG_KINDS
from hangwatch.model.live import LiveJob, LiveView
from hangwatch.outputs.briefing import Links
from hangwatch.outputs.metrics.exposition import Metrics
from hangwatch.outputs.metrics.view import AgentMetrics, MetricsView, ReceiverMetrics
from hangwatch.serving.engines import Engines, as_job
from hangwatch.sources.beats.node_beats import NodeBeats
from hangwatch.sources.discovery.ranks import Discovery, RankFinder
from hangwatch.sources.proc.ends import ProcessEnds
from hangwatch.sources.stacks.permission import check_stacks


def live_view(jobs: Iterable[JobState], beats: Mapping[int, Beat], at_ns: int) -> LiveView:
    """Return the live view of all jobs, in the given order, at ``at_ns``. ``beats``: the last ones, by pid."""
    return LiveView(at_ns, tuple(_job(state, beats, at_ns) for state in jobs))


def _job(state: JobState, beats: Mapping[int, Beat], at_ns: int) -> LiveJob:
    job = msgspec.structs.replace(
        watched_job(state, beats, at_ns),
        stall_after_s=state.patience.stall_s,
        stall_why=state.patience.why,
        last_to_join=state.last_to_join,
    )
    record = state.hang or state.silent_failure or state.slow
    if record is None:
        return job
    return msgspec.structs.replace(job, incident=record.incident, capture=record.diagnosis.case.capture)


log = logging.getLogger("hangwatch")

TICK_S = 1.0


@dataclass
class Agent:
    """Watches every job it can find: below ``root`` (a pid) or, with None, on the whole node.

    ``say`` prints what users are to read; ``found`` is called for each new job. ``run_dir`` is where probes leave their
    beats, unless they name another place themselves. ``announce`` is called for every incident when it is confirmed,
    when its kind changes, and when it is over; ``on_peer_incident`` for those that another node owns; ``tell_stand``
    when the state of a second look changes. ``receivers`` gives their state, for the metrics. ``ticked`` is called
    after every tick that came to its end. ``reopening`` holds what an earlier agent has left open. ``settings`` are
    those in force; a reload changes only the patience here. ``histories`` has the earlier hangs of jobs; ``acting``
    acts on hangs. ``links``: where people find the page and the runbooks. ``secret``: what the agents
    of a job have in common.
    """

    run_dir: Path
    state_dir: Path
    announce: Announce
    metrics: Metrics
    root: Callable[[], int | None] = lambda: None
    say: Callable[[str], None] = lambda _: None
    found: Callable[[Job], None] = lambda _: None
    settings: Settings = field(default_factory=Settings)
    receivers: Callable[[], tuple[ReceiverMetrics, ...]] = tuple
    ticked: Callable[[], None] = lambda: None
    reopening: Reopening = field(default_factory=Reopening)
    on_peer_incident: Announce = announce_to_nobody
    tell_stand: TellStand = tell_nobody
    histories: Histories = field(default_factory=Histories)
    acting: Actor | None = None
    links: Links = field(default_factory=Links)
    secret: str = field(default="", repr=False)
    jobs: dict[str, JobWatch] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    totals: Counter[str] = field(default_factory=Counter)
    health: SourceHealth = field(default_factory=SourceHealth)
    tick_sum_s: float = 0.0
    last_tick_s: float | None = None
    _reader: NodeBeats = field(init=False)
    _finder: RankFinder = field(init=False)
    _engines: Engines = field(init=False)
    _fleets: Fleets = field(init=False)
    _links: WorldLinks = field(init=False)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _ends: ProcessEnds | None = None
    _checked: frozenset[int] = frozenset()
    _beats: Mapping[int, Beat] = field(default_factory=dict)
    _stall_timeouts: Mapping[str, StallTimeout] = field(default_factory=dict)
    _writing: asyncio.Task[None] | None = None

    def __post_init__(self) -> None:
        """Open the sources. Raises ``ExchangeError`` where the exchange cannot be."""
        self._reader = NodeBeats(self.run_dir)
        self._finder = RankFinder(self.settings.job or None)
        self._engines = Engines(self.settings.engines, self.settings.patience_s)
        choice = replace(parse_exchange(self.settings.exchange), secret=self.secret)
        self._fleets = Fleets(choice, self._wake.set, self._reader, self.health, self.say, self.root, self._acts)
        self._links = WorldLinks(
            self._reader.worlds, lambda: name_node(self.root()), self._fleets.open_at, owned=not choice.shared
        )

    def _acts(self) -> bool:
        return self.settings.on_hang.kind != "report"

    async def run(self, stop: asyncio.Event) -> None:
        """Tick until told to stop. A tick that fails is counted and logged; the next one comes all the same."""
        loop = asyncio.get_running_loop()
        self._ends = ProcessEnds(partial(loop.call_soon_threadsafe, self._wake.set))
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
        """Stop watching. With ``over``, all jobs are over and so are their incidents; without, incidents stay open."""
        for watch in self.jobs.values():
            await watch.incidents.completed()
            if over:
                before = {record.id for record in watch.records}
                await watch.end(time.time_ns())
                self._count(watch, before)
            else:
                watch.training.stop()
                await watch.pause()
        if self._ends is not None:
            self._ends.close()
        if self._writing is not None:
            await asyncio.to_thread(remove_stall_timeouts, self.state_dir)
        await self._engines.close()
        await self._links.close()
        await self._fleets.close()
        if over:  # whoever is sent the metrics a last time must not take the jobs for running
            self.metrics.update(msgspec.structs.replace(self.metrics.view, jobs=(), incidents_total=dict(self.totals)))

    def set_patience(self, stall_after_s: float, act_after_s: float) -> None:
        """Set the patience and the time before an action, in seconds, for all jobs; 0 for what is learnt."""
        self.settings = msgspec.structs.replace(self.settings, stall_after_s=stall_after_s, act_after_s=act_after_s)
        self._engines.set_patience(self.settings.patience_s)
        for watch in self.jobs.values():
            watch.patience.stall_after_s = self.settings.patience_s
            watch.second_look.act_after_s = self.settings.act_after_s or None

    def open_incidents(self) -> tuple[IncidentRecord, ...]:
        """Return the incidents that this node has reported and that are not over."""
        records = (record for watch in self.jobs.values() for record in watch.records)
        return tuple(record for record in records if record.active and not record.owned_by_peer)

    async def guarded_tick(self) -> float | None:
        """Run one tick, and log and count a failure (``hangwatch_agent_errors_total``). Return what ``tick`` returns."""
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
        with self.health.reading("heartbeats") as reading:
            beats, gaps = self._reader.read()
            reading.tried, reading.failed = len(beats) + len(gaps) or 1, len(gaps)
        with self.health.reading("processes") as reading:
            found = self._finder.find(self.root(), beats, self._reader.worlds.jobs)
            reading.tried, reading.failed = 1, bool(found.gaps)
        self._reader.follow(self._finder.probed())
        await self._meet(found, (*gaps, *self._links.gaps), now_s)
        self._links.update(watch.ranks for watch in self.jobs.values())
        for one in self.reopening.take_ended():
            await close_left_open(one, self.state_dir, self.announce, time.time_ns())
        self._check_stacks()
        soonest: list[float | None] = []
        captured = False
        for watch in list(self.jobs.values()):
            before, captures = {record.id for record in watch.records}, watch.captures
            soonest.append(await watch.tick(beats, time.monotonic()))
            captured = captured or watch.captures > captures
            self._count(watch, before)
            if watch.over:
                del self.jobs[watch.ranks.job.id]
        self.last_tick_s = time.monotonic()
        if captured:  # that took a second or more: an incident must not appear beside numbers from before it
            beats, _ = self._reader.read()
        self._beats = beats
        self.metrics.update(self._view(beats))
        self._publish_stall_timeouts()
        return min((s for s in soonest if s is not None), default=None)

    def _publish_stall_timeouts(self) -> None:
        """Have other commands know the stall timeouts if they have changed. The disk may be slow: no tick waits for it."""
        current = ((job_id, watch.patience.current) for job_id, watch in self.jobs.items())
        now = {job_id: StallTimeout(round(patience.stall_s, 1), patience.why) for job_id, patience in current}
        if now != self._stall_timeouts and (self._writing is None or self._writing.done()):
            self._stall_timeouts = now
            self._writing = asyncio.create_task(asyncio.to_thread(write_stall_timeouts, self.state_dir, now))

    def _count(self, watch: JobWatch, before: Collection[str]) -> None:
        """Count the incidents of a job that this node has reported and that were not there before."""
        own = (record for record in watch.records if not record.owned_by_peer and record.id not in before)
        self.totals.update(record.incident.verdict.kind for record in own)

    async def _meet(self, found: Discovery, gaps: tuple[Gap, ...], now_s: float) -> None:
        here = {job.job.id: job for job in found.jobs}
        processes = self._finder.processes()
        self._engines.tick(processes, found.jobs, now_s)
        engines = self._engines.assign(found.jobs, {name: watch.engines for name, watch in self.jobs.items()})
        here |= {n: as_job(n, own[0], processes) for n, own in engines.items() if n not in here and n not in self.jobs}
        for job_id, job in here.items():
            if job_id not in self.jobs:
                watch = watch_job(
                    job.job,
                    self.state_dir,
                    self.announce,
                    on_peer_incident=self.on_peer_incident,
                    tell_stand=self.tell_stand,
                    settings=self.settings,
                    reader=self._reader,
                    health=self.health,
                    history=self.histories.of(job_id),
                    ended=self._finder.ended,
                    ends=self._ends,
                    acting=self.acting,
                )
                beside = [rank for engine in engines.get(job_id, ()) for rank in engine.beside(now_s, frozenset())]
                for one in self.reopening.take(job.ranks or beside):
                    log.info("incident %s of job %s is still open", one.incident.id, job_id)
                    watch.resume(one, now_s)
                self.jobs[job_id] = watch
                self.found(job.job)
        for job_id, watch in self.jobs.items():
            watch.update_ranks(here.get(job_id), now_s)
            watch.engines = engines.get(job_id, ())
            await self._join(watch)
            watch.note_gaps((*gaps, *found.gaps))
            if self._ends is not None:
                self._ends.follow(watch.ranks.living)

    async def _join(self, watch: JobWatch) -> None:
        """Have a watch in the right fleet, or in none: another incarnation of its job may have another name."""
        found = self._links.link_of(watch.ranks)
        watch.ranks.link = found if found is not None or watch.ranks.own else watch.ranks.link
        channel = self._fleets.choose_channel(watch.ranks, watch.fleet.channel)
        if channel is not None and channel == watch.fleet.channel:
            return
        loading = channel is not None and self._fleets.is_loading()
        await watch.leave_fleet(joining=loading and self._fleets.is_patient)
        if channel is None or loading:
            return
        try:
            watch.join(self._fleets.join(channel, watch.ranks, watch.local, watch.incidents))
        except ExchangeError as error:
            await watch.leave_fleet((Gap("peer discovery", str(error), hint="this node reports only its own ranks"),))

    def _check_stacks(self) -> None:
        """Check whether the stacks of each new rank can be read, so that somebody can repair it before a hang."""
        pids = frozenset(identity.pid for watch in self.jobs.values() for identity in watch.ranks.living)
        with self.health.reading("stacks") as reading:
            reading.tried = len(new := pids - self._checked)
            reading.failed = len(check_stacks(new))
        self._checked = pids

    def watches(self) -> tuple[JobWatch, ...]:
        """Return the watch of every job that is watched now."""
        return tuple(self.jobs.values())

    def livez(self, job_id: str | None = None) -> dict[str, object]:
        """Return the answer of ``/livez``: not ok while a hang of the job is confirmed and the second look has passed.

        ``job_id``: None for any job. An unknown job is ok.
        """
        watches = [w for name, w in self.jobs.items() if job_id in {None, name}]
        records = [r for watch in watches for r in watch.records if r.active and r.incident.verdict.kind in HANG_KINDS]
        hangs = [
            {
                "job": r.incident.job.id,
                "kind": r.incident.verdict.kind,
                "reason": r.incident.verdict.summary,
                "incident": r.id,
                "until": None if r.stands or (look := r.incident.second_look) is None else look.until or None,
            }
            for r in records
        ]
        return {"ok": not any(r.stands for r in records), "watched": bool(watches), "hangs": hangs}

    def readyz(self) -> dict[str, object]:
        """Return the answer of ``/readyz``: ok once the first tick has ended, and as long as ``/healthz`` is ok."""
        health = self.healthz()
        return {**health, "ok": bool(health["ok"]) and self.last_tick_s is not None}

    def healthz(self) -> dict[str, object]:
        """Return the answer of ``/healthz``: not ok if the last tick ended 30 s ago or longer."""
        age_s = None if self.last_tick_s is None else time.monotonic() - self.last_tick_s
        return {"ok": age_s is None or age_s < 30.0, "last_tick_age_s": age_s, "jobs": sorted(self.jobs)}

    def live(self) -> LiveView:
        """Return the state of all jobs at the last tick, with their open incidents, as the page shows it."""
        return live_view(self._states(), self._beats, time.time_ns() if self.last_tick_s is not None else 0)

    def _states(self) -> tuple[JobState, ...]:
        """Return the state of every job now, ordered by job id."""
        return tuple(self.jobs[job_id].state for job_id in sorted(self.jobs))

    def _view(self, beats: Mapping[int, Beat]) -> MetricsView:
        now_ns = time.time_ns()
        return MetricsView(
            jobs=tuple(job_metrics(state, beats, now_ns, self.links) for state in self._states()),
            links=self.links,
            incidents_total=dict(self.totals),
            sources=self.health.metrics(),
            receivers=self.receivers(),
            agent=AgentMetrics(
                ticks_total=self.counts["ticks"],
                tick_duration_sum_s=self.tick_sum_s,
                captures_total=self.health.captures,
                capture_duration_sum_s=self.health.captures_sum_s,
                errors_total=self.counts["errors"] + registry.failed.total(),
            ),
        )
