"""Turns the states and beats of watched jobs into the values that the metrics show. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from hangwatch.agent.incidents.record import IncidentRecord
from hangwatch.agent.job.state import JobState
from hangwatch.analysis.progress import live_job, word_state
from hangwatch.model.beats import Beat
from hangwatch.model.live import LiveJob
from hangwatch.outputs.briefing import Links, brief
from hangwatch.outputs.metrics.view import IncidentMetrics, JobMetrics


def job_metrics(state: JobState, beats: Mapping[int, Beat], now_ns: int, links: Links) -> JobMetrics:
    """Return one job as the metrics show it.

    Incidents of other nodes are in the metrics there.
    """
    records = (state.hang, state.silent_failure, state.slow)
    return JobMetrics(
        job=state.job,
        ranks=watched_job(state, beats, now_ns).ranks,
        incidents=tuple(_incident_metrics(r, links) for r in records if r is not None and not r.owned_by_peer),
        patience_s=state.patience.stall_s,
        training=state.training,
        engines=state.engines,
        lateness=state.slow.incident.lateness if state.slow is not None else None,
    )


def _incident_metrics(record: IncidentRecord, links: Links) -> IncidentMetrics:
    verdict = record.incident.verdict
    cause = verdict.cause
    return IncidentMetrics(
        id=record.id,
        kind=verdict.kind,
        cause=cause.id if cause is not None else "unknown",
        severity=verdict.severity,
        onset_unix_s=record.onset_ns // 1_000_000 / 1000,  # to the millisecond, as in the document
        culprit_ranks=verdict.culprit_ranks,
        names=verdict.names,
        briefing=brief(record.incident, links, code=links.open),
    )


def watched_job(state: JobState, beats: Mapping[int, Beat], now_ns: int) -> LiveJob:
    """Return the ranks of one job and their progress, as metrics and page show them."""
    ranks = [state.ranks[rank] for rank in sorted(state.ranks)]
    states = {identity.rank: rank_state(state, identity.rank, beats.get(identity.pid)) for identity in ranks}
    return live_job(state.job, ranks, beats, states, now_ns)


def rank_state(state: JobState, rank: int, beat: Beat | None) -> str:
    """Return a rank's state, one word: by the diagnosis while an incident is open, else by its beat."""
    if rank in state.lost:
        return "lost"
    if state.hang is not None and rank in state.hang.diagnosis.case.views:
        return state.hang.diagnosis.case.views[rank].state
    return word_state(beat)
