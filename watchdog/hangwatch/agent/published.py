"""What metrics and page show of the jobs under watch: from watches and beats to plain values. Pure but for the watch's clock."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from hangwatch.agent.tick import JobWatch
from hangwatch.agent.told import Told
from hangwatch.analysis.progress import live_job, word_state
from hangwatch.model.beats import Beat, BeatGroup
from hangwatch.model.live import LiveJob
from hangwatch.model.text import format_members
from hangwatch.outputs.metrics_view import GroupMetrics, IncidentMetrics, JobMetrics, RankMetrics


def job_metrics(watch: JobWatch, beats: Mapping[int, Beat], now_ns: int) -> JobMetrics:
    """One job as the metrics show it."""
    return JobMetrics(
        id=watch.job.id,
        ranks=tuple(_rank_metrics(watch, rank, beats, now_ns) for rank in sorted(watch.ranks)),
        incidents=tuple(_incident_metrics(t) for t in (watch.standing, watch.silence.standing) if t is not None),
        launcher=watch.job.launcher,
        world_size=watch.job.world_size,
        patience_s=watch.patience.stall_s,
        training=watch.training.series,
    )


def live_job_of(watch: JobWatch, beats: Mapping[int, Beat], now_ns: int) -> LiveJob:
    """One job as the page shows it."""
    ranks = [watch.ranks[rank] for rank in sorted(watch.ranks)]
    states = {identity.rank: _state(watch, identity.rank, beats.get(identity.pid)) for identity in ranks}
    job = live_job(watch.job, ranks, beats, states, now_ns)
    told = watch.standing or watch.silence.standing
    if told is None:
        return job
    return msgspec.structs.replace(job, incident=told.incident, capture=told.diagnosis.case.capture)


def _incident_metrics(told: Told) -> IncidentMetrics:
    incident, verdict = told.incident, told.incident.verdict
    cause = verdict.cause
    return IncidentMetrics(
        id=incident.id,
        kind=verdict.kind,
        cause=cause.id if cause is not None else "unknown",
        severity=verdict.severity,
        onset_unix_s=datetime.fromisoformat(incident.onset_at.replace("Z", "+00:00")).timestamp(),
        culprit_ranks=verdict.culprit_ranks,
        summary=verdict.summary,
        title=cause.title if cause is not None else "",
        remedy=cause.remedy if cause is not None else (),
    )


def _rank_metrics(watch: JobWatch, rank: int, beats: Mapping[int, Beat], now_ns: int) -> RankMetrics:
    identity = watch.ranks[rank]
    beat = beats.get(identity.pid)
    age_s = beat.age_s(now_ns) if beat is not None else None
    groups = tuple(
        GroupMetrics(
            label=group_label(g, watch.job.world_size),
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
        state=_state(watch, rank, beat),
        beat_age_s=age_s,
        groups=groups,
    )


def group_label(group: BeatGroup, world_size: int | None) -> str:
    """A group among all groups of its job: its label alone if it holds every rank, else with its ranks.

    A job has as many groups called ``mesh_tp`` as it has model replicas, and their numbers must not be compared.
    It depends on nothing but the group, so agents of several nodes say the same.
    """
    whole = not group.ranks or len(group.ranks) == world_size or group.description == "default_pg"
    return group.label if whole else f"{group.label} [{format_members(group.ranks)}]"


def _state(watch: JobWatch, rank: int, beat: Beat | None) -> str:
    """One word; what a diagnosis said of the rank while an incident is open, else what the beat says."""
    if rank in watch.lost_since_s:
        return "lost"
    if watch.standing is not None and rank in watch.standing.diagnosis.case.views:
        return watch.standing.diagnosis.case.views[rank].state
    return word_state(beat)
