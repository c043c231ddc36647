"""What the metrics show of the jobs under watch: from their states and beats to plain values. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from hangwatch.agent.incidents.record import IncidentRecord
from hangwatch.agent.job.state import JobState
from hangwatch.analysis.progress import group_label, word_state
from hangwatch.model.beats import Beat
from hangwatch.outputs.metrics.view import GroupMetrics, IncidentMetrics, JobMetrics, RankMetrics


def job_metrics(state: JobState, beats: Mapping[int, Beat], now_ns: int) -> JobMetrics:
    """One job as the metrics show it; incidents of other nodes are in the metrics there."""
    records = (state.hang, state.silent_failure)
    return JobMetrics(
        id=state.job.id,
        ranks=tuple(_rank_metrics(state, rank, beats, now_ns) for rank in sorted(state.ranks)),
        incidents=tuple(_incident_metrics(r) for r in records if r is not None and not r.owned_by_peer),
        launcher=state.job.launcher,
        world_size=state.job.world_size,
        patience_s=state.patience_s,
        training=state.training,
    )


def _incident_metrics(record: IncidentRecord) -> IncidentMetrics:
    verdict = record.incident.verdict
    cause = verdict.cause
    return IncidentMetrics(
        id=record.id,
        kind=verdict.kind,
        cause=cause.id if cause is not None else "unknown",
        severity=verdict.severity,
        onset_unix_s=record.onset_ns // 1_000_000 / 1000,  # to the millisecond, as in the document
        culprit_ranks=verdict.culprit_ranks,
        summary=verdict.summary,
        title=cause.title if cause is not None else "",
        remedy=cause.remedy if cause is not None else (),
    )


def _rank_metrics(state: JobState, rank: int, beats: Mapping[int, Beat], now_ns: int) -> RankMetrics:
    identity = state.ranks[rank]
    beat = beats.get(identity.pid)
    age_s = beat.age_s(now_ns) if beat is not None else None
    groups = tuple(
        GroupMetrics(
            label=group_label(g, state.job.world_size),
            size=len(g.ranks),
            enqueued=max(g.enqueued, 0),
            completed=max(g.completed, 0),
            in_flight_s=g.unmoved_s + (age_s or 0.0) if g.in_flight else None,
        )
        for g in (beat.groups if beat is not None else ())
    )
    return RankMetrics(
        rank=rank,
        node=identity.node,
        pid=identity.pid,
        state=rank_state(state, rank, beat),
        beat_age_s=age_s,
        groups=groups,
    )


def rank_state(state: JobState, rank: int, beat: Beat | None) -> str:
    """One word; what a diagnosis said of the rank while an incident is open, else what the beat says."""
    if rank in state.lost:
        return "lost"
    if state.hang is not None and rank in state.hang.diagnosis.case.views:
        return state.hang.diagnosis.case.views[rank].state
    return word_state(beat)
