"""Metrics of incidents: open incidents and culprits per job, and totals. Pure; may import prometheus_client."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client.core import Metric

from hangwatch.outputs.metrics.families import TEXT_LIMIT_BYTES, counter, gauge, label
from hangwatch.outputs.metrics.view import JobMetrics, MetricsView

_KINDS = ("deadlock", "stall", "rank_lost", "straggler", "silent_failure")
#: Culprits are usually few; if they are all ranks of a large job, the summary says so.
_CULPRITS_LIMIT = 100


def incident_families(view: MetricsView) -> Iterator[Metric]:
    """Open incidents, if there are jobs, and the totals."""
    if view.jobs:
        yield from _open_families(view.jobs)
    totals = counter("incidents", "Confirmed incidents since the agent started.", ("kind",))
    # Kinds without incidents are 0, so that the first incident is an increase and not a new series.
    for kind, total in (dict.fromkeys(_KINDS, 0) | view.incidents_total).items():
        totals.add_metric([label(kind)], total)
    yield totals


def _open_families(jobs: Sequence[JobMetrics]) -> Iterator[Metric]:
    which = ("job_id", "kind")
    active = gauge(
        "incident", "1 while the job has an open incident of this kind and cause.", (*which, "cause", "severity")
    )
    onset = gauge("incident_onset_timestamp_seconds", "Unix time at which the open incident began.", which)
    info = gauge(
        "incident_info",
        "Summary, cause and remedy of the open incident, for use in alerts; always 1.",
        (*which, "id", "summary", "title", "remedy"),
    )
    culprit = gauge("incident_culprit", "1 for each culprit rank of the open incident.", (*which, "rank"))
    for name, incident in ((label(job.id), incident) for job in jobs for incident in job.incidents):
        where = [name, label(incident.kind)]
        active.add_metric([*where, label(incident.cause), label(incident.severity)], 1)
        onset.add_metric(where, incident.onset_unix_s)
        steps = " ".join(f"{number}. {step}" for number, step in enumerate(incident.remedy, 1))
        texts = (incident.summary, incident.title, steps)
        info.add_metric([*where, label(incident.id), *(label(t, TEXT_LIMIT_BYTES) for t in texts)], 1)
        for rank in sorted(set(incident.culprit_ranks))[:_CULPRITS_LIMIT]:
            culprit.add_metric([*where, label(incident.names.get(rank, str(rank)))], 1)
    yield from (active, onset, info, culprit)
