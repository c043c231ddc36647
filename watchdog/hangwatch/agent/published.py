"""What the metrics show of the jobs under watch: from watches and beats to plain values. Pure but for the watch's clock."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from hangwatch.agent.incidents.record import Told
from hangwatch.agent.job.watch import JobWatch
from hangwatch.analysis.progress import live_job, word_state
from hangwatch.model.beats import Beat
from hangwatch.model.live import LiveJob
from hangwatch.outputs.metrics.view import IncidentMetrics, JobMetrics


def job_metrics(watch: JobWatch, beats: Mapping[int, Beat], now_ns: int) -> JobMetrics:
    """One job as the metrics show it."""
    return JobMetrics(
        id=watch.job.id,
        ranks=watched_job(watch, beats, now_ns).ranks,
        incidents=tuple(
            _incident_metrics(t) for t in (watch.standing, watch.silence.standing) if t is not None and not t.heard
        ),
        launcher=watch.job.launcher,
        world_size=watch.job.world_size,
        patience_s=watch.patience.stall_s,
        training=watch.training.series,
    )


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


def watched_job(watch: JobWatch, beats: Mapping[int, Beat], now_ns: int) -> LiveJob:
    """The ranks of one job and their progress, as metrics and page show them."""
    ranks = [watch.ranks[rank] for rank in sorted(watch.ranks)]
    states = {identity.rank: rank_state(watch, identity.rank, beats.get(identity.pid)) for identity in ranks}
    return live_job(watch.job, ranks, beats, states, now_ns)


def rank_state(watch: JobWatch, rank: int, beat: Beat | None) -> str:
    """One word; what a diagnosis said of the rank while an incident is open, else what the beat says."""
    if rank in watch.lost_since_s:
        return "lost"
    if watch.standing is not None and rank in watch.standing.diagnosis.case.views:
        return watch.standing.diagnosis.case.views[rank].state
    return word_state(beat)
