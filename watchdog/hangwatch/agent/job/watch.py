"""The watch over one job, a tick at a time: observe, suspect, capture, diagnose, report. Keeps order and state only.

All decisions are pure and made elsewhere (``suspicion``, ``diagnose``). May import the capturing and the incidents rooms and its
own; of the fleet it knows ``other_nodes`` alone.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import msgspec

from hangwatch.agent.capturing.local_ranks import LocalRanks
from hangwatch.agent.capturing.scope import CaptureScope, LocalScope
from hangwatch.agent.capturing.source_health import SourceHealth
from hangwatch.agent.incidents.actions import Actor
from hangwatch.agent.incidents.history import HangHistory
from hangwatch.agent.incidents.lifecycle import IncidentLifecycle
from hangwatch.agent.incidents.record import (
    Announce,
    IncidentRecord,
    Sharing,
    TellStand,
    announce_to_nobody,
    tell_nobody,
)
from hangwatch.agent.incidents.reopen import LeftOpen
from hangwatch.agent.job.diagnose import (
    explains_better,
    judge,
    names_unseen,
    supersedes,
    with_call_sites,
    with_hardware,
    with_order,
)
from hangwatch.agent.job.failure import FailureWatch
from hangwatch.agent.job.other_nodes import Elsewhere, Fleet, NoOtherNodes, OtherNodes
from hangwatch.agent.job.patience import JobPatience
from hangwatch.agent.job.second_look import Look, SecondLooking, describe_stand, look_at
from hangwatch.agent.job.silent_failure import SilentFailureWatch
from hangwatch.agent.job.slowness import OnThisNode, SlownessWatch
from hangwatch.agent.job.state import JobState
from hangwatch.agent.job.suspicion import Hold, Suspector
from hangwatch.config.settings import Settings
from hangwatch.diagnosis.verdict import Diagnosis
from hangwatch.model.beats import Beat
from hangwatch.model.capture import Gap, Job, RankIdentity
from hangwatch.model.incident import HANG_KINDS, Incident, SecondLook
from hangwatch.model.progress import RankProgress, read_progress
from hangwatch.model.serving import EngineState
from hangwatch.serving.engine import EngineWatch
from hangwatch.sources.beats.node_beats import NodeBeats
from hangwatch.sources.discovery.found_jobs import FoundJob
from hangwatch.sources.discovery.process_table import KnownProcess
from hangwatch.sources.proc.ends import ProcessEnds
from hangwatch.training.telemetry import TrainingTelemetry


class Clock(Protocol):
    """The time, as the module ``time`` has it: a replay has its own."""

    def monotonic(self) -> float:
        """Seconds of a clock that is never set."""

    def time_ns(self) -> int:
        """Nanoseconds since the epoch."""


log = logging.getLogger("hangwatch")

#: Digests that are read together are of moments so far apart: each is written once a second, and read once a second.
DIGEST_SKEW_S = 2.5
#: A process that is gone while its launcher is still at it: so long it may take the launcher to end the others.
LOST_GRACE_S = 1.5
#: Captures without the ranks to be blamed, before these are named by their digests alone.
UNANSWERED_CAPTURES = 3
#: So many times its patience an agent that was started anew takes until it may say that a hang that was reported is none.
HOLD_FACTOR = 1.5


@dataclass
class JobWatch:
    """One job under watch: its ``ranks``, what is suspected of them, and when they are captured.

    ``local`` captures this node, ``scope`` what this agent diagnoses: this node, or all nodes of ``fleet``. ``incidents`` reports
    hangs, ``silent_failures`` what training says of itself, ``slowness`` who makes the others late, ``failures`` why the job has
    failed. ``history`` has the job's earlier hangs. ``engines`` are those whose ranks these are; a job without ranks is an engine
    alone. ``captures`` counts those that were diagnosed here. ``second_look`` says when a hang may be acted on, and
    ``acting`` what is done about it then (None: nothing).
    """

    ranks: LocalRanks
    local: LocalScope
    patience: JobPatience
    incidents: IncidentLifecycle
    silent_failures: SilentFailureWatch
    slowness: SlownessWatch
    failures: FailureWatch
    training: TrainingTelemetry = field(default_factory=TrainingTelemetry)
    fleet: OtherNodes = field(default_factory=NoOtherNodes)
    history: HangHistory = field(default_factory=HangHistory)
    engines: tuple[EngineWatch, ...] = ()
    second_look: SecondLooking = field(default_factory=SecondLooking)
    acting: Actor | None = None
    clock: Clock = time
    scope: CaptureScope = field(init=False)
    suspector: Suspector = field(init=False)
    captures: int = 0
    _unanswered: int = 0
    _hold: Hold | None = None
    _reported: Look | None = None
    #: The job and its ranks before it was started anew, as long as nobody has looked at why they ended.
    _replaced: tuple[Job, tuple[RankIdentity, ...]] | None = None

    def __post_init__(self) -> None:
        """By itself at first: this node is all there is to capture."""
        self.scope = self.local
        self.suspector = Suspector(cadence=self.patience.cadence)
        self.incidents.note = self._note

    async def _note(self, incident: Incident) -> Incident:
        """The incident with the job's hangs before it."""
        await self.history.recall(incident.job.id)
        return self.history.note(incident, self.training.step)

    @property
    def records(self) -> tuple[IncidentRecord, ...]:
        """The last incident of each sort, over or not: a hang, a training that learns nothing, a late rank, a failure."""
        sorts = (self.incidents, self.silent_failures.incidents, self.slowness.incidents, self.failures.incidents)
        return tuple(one.record for one in sorts if one.record is not None)

    @property
    def state(self) -> JobState:
        """The job as it is now, for whoever shows it."""
        return JobState(
            job=self.ranks.job,
            ranks=self.ranks.known,
            lost=frozenset(self.ranks.lost_since_s),
            patience=self.patience.current,
            training=self.training.series,
            hang=self.incidents.open_record,
            silent_failure=self.silent_failures.incidents.open_record,
            slow=self.slowness.incidents.open_record,
            last_to_join=self.slowness.last_to_join,
            engines=tuple(state for _, state in self._engine_states(self.clock.monotonic())),
        )

    def _engine_states(self, now_s: float) -> list[tuple[EngineWatch, EngineState]]:
        """The engines that have answered, and how they are; the one from which nothing has come for longest is first."""
        pids = frozenset(identity.pid for identity in self.ranks.known.values())
        states = ((engine, engine.state(now_s, pids)) for engine in self.engines)
        return sorted(((e, s) for e, s in states if s is not None), key=lambda pair: -pair[1].still_s)

    def _suspect_engine(self, now_s: float) -> EngineState | None:
        """The engine that is suspected; its processes are captured with the ranks as long as it is."""
        found = next((pair for pair in self._engine_states(now_s) if pair[1].suspected), None)
        pids = frozenset(identity.pid for identity in self.ranks.known.values())
        self.local.beside = found[0].beside(now_s, pids) if found is not None else ()
        return found[1] if found is not None else None

    def update_ranks(self, found: FoundJob | None, now_s: float) -> None:
        """Take in which ranks exist now. Of a new incarnation of the job nothing of the old one speaks."""
        job, before = self.ranks.job, tuple(self.ranks.own.values())
        if self.ranks.update(found, now_s):
            self._replaced = (job, before)
            self.patience.end_wait(by_itself=False)
            self.suspector = Suspector(cadence=self.patience.cadence)
            self.local.forget_samples()
            self.training = self.training.restart()
            self.silent_failures.begin_again()

    def note_gaps(self, gaps: Sequence[Gap]) -> None:
        """Add what could not be observed in this tick to what is missing of training and of the other nodes."""
        self.local.gaps = (*gaps, *self.training.gaps, *self.fleet.gaps)

    def resume(self, left: LeftOpen, now_s: float) -> None:
        """Go on with an incident of this very job that an agent before this one has reported. Call it before ``update_ranks``."""
        if left.kind == "silent_failure":
            self.silent_failures.resume(left.as_record())
        elif left.kind == "slow":
            self.slowness.resume(left.as_record())
        else:
            self.incidents.resume(left.as_record())
            self.history.note(left.incident, None)
            engine = left.capture.engine
            patience_s = max(self.patience.current.stall_s, engine.patience_s if engine is not None else 0.0)
            self._hold = Hold(now_s + HOLD_FACTOR * patience_s)
        beside = left.capture.engine.beside if left.capture.engine is not None else ()
        self.ranks.add(identity for identity in left.here if identity.rank not in beside)

    def join(self, fleet: Fleet) -> None:
        """Be one of several nodes from now on."""
        self.fleet = fleet
        self.scope = self.incidents.scope = fleet.scope
        self.incidents.sharing = fleet.sharing
        self.slowness.comparison = fleet.comparison

    async def leave_fleet(self, why: tuple[Gap, ...] = (), *, joining: bool = False) -> None:
        """Go on without the other nodes. If they go on too the incident is theirs, else it is over with this.

        ``joining``: this node is about to join them, and blames no rank that they may see.
        """
        fleet, self.fleet = self.fleet, NoOtherNodes(why, follows=joining)
        self.scope = self.incidents.scope = self.local
        self.incidents.sharing = Sharing()
        self.slowness.comparison = OnThisNode(self.local)
        await fleet.leave()

    @property
    def over(self) -> bool:
        """Whether every rank ever seen is gone, no engine of theirs answers still, and no other node may ask for them."""
        gone = self.ranks.gone or not self.ranks.known
        return gone and not self.engines and not self.fleet.lingers()

    async def tick(self, beats: Mapping[int, Beat], now_s: float) -> float | None:
        """One tick. Returns the seconds after which to tick again at the latest, None for the usual period."""
        now_ns = self.clock.time_ns()
        if self.over:
            await self.end(now_ns)
            return None
        if self._replaced is not None:
            replaced, self._replaced = self._replaced, None
            await self._judge_end(*replaced)
        await self._judge_training(beats, now_ns)
        self.failures.look_for_dumps(beats)
        soonest_s = await self.look_for_hang(beats, now_s)
        calm = self.suspector.current is None and self.incidents.open_record is None
        paces = self.training.series.steps_per_s if self.training.series is not None else {}
        self.local.arrivals.windows.steps_per_s = max(paces.values(), default=0.0)
        await self.slowness.update(beats, now_s, now_ns, calm=calm)
        return soonest_s

    async def look_for_hang(self, beats: Mapping[int, Beat], now_s: float) -> float | None:
        """The part of a tick that suspects, captures and reports hangs; returns what the tick does."""
        now_ns, leads = self.clock.time_ns(), self.fleet.leads
        elsewhere = await self.fleet.lead() if leads else Elsewhere()
        progress, unprobed = self._observe(beats, now_ns)
        progress += elsewhere.progress
        self.suspector.skew_s = DIGEST_SKEW_S if leads else 0.0
        engine = self._suspect_engine(now_s)
        suspicion = self.suspector.update(
            progress,
            unprobed=unprobed or elsewhere.unprobed,
            lost=self.ranks.is_lost(now_s, LOST_GRACE_S) or elsewhere.lost,
            now_s=now_s,
            limit_s=self.patience.stall_after_s,
            starved_s=engine.still_s if engine is not None else None,
        )
        if self.fleet.follows:
            # What its own ranks teach is kept for when it has to lead; what it saw of a hang before is too old by then.
            self.second_look.forget()
            await self.fleet.follow()
            return None
        if self._hold is not None and not self._hold.lasts(progress, now_s):
            self._hold = None
        if suspicion is None:
            self.local.forget_samples()
            self.patience.end_wait()
            await self._recover(now_ns)
            return None if leads else self.suspector.soonest_s()
        if now_s >= suspicion.next_capture_s:
            await self._capture(now_ns, engine)
            patience_s = engine.patience_s if engine is not None else self.patience.current.stall_s
            self.suspector.captured(self.clock.monotonic(), patience_s)
        return max(0.05, suspicion.next_capture_s - self.clock.monotonic())

    async def _judge_training(self, beats: Mapping[int, Beat], now_ns: int) -> None:
        """Take in what training says, and report it if it does not learn."""
        self.training.update(self.ranks.own, {**beats, **self.local.last_beats()}, now_ns)
        if 0 in self.ranks.known or not (self.fleet.leads or self.fleet.follows):
            # Training speaks through rank 0: of all nodes that read it, its own one reports.
            await self.silent_failures.update(self.training.series, now_ns)

    def _observe(self, beats: Mapping[int, Beat], now_ns: int) -> tuple[list[RankProgress], bool]:
        """The progress of this node's ranks, and whether one of them has no probe."""
        alone = {
            pid for pid, beat in beats.items() if beat.alone
        }  # they wait for no other rank, and may idle as they like
        watched = [identity for identity in self.ranks.living if identity.pid not in alone]
        progress = [
            read_progress(i.rank, beats[i.pid], now_ns, self.ranks.job.world_size) for i in watched if i.pid in beats
        ]
        return progress, len(progress) < len(watched)

    async def _capture(self, detected_ns: int, engine: EngineState | None) -> None:
        """Capture the job and report what that shows, if it is news.

        Not while a bundle is being completed: the readers of native stacks stop the ranks, which would then not answer.
        """
        if self.incidents.completing:
            return
        self.captures += 1
        patience = self.patience.current
        self.local.trim_samples(detected_ns - int(max(60.0, 1.5 * patience.stall_s, 1.1 * patience.blocked_s) * 1e9))
        capture, _ = await asyncio.gather(self.scope.capture(), self.local.begin_hardware())
        capture = msgspec.structs.replace(capture, engine=engine)
        diagnosis = await judge(capture, patience)
        known = self.incidents.open_record
        self.patience.see(diagnosis.case, diagnosis.waited_s, acted=known is not None and known.stands)
        if (in_phase := self.patience.current) != patience:
            diagnosis = await judge(capture, patience := in_phase)
        diagnosis = await with_order(self.scope, diagnosis, patience)
        if known is None or not known.stands:
            diagnosis = await with_hardware(self.scope, diagnosis, patience)
        kind, case = diagnosis.verdict.kind, diagnosis.case
        reason = self.suspector.current.reason if self.suspector.current is not None else ""
        log.debug("capture %d (%s): %s, waited %s s, %s", self.captures, reason, kind, diagnosis.waited_s, case.waits())
        if kind == "healthy":
            # A capture that shows no wait while the beats do has failed to see it.
            if case.idleness == "idle" or not (case.graph.edges or self.suspector.sees_wait):
                await self._recover(self.clock.time_ns())
            if (known := self.incidents.open_record) is not None:
                await self._look_again(diagnosis, known)
            return
        if self.waits_for_answers(diagnosis):
            return
        if known is not None and known.partial and self.fleet.leads:
            await self.incidents.complete_from_fleet(diagnosis)
        if known is not None and not supersedes(diagnosis, known.incident.verdict):
            await self._look_again(diagnosis, known)
            return
        self.second_look.forget()
        second_look = self._stand(diagnosis, None)
        await self._report(diagnosis, detected_ns, second_look)

    async def _report(self, diagnosis: Diagnosis, detected_ns: int, second_look: SecondLook | None) -> None:
        """Report what a capture shows, or report the open incident again."""
        self._reported = look_at(diagnosis)
        diagnosis = await with_call_sites(self.scope, diagnosis, self.patience.current)
        self._catch_up()
        since_ns = self._suspected_since_ns()
        await self.incidents.report(diagnosis, detected_ns=detected_ns, since_ns=since_ns, second_look=second_look)

    async def _look_again(self, diagnosis: Diagnosis, known: IncidentRecord) -> None:
        """Take in a capture after the report; what has become clear by now, those who may act are told."""
        before = known.incident.second_look
        if explains_better(diagnosis, known.diagnosis):
            better = await with_call_sites(self.scope, diagnosis, self.patience.current)
            if explains_better(better, known.diagnosis):
                stands = before if before is None or before.passed else self._stand(better, before)
                await self._report(better, self.clock.time_ns(), stands)
                return
        if before is None or before.passed:
            return
        second_look = self._stand(diagnosis, before)
        if second_look is None or second_look == before:
            return
        look, reported = look_at(diagnosis), self._reported
        if second_look.passed and (reported is None or not look.is_like(reported)):
            # What is acted on is what was reported.
            await self._report(diagnosis, self.clock.time_ns(), second_look)
        else:
            await self.incidents.look_again(second_look)

    def _stand(self, diagnosis: Diagnosis, before: SecondLook | None) -> SecondLook | None:
        """How the second look stands after this capture, which it also plans the next one for; None of what is no hang."""
        if before is None and diagnosis.verdict.kind not in HANG_KINDS:
            return None
        plan = self.acting.plan(diagnosis.verdict) if self.acting is not None else ""
        if why := self.fleet.distrust:
            self.second_look.forget()
            return SecondLook("", "", plan, why)
        look, now_s = look_at(diagnosis), self.clock.monotonic()
        stand = self.second_look.take(look, now_s)
        if self.suspector.current is not None and stand.in_s is not None:
            self.suspector.current.act_at_s = now_s + stand.in_s
        return describe_stand(stand, before, self.clock.time_ns(), look, plan)

    def _catch_up(self) -> None:
        """Have the step at which the job hangs: the beats of this tick may be from before it."""
        if self.local.reader is not None:
            self.training.update(self.ranks.own, self.local.reader.read()[0], self.clock.time_ns())

    def _suspected_since_ns(self) -> int | None:
        """Since when the job is suspected (wall clock)."""
        current = self.suspector.current
        return (
            self.clock.time_ns() - int((self.clock.monotonic() - current.since_s) * 1e9)
            if current is not None
            else None
        )

    def waits_for_answers(self, diagnosis: Diagnosis) -> bool:
        """Whether the next capture may have the ranks that this one is without: a node that is slow to answer is not to blame
        for what others do."""
        if not self.fleet.answers_may_come or not names_unseen(diagnosis):
            self._unanswered = 0
            return False
        self._unanswered += 1
        return self._unanswered <= UNANSWERED_CAPTURES

    async def end(self, at_ns: int) -> None:
        """The job is over, and so are its incidents. What it has left is judged before: it may have ended between two ticks."""
        self.slowness.stop()
        await self.training.finish()
        await self._judge_training(self.local.read_beats(), at_ns)
        await self._judge_end(self.ranks.job, tuple(self.ranks.own.values()))
        await self.leave_fleet()
        await self.incidents.close(at_ns)
        await self.silent_failures.incidents.close(at_ns)
        await self.slowness.incidents.close(at_ns)

    async def _judge_end(self, job: Job, ranks: Sequence[RankIdentity]) -> None:
        """The ranks have ended. A hang that was reported explains that; and one node of the job reports for all."""
        if self.incidents.open_record is None and not self.fleet.follows and not self._were_ended(ranks):
            await self.failures.report(job, ranks, self.clock.time_ns())
        else:
            self.failures.forget(ranks)

    def _were_ended(self, ranks: Sequence[RankIdentity]) -> bool:
        """Return whether hangwatch has acted on a hang of these ranks: a handler of the program may end them in any way then."""
        known = self.incidents.record
        began_s = max((one.start_time for one in ranks), default=0.0)
        if known is None or known.onset_ns < began_s * 1e9:
            return False
        return self.acting is not None and self.acting.taken_for(known.incident) is not None

    async def pause(self) -> None:
        """The agent ends and the job goes on: its incidents stay open."""
        self.slowness.stop()
        await self.fleet.pause()

    async def _recover(self, at_ns: int) -> None:
        """Nothing hangs, as far as this agent has seen: what was waited for has come."""
        if self._hold is None and not self._starves():
            await self.incidents.close(at_ns)

    def _starves(self) -> bool:
        """Whether nothing has come out of the engine of the open incident since: it is not well, whatever its processes show."""
        known = self.incidents.open_record
        before = known.diagnosis.case.capture if known is not None else None
        if before is None or before.engine is None:
            return False
        ago_s = (self.clock.time_ns() - before.at_ns) / 1e9
        states = (
            state for _, state in self._engine_states(self.clock.monotonic()) if state.address == before.engine.address
        )
        return any(state.demanded and state.still_s >= ago_s for state in states)


