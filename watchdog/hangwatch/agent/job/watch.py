"""The tick: observe, suspect, look, diagnose, tell. One ``JobWatch`` a job; all decisions are made elsewhere, purely."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from hangwatch.agent.capturing.capture import Beats, Trail, add_call_sites, capture_job, keep_recent
from hangwatch.agent.capturing.hardware import add_hardware
from hangwatch.agent.capturing.redact import secret_values
from hangwatch.agent.capturing.source_health import Ledger
from hangwatch.agent.incidents.adopt import make_whole
from hangwatch.agent.incidents.publish import says_more, tell
from hangwatch.agent.incidents.record import Announce, Told, keep, tell_nobody
from hangwatch.agent.incidents.reopen import Hold, LeftOpen, is_same_process
from hangwatch.agent.job.diagnose import judge, look, with_call_sites, with_hardware
from hangwatch.agent.job.silent_failure import SilenceWatch
from hangwatch.agent.job.suspicion import Suspector
from hangwatch.agent.job.telemetry import TrainingTelemetry
from hangwatch.analysis.patience import Patience, fixed_patience
from hangwatch.diagnosis.verdict import Diagnosis
from hangwatch.model.beats import Beat
from hangwatch.model.capture import Capture, Gap, Job, RankIdentity
from hangwatch.model.incident import Incident
from hangwatch.model.progress import read_progress
from hangwatch.sources.discovery.found_jobs import FoundJob
from hangwatch.sources.hardware.registry import NodeWatch
from hangwatch.sources.redaction import hide_values

if TYPE_CHECKING:
    from hangwatch.agent.fleet.member import JobFleet

log = logging.getLogger("hangwatch")

#: Digests of one look around are of moments so far apart: each is written once a second, and read once a second.
DIGEST_SKEW_S = 2.5
#: A process that is gone while its launcher is still at it: so long it may take the launcher to end the others.
LOST_GRACE_S = 1.5
#: Looks that did not bring the captures of ranks to be blamed, before these are named by their digests alone.
UNANSWERED_LOOKS = 3
#: So many times its patience an agent that was started anew takes until it may say that a hang it was told of is none.
HOLD_FACTOR = 1.5


@dataclass
class JobWatch:
    """One job under watch: its ranks, what is suspected, and the incident there may be; ``silence`` has that of its training.

    ``stall_after_s``: the user's patience, None to learn it from the job. ``announce`` is called once an incident when
    its bundle is on disk, and again when it ends or its kind changes; ``hear`` is, where another node tells of one. ``fleet``
    is this node's part among the nodes of the job, None where it is by itself; ``master`` is where the job's ranks meet.
    """

    job: Job
    state_dir: Path
    announce: Announce
    stall_after_s: float | None = None
    reader: Beats | None = None
    ledger: Ledger = field(default_factory=Ledger)
    with_values: bool = False
    ranks: dict[int, RankIdentity] = field(default_factory=dict)
    lost_since_s: dict[int, float] = field(default_factory=dict)
    suspector: Suspector = field(default_factory=Suspector)
    trail: Trail = field(default_factory=Trail)
    node: NodeWatch = field(default_factory=NodeWatch)
    training: TrainingTelemetry = field(default_factory=TrainingTelemetry)
    told: Told | None = None
    looks: int = 0
    unanswered: int = 0
    gaps: tuple[Gap, ...] = ()
    hear: Announce = tell_nobody
    fleet: JobFleet | None = None
    master: str = ""
    replaced_s: float | None = None
    silence: SilenceWatch = field(init=False)
    completing: asyncio.Task[None] | None = None
    _hold: Hold | None = None

    def __post_init__(self) -> None:
        """Follow the training as well."""
        self.silence = SilenceWatch(self.state_dir, self.announce)

    @property
    def patience(self) -> Patience:
        """The user's patience, or the one the job has taught."""
        if self.stall_after_s is not None:
            return fixed_patience(self.stall_after_s)
        return self.suspector.cadence.patience()

    @property
    def standing(self) -> Told | None:
        """The incident that was told and is not over."""
        return self.told if self.told is not None and self.told.active else None

    @property
    def all_told(self) -> tuple[Told, ...]:
        """The last incident of each sort, over or not: a hang, a training that learns nothing."""
        return tuple(told for told in (self.told, self.silence.told) if told is not None)

    def meet(self, found: FoundJob | None, now_s: float) -> None:
        """Take in which ranks exist now. A restarted rank replaces the one before; a vanished one is kept as lost."""
        if found is not None:
            self.job, self.master = found.job, found.master
        here = {r.rank: r for r in found.ranks} if found is not None else {}
        known = self.ranks
        began = [i.start_time for r, i in here.items() if r in known and not is_same_process(known[r], i)]
        if began:
            # A new incarnation of the job: nothing of the old one speaks for it. It had ended when this one began, however late
            # that is seen.
            self.replaced_s = min((*self.lost_since_s.values(), now_s - max(0.0, time.time_ns() / 1e9 - min(began))))
            self.ranks.clear()
            self.lost_since_s.clear()
            self.suspector = Suspector(cadence=self.suspector.cadence)
            self.trail = Trail()
            self.training = self.training.restart()
            self.silence.begin_again()
        self.ranks.update(here)
        for rank in self.ranks:
            if rank in here:
                self.lost_since_s.pop(rank, None)
            else:
                self.lost_since_s.setdefault(rank, now_s)
        self.job = msgspec.structs.replace(
            self.job, command=hide_values(self.job.command, secret_values(self.ranks.values()))
        )

    def take_up(self, left: LeftOpen, now_s: float) -> None:
        """Go on with an incident of this very job that an agent before this one has told. Call it before ``meet``."""
        told = left.as_told()
        if left.silent:
            self.silence.take_up(told)
        else:
            self.told = told
            self._hold = Hold(now_s + HOLD_FACTOR * self.patience.stall_s)
        for identity in left.here:
            self.ranks.setdefault(identity.rank, identity)

    @property
    def over(self) -> bool:
        """Whether every rank that was ever seen is gone, and no other node may ask for them any more."""
        gone = bool(self.ranks) and len(self.lost_since_s) == len(self.ranks)
        return gone and not (self.fleet is not None and self.fleet.lingers)

    async def tick(self, beats: Mapping[int, Beat], now_s: float) -> float | None:
        """One tick. Returns the seconds after which to tick again at the latest, None for the usual period."""
        now_ns = time.time_ns()
        if self.over:
            await self.end(now_ns)
            return None
        self.training.update(self.ranks, beats, now_ns)
        if self.fleet is None or 0 in self.ranks or not (self.fleet.leads or self.fleet.follows):
            # Training speaks through rank 0: of all nodes that hear it, its own one tells.
            await self.silence.update(self.job, self.training.series, self.ranks, self.reader, now_ns)
        alone = {pid for pid, beat in beats.items() if beat.alone}  # they wait for nobody, and may rest as they like
        alive = [i for r, i in self.ranks.items() if r not in self.lost_since_s and i.pid not in alone]
        progress = [read_progress(i.rank, beats[i.pid], now_ns, self.job.world_size) for i in alive if i.pid in beats]
        lost = any(now_s - since >= LOST_GRACE_S for since in self.lost_since_s.values())
        unprobed = len(progress) < len(alive)
        leads = self.fleet is not None and self.fleet.leads
        self.suspector.skew_s = DIGEST_SKEW_S if leads else 0.0
        if self.fleet is not None and leads:
            await self.fleet.lead()
            there, some_unprobed, some_lost = self.fleet.look_around()
            progress, unprobed, lost = [*progress, *there], unprobed or some_unprobed, lost or some_lost
        suspicion = self.suspector.update(
            progress, unprobed=unprobed, lost=lost, now_s=now_s, limit_s=self.stall_after_s
        )
        if self.fleet is not None and self.fleet.follows:
            # What its own ranks teach is kept for when it has to lead.
            await self.fleet.follow()
            return None
        if self._hold is not None and not self._hold.lasts(progress, now_s):
            self._hold = None
        if suspicion is None:
            self.trail = Trail()
            await self._recover(now_ns)
            return None if leads else self.suspector.soonest_s()
        if now_s >= suspicion.next_look_s:
            await self._look(now_ns)
            self.suspector.looked(time.monotonic(), self.patience.stall_s)
        return max(0.05, suspicion.next_look_s - time.monotonic())

    async def _look(self, detected_ns: int) -> None:
        self.looks += 1
        patience = self.patience
        self.trail.trim(detected_ns - int(max(60.0, 1.5 * patience.stall_s, 1.1 * patience.blocked_s) * 1e9))
        alive = [i for r, i in self.ranks.items() if r not in self.lost_since_s]
        capture, _ = await asyncio.gather(look(self), self.node.begin(alive))
        diagnosis = await judge(capture, patience)
        if self.standing is None or self.standing.incident.verdict.kind == "straggler":
            diagnosis = await with_hardware(self, diagnosis, patience)
        kind = diagnosis.verdict.kind
        reason = self.suspector.current.reason if self.suspector.current is not None else ""
        log.debug(
            "look %d (%s): %s, waited %s s, %s", self.looks, reason, kind, diagnosis.waited_s, diagnosis.case.waits()
        )
        if kind == "healthy":
            if not diagnosis.case.graph.edges:
                await self._recover(time.time_ns())
            return
        if self.waits_for_answers(diagnosis):
            return
        if self.standing is not None:
            if self.standing.partial and self.fleet is not None and self.fleet.leads:
                await make_whole(self, diagnosis)
            if says_more(diagnosis, self.standing.incident.verdict):
                await tell(self, await with_call_sites(self, diagnosis, patience), detected_ns, same=True)
            return
        await tell(self, await with_call_sites(self, diagnosis, patience), detected_ns, same=False)

    def waits_for_answers(self, diagnosis: Diagnosis) -> bool:
        """Whether an unproven verdict names ranks of which there is no capture, and the next look may bring one: a node that is
        slow to answer is not to blame for what others do."""
        named = set(diagnosis.verdict.culprit_ranks)
        unseen = {r.rank for r in diagnosis.case.capture.ranks if not (r.processes or r.stacks)}
        sure = diagnosis.verdict.proven or diagnosis.verdict.kind == "rank_lost"
        if self.fleet is None or sure or named.isdisjoint(unseen):
            self.unanswered = 0
            return False
        self.unanswered += 1
        return self.unanswered <= UNANSWERED_LOOKS

    async def look_here(self) -> Capture:
        """Look closely at the ranks of this node now."""
        ranks = [self.ranks[r] for r in sorted(self.ranks)]
        with self.ledger.capture():
            return await capture_job(
                self.job,
                ranks,
                reader=self.reader,
                trail=self.trail,
                gaps=self.gaps,
                ledger=self.ledger,
                with_values=self.with_values,
            )

    async def sites_here(self, capture: Capture, ranks: list[int] | None) -> Capture:
        """The capture with the call sites of those of ``ranks`` (None: all) that are on this node."""
        wanted = [r for r in self.ranks if ranks is None or r in ranks]
        return await add_call_sites(capture, self.reader, wanted)

    async def hardware_here(self, capture: Capture, only: tuple[str, ...] | None) -> Capture:
        """The capture with what this node says of its hardware."""
        return await add_hardware(capture, self.node, only)

    async def keep(self, incident: Incident, diagnosis: Diagnosis) -> Told:
        """Have this as the incident that was told, its bundle on disk, with the samples by which motion was judged."""
        capture = keep_recent(diagnosis.case.capture, self.patience.motion_window_s)
        self.told = await keep(self.state_dir, incident, diagnosis, capture)
        return self.told

    async def completed(self) -> None:
        """Wait until the bundle of the incident that was told last is complete."""
        task = self.completing  # others may wait for it as well
        if task is not None:
            await asyncio.wait({task})
            if self.completing is task:
                self.completing = None
                if error := task.exception():
                    log.error("the bundle could not be completed", exc_info=error)

    async def await_others(self) -> None:
        """Before the job is ended here: let the node that has told of the incident see all it needs."""
        if self.told is not None and self.told.heard and self.fleet is not None:
            await self.fleet.incident.await_completion(self.told)

    async def end(self, at_ns: int) -> None:
        """The job is over, and so are its incidents."""
        await self.leave_fleet()
        await self.close(at_ns)
        await self.silence.close(at_ns)

    async def _recover(self, at_ns: int) -> None:
        """Nothing hangs, as far as this agent has seen."""
        if self._hold is None:
            await self.close(at_ns)

    async def close(self, at_ns: int) -> None:
        """The hang is over: what was waited for has come, or the job has ended."""
        await self.completed()
        told = self.standing
        if told is None:
            return
        await told.close(self.state_dir, self.hear if told.heard else self.announce, at_ns)
        if self.fleet is not None and self.fleet.leads:
            await self.fleet.incident.spread(told, announced=True)

    async def leave_fleet(self) -> None:
        """Go on without the other nodes. If they go on too the incident is theirs, else it is over with this."""
        fleet, self.fleet = self.fleet, None
        if fleet is not None:
            last = await fleet.leave()
            if self.told is not None:
                self.told.heard = not last
