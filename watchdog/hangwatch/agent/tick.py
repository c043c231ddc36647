"""The tick: observe, suspect, look, diagnose, tell. One ``JobWatch`` a job; all decisions are made elsewhere, purely."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from hangwatch.agent.capture import Beats, Trail, add_call_sites, capture_job, keep_recent
from hangwatch.agent.document import asked_of_nodes, make_incident, missing
from hangwatch.agent.hardware import OF_THE_LOST, add_hardware
from hangwatch.agent.health import Ledger
from hangwatch.agent.reopening import Hold, LeftOpen
from hangwatch.agent.secrecy import secret_values
from hangwatch.agent.silence import SilenceWatch
from hangwatch.agent.suspicion import Suspector, read_pulse
from hangwatch.agent.telemetry import TrainingTelemetry
from hangwatch.agent.told import Announce, Told, keep
from hangwatch.analysis.patience import Patience, fixed_patience
from hangwatch.causes.diagnosis import Diagnosis, diagnose
from hangwatch.model.beats import Beat
from hangwatch.model.capture import Capture, Gap, Job, RankIdentity
from hangwatch.outputs.bundle import BundleError, write_bundle
from hangwatch.sources.discovery import FoundJob
from hangwatch.sources.node import NodeWatch
from hangwatch.sources.redaction import hide_values

log = logging.getLogger("hangwatch")

#: Operations younger than this when looked at are no waits yet.
MIN_WAIT_S = 0.5
#: Of how many ranks, at the most, call sites are fetched before a verdict is told.
SITES_LIMIT = 8
#: A process that is gone while its launcher is still at it: so long it may take the launcher to end the others.
LOST_GRACE_S = 1.5
#: So many times its patience an agent that was started anew takes until it may say that a hang it was told of is none.
HOLD_FACTOR = 1.5


@dataclass
class JobWatch:
    """One job under watch: its ranks, what is suspected, and the incident there may be; ``silence`` has that of its training.

    ``stall_after_s``: the user's patience, None to learn it from the job. ``announce`` is called once an incident when
    its bundle is on disk, and again when it ends or its kind changes.
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
    gaps: tuple[Gap, ...] = ()
    silence: SilenceWatch = field(init=False)
    _completing: asyncio.Task[None] | None = None
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
        self.job = found.job if found is not None else self.job
        here = {r.rank: r for r in found.ranks} if found is not None else {}
        restarted = any(r in self.ranks and self.ranks[r].pid != i.pid for r, i in here.items())
        if restarted:
            # A new incarnation of the job: nothing of the old one speaks for it.
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
        """Whether every rank that was ever seen is gone."""
        return bool(self.ranks) and len(self.lost_since_s) == len(self.ranks)

    async def tick(self, beats: Mapping[int, Beat], now_s: float) -> float | None:
        """One tick. Returns the seconds after which to tick again at the latest, None for the usual period."""
        now_ns = time.time_ns()
        if self.over:
            await self.end(now_ns)
            return None
        self.training.update(self.ranks, beats, now_ns)
        await self.silence.update(self.job, self.training.series, self.ranks, self.reader, now_ns)
        alone = {pid for pid, beat in beats.items() if beat.alone}  # they wait for nobody, and may rest as they like
        alive = [i for r, i in self.ranks.items() if r not in self.lost_since_s and i.pid not in alone]
        pulses = [read_pulse(i.rank, beats[i.pid], now_ns) for i in alive if i.pid in beats]
        lost = any(now_s - since >= LOST_GRACE_S for since in self.lost_since_s.values())
        suspicion = self.suspector.update(
            pulses, unprobed=len(pulses) < len(alive), lost=lost, now_s=now_s, limit_s=self.stall_after_s
        )
        if self._hold is not None and not self._hold.lasts(pulses, now_s):
            self._hold = None
        if suspicion is None:
            self.trail = Trail()
            await self._recover(now_ns)
            return self.suspector.soonest_s()
        if now_s >= suspicion.next_look_s:
            await self._look(now_ns)
            self.suspector.looked(time.monotonic(), self.patience.stall_s)
        return max(0.05, suspicion.next_look_s - time.monotonic())

    async def _look(self, detected_ns: int) -> None:
        self.looks += 1
        patience = self.patience
        self.trail.trim(detected_ns - int(max(60.0, 1.5 * patience.stall_s, 1.1 * patience.held_s) * 1e9))
        alive = [i for r, i in self.ranks.items() if r not in self.lost_since_s]
        capture, _ = await asyncio.gather(self.capture(), self.node.begin(alive))
        diagnosis = diagnose(capture, patience=patience, min_wait_s=MIN_WAIT_S)
        if self.standing is None or self.standing.incident.verdict.kind == "straggler":
            diagnosis = await self._with_hardware(diagnosis, patience)
        kind = diagnosis.verdict.kind
        reason = self.suspector.current.reason if self.suspector.current is not None else ""
        log.debug(
            "look %d (%s): %s, waited %s s, %s", self.looks, reason, kind, diagnosis.waited_s, diagnosis.case.waits()
        )
        if kind == "healthy":
            if not diagnosis.case.graph.edges:
                await self._recover(time.time_ns())
            return
        if self.standing is not None:
            if self.standing.incident.verdict.kind == "straggler" and kind != "straggler":
                await self._tell(await self._with_call_sites(diagnosis, patience), detected_ns, same=True)
            return
        await self._tell(await self._with_call_sites(diagnosis, patience), detected_ns, same=False)

    async def capture(self) -> Capture:
        """Look closely at all ranks now."""
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

    async def _with_hardware(self, diagnosis: Diagnosis, patience: Patience) -> Diagnosis:
        """The same diagnosis with what the node says of its GPUs and its fabric, where that may change it.

        A proof needs none of it and does not wait for it: it comes into the bundle later.
        """
        kind, case = diagnosis.verdict.kind, diagnosis.case
        together = case.blame.shape == "together" and (diagnosis.waited_s or 0.0) >= patience.stall_s
        if kind == "deadlock" or (kind in {"healthy", "straggler"} and not together):
            return diagnosis
        capture = await add_hardware(case.capture, self.node, OF_THE_LOST if kind == "rank_lost" else None)
        if capture is case.capture:
            return diagnosis
        return diagnose(capture, patience=patience, min_wait_s=MIN_WAIT_S)

    async def _with_call_sites(self, diagnosis: Diagnosis, patience: Patience) -> Diagnosis:
        """The same diagnosis with the call sites of both sides, where ranks parted: their history tells why."""
        blame = diagnosis.case.blame
        if blame.shape != "cycle" and (blame.parting is None or not blame.parting.mismatch):
            return diagnosis
        wanted = {r for r in diagnosis.case.representatives() if r is not None} | set(blame.component[:SITES_LIMIT])
        capture = await add_call_sites(diagnosis.case.capture, self.reader, sorted(wanted))
        again = diagnose(capture, patience=patience, min_wait_s=MIN_WAIT_S)
        return again if again.verdict.kind == diagnosis.verdict.kind else diagnosis

    async def _tell(self, diagnosis: Diagnosis, detected_ns: int, *, same: bool) -> None:
        since = self.suspector.current
        since_ns = time.time_ns() - int((time.monotonic() - since.since_s) * 1e9) if since else detected_ns
        onset_ns = diagnosis.case.still_since_ns or since_ns
        incident = make_incident(
            diagnosis,
            detected_ns=detected_ns,
            confirmed_ns=time.time_ns(),
            onset_ns=onset_ns,
            id=self.told.incident.id if same and self.told is not None else None,
        )
        self.told = keep(self.state_dir, incident, diagnosis, self._judged(diagnosis.case.capture))
        await self.completed()
        self._completing = asyncio.create_task(self._complete(self.told))  # begins when this has been told
        await self.announce(self.told.incident, self.told.path)

    def _judged(self, capture: Capture) -> Capture:
        """The capture with the samples by which ``diagnose`` has judged motion."""
        return keep_recent(capture, self.patience.motion_window_s)

    async def completed(self) -> None:
        """Wait until the bundle of the incident that was told last is complete."""
        task = self._completing  # others may wait for it as well
        if task is not None:
            await asyncio.wait({task})
            if self._completing is task:
                self._completing = None
                if error := task.exception():
                    log.error("the bundle could not be completed", exc_info=error)

    async def _complete(self, told: Told) -> None:
        """Add every rank's call sites and the node's hardware to a bundle: dearer, so it comes after it was told."""
        if told.path is None:
            return
        capture = await add_call_sites(told.diagnosis.case.capture, self.reader)
        if not capture.nodes:
            capture = await add_hardware(capture, self.node)
        incident = msgspec.structs.replace(
            told.incident,
            captured={**told.incident.captured, **asked_of_nodes(capture), "call_sites": True},
            missing=tuple(dict.fromkeys((*told.incident.missing, *missing(capture)))),
        )
        try:
            write_bundle(self.state_dir, incident, self._judged(capture))
        except BundleError as error:
            log.warning("%s", error)
            return
        told.incident = incident

    async def end(self, at_ns: int) -> None:
        """The job is over, and so are its incidents."""
        await self.close(at_ns)
        await self.silence.close(at_ns)

    async def _recover(self, at_ns: int) -> None:
        """Nothing hangs, as far as this agent has seen."""
        if self._hold is None:
            await self.close(at_ns)

    async def close(self, at_ns: int) -> None:
        """The hang is over: what was waited for has come, or the job has ended."""
        await self.completed()
        if self.standing is not None:
            await self.standing.close(self.state_dir, self.announce, at_ns)