def watch_job(
    job: Job,
    state_dir: Path,
    announce: Announce,
    *,
    on_peer_incident: Announce = announce_to_nobody,
    tell_stand: TellStand = tell_nobody,
    settings: Settings | None = None,
    reader: NodeBeats | None = None,
    health: SourceHealth | None = None,
    history: HangHistory | None = None,
    ended: Callable[[], Sequence[KnownProcess]] = tuple,
    ends: ProcessEnds | None = None,
    acting: Actor | None = None,
    clock: Clock = time,
) -> JobWatch:
    """A watch over a job that was just found, with all that is its own. ``history``: of what was that job before.

    ``ended``: the Python programs that have ended on this node. ``ends``: sees how the ranks end. ``acting``: acts on hangs;
    None if nothing does.
    """
    settings = settings if settings is not None else Settings()
    ranks = LocalRanks(job)
    local = LocalScope(ranks, reader, settings, health if health is not None else SourceHealth(), ended=ended)
    patience = JobPatience(settings.patience_s)
    return JobWatch(
        ranks=ranks,
        local=local,
        patience=patience,
        incidents=IncidentLifecycle(state_dir, announce, on_peer_incident, tell_stand, local, patience.trim),
        silent_failures=SilentFailureWatch(local, IncidentLifecycle(state_dir, announce)),
        slowness=SlownessWatch(local, IncidentLifecycle(state_dir, announce)),
        failures=FailureWatch(local, IncidentLifecycle(state_dir, announce), ends),
        training=TrainingTelemetry(settings.logs),
        history=history if history is not None else HangHistory(),
        second_look=SecondLooking(settings.act_after_s or None),
        acting=acting,
        clock=clock,
    )
