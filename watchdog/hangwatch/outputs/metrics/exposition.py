"""The agent's metrics for Prometheus. May import the model and prometheus_client.

Every tick replaces one frozen view, and a scrape renders the latest: a scrape never waits for a tick, and the series of
a job disappear when it ends. docs/metrics.md lists all metrics; a test compares it with the code.

The label of a job is ``job_id``: Prometheus uses ``job`` itself and would rename ours to ``exported_job``. For the same reason
its namespace and pod are ``job_namespace`` and ``job_pod``. Our own words in labels contain no blanks.

Of training itself, a job has one series for its main rank (0, or the lowest rank that logs). Another rank has one only while
it differs: in most jobs every rank logs the same mean, and a thousand equal series would be useless. At most
``OTHERS_LIMIT`` differing ranks are exported, lowest first: a log may name any number of ranks. NaN and infinities are
exported unchanged, so that alerts can match them (``hangwatch_training_loss != hangwatch_training_loss`` finds NaN).
"""

from __future__ import annotations

import math
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from hangwatch.model.incident import Lateness
from hangwatch.model.serving import EngineState
from hangwatch.model.telemetry import LoggedStep, TrainingSeries
from hangwatch.outputs.metrics.families import TEXT_LIMIT_BYTES, counter, gauge, label, summary
from hangwatch.outputs.metrics.ranks import rank_families
from hangwatch.outputs.metrics.view import JobMetrics, MetricsView, ReceiverMetrics, SourceMetrics


def agent_families(view: MetricsView) -> Iterator[Metric]:
    """Yield the families of the agent, its sources and its receivers."""
    agent = view.agent
    yield summary(
        "agent_tick_duration_seconds", "Duration of the agent's ticks.", agent.ticks_total, agent.tick_duration_sum_s
    )
    yield summary(
        "agent_capture_duration_seconds",
        "Duration of captures of a job.",
        agent.captures_total,
        agent.capture_duration_sum_s,
    )
    errors = counter("agent_errors", "Unexpected errors since the agent started.")
    errors.add_metric([], agent.errors_total)
    build = gauge("build_info", "Versions of hangwatch and Python; always 1.", ("version", "python"))
    build.add_metric([label(view.version), platform.python_version()], 1)
    yield from (errors, build)
    if view.links.runbook:
        runbooks = gauge("runbook_info", "Where pages of the documentation are: replace {page} by a name.", ("url",))
        runbooks.add_metric([label(view.links.runbook, TEXT_LIMIT_BYTES)], 1)
        yield runbooks
    yield from _source_families(view.sources)
    yield from _receiver_families(view.receivers)


def _source_families(sources: tuple[SourceMetrics, ...]) -> Iterator[Metric]:
    up = gauge(
        "source_up", "1 if the source's last read returned data, 0 if everything it tried to read failed.", ("source",)
    )
    duration = gauge("source_duration_seconds", "Duration of the source's last read.", ("source",))
    reads = counter("source_reads", "Attempted reads since the agent started.", ("source",))
    failures = counter("source_failures", "Failed reads since the agent started.", ("source",))
    for source in sources:
        name = [label(source.name.replace(" ", "_"))]
        up.add_metric(name, 1 if source.up else 0)
        duration.add_metric(name, source.duration_s)
        reads.add_metric(name, source.reads_total)
        failures.add_metric(name, source.failures_total)
    yield from (up, duration, reads, failures)


def _receiver_families(receivers: tuple[ReceiverMetrics, ...]) -> Iterator[Metric]:
    if not receivers:
        return
    sent = counter("notifications", "Notifications delivered since the agent started.", ("receiver",))
    failures = counter("notification_failures", "Failed delivery attempts since the agent started.", ("receiver",))
    pending = gauge("notifications_pending", "Incidents not yet delivered to the receiver.", ("receiver",))
    for receiver in receivers:
        name = [label(receiver.name)]
        sent.add_metric(name, receiver.sent_total)
        failures.add_metric(name, receiver.failures_total)
        pending.add_metric(name, receiver.pending)
    yield from (sent, failures, pending)


def engine_families(engines: Iterable[tuple[str, EngineState]]) -> Iterator[Metric]:
    """Yield the families of the engines, each with the label of its job."""
    which = ("job_id", "engine")
    info = gauge("engine_info", "A watched serving engine and its kind; always 1.", (*which, "kind"))
    up = gauge("engine_up", "1 while the engine answers for its metrics, 0 after 15 s without an answer.", which)
    running = gauge("engine_requests_running", "Requests that the engine is working on.", which)
    waiting = gauge("engine_requests_waiting", "Requests that wait for the engine.", which)
    demand = gauge("engine_demand_seconds", "For how long requests have run or waited without a break.", which)
    age = gauge(
        "engine_progress_age_seconds",
        "For how long requests were there and nothing came out; 0 without requests.",
        which,
    )
    patience = gauge("engine_stall_after_seconds", "Seconds without progress before a hang is reported now.", which)
    for name, engine in engines:
        labels = [name, label(engine.address)]
        info.add_metric([*labels, engine.kind], 1)
        up.add_metric(labels, 0 if engine.silent_s else 1)
        running.add_metric(labels, engine.running)
        waiting.add_metric(labels, engine.waiting)
        demand.add_metric(labels, engine.demand_s)
        age.add_metric(labels, engine.still_s)
        patience.add_metric(labels, engine.patience_s)
    yield from (info, up, running, waiting, demand, age, patience)


_KINDS = ("deadlock", "stall", "rank_lost", "straggler", "slow", "failed", "silent_failure")
#: The texts of an incident's briefing, each a label.
_TEXTS = (
    "name", "script", "job_text", "summary", "culprit", "culprit_line", "others_line", "title", "remedy",
    "page_url", "runbook_url", "more",
)  # fmt: skip
#: Culprits are usually few; if they are all ranks of a large job, the summary says so.
_CULPRITS_LIMIT = 100


def incident_families(view: MetricsView) -> Iterator[Metric]:
    """Yield open incidents, if there are jobs, and the totals."""
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
        "Job, summary, culprit, cause, remedy and links of the open incident, for use in alerts; always 1.",
        (*which, "id", *_TEXTS),
    )
    culprit = gauge("incident_culprit", "1 for each culprit rank of the open incident.", (*which, "rank"))
    for name, incident in ((label(job.job.id), incident) for job in jobs for incident in job.incidents):
        where = [name, label(incident.kind)]
        active.add_metric([*where, label(incident.cause), label(incident.severity)], 1)
        onset.add_metric(where, incident.onset_unix_s)
        texts = (getattr(incident.briefing, name) for name in _TEXTS)
        info.add_metric([*where, label(incident.id), *(label(text, TEXT_LIMIT_BYTES) for text in texts)], 1)
        for rank in sorted(set(incident.culprit_ranks))[:_CULPRITS_LIMIT]:
            culprit.add_metric([*where, label(incident.names.get(rank, str(rank)))], 1)
    yield from (active, onset, info, culprit)


_WHERE = ("job_id", "rank")
_GAUGES = {
    "loss": "Loss as last logged.",
    "grad_norm": "Gradient norm as last logged.",
    "learning_rate": "Learning rate as last logged.",
}
#: Ranks are read one after the other, so they may appear this many steps apart without being so.
_STEPS_APART = 2
#: Maximum number of ranks besides the main one.
OTHERS_LIMIT = 100


def training_families(jobs: Iterable[tuple[str, TrainingSeries]]) -> Iterator[Metric]:
    """Yield the families of all jobs, by (job label, series); none if no job has logged anything."""
    logging = [(job, series) for job, series in jobs if series.steps or series.reached]
    if not logging:
        return
    gauges = {name: gauge(f"training_{name}", text, _WHERE) for name, text in _GAUGES.items()}
    step = gauge("training_step", "Optimizer step reached.", _WHERE)
    skipped = counter("training_skipped_steps", "Optimizer steps skipped since the start of the run.", _WHERE)
    pace = gauge("training_steps_per_second", "Optimizer steps per second over the last minute.", _WHERE)
    for job, series in logging:
        main = _main_rank(series)
        for rank, steps in _differing_series(series, main):
            where = [job, str(rank)]
            for name, family in gauges.items():
                value = _last(steps, name)
                if value is not None:
                    family.add_metric(where, value)
            count = _last(steps, "skipped_steps")
            if count is not None:
                skipped.add_metric(where, count)
        for rank, reached in _differing_steps(_reached(series, main), main):
            step.add_metric([job, str(rank)], reached)
        if main in series.steps_per_s:
            pace.add_metric([job, str(main)], series.steps_per_s[main])
    yield from (*gauges.values(), step, skipped, pace)


def _main_rank(series: TrainingSeries) -> int:
    ranks = [*series.reached, *(setup.rank for setup in series.setups if setup.rank is not None)]
    return min(ranks, default=0)


def _reached(series: TrainingSeries, main: int) -> dict[int, int]:
    """Return the step of each rank; for the main rank its last logged step if nothing else is known."""
    last = next((step.step for step in reversed(series.steps) if step.step is not None), None)
    known = dict(series.reached)
    return known if main in known or last is None else {main: last, **known}


def _differing_steps(reached: Mapping[int, int], main: int) -> Iterator[tuple[int, int]]:
    """Yield the step of the main rank, and of ranks at a different step."""
    if main in reached:
        yield main, reached[main]
        others = (rank for rank in sorted(reached) if abs(reached[rank] - reached[main]) > _STEPS_APART)
        yield from ((rank, reached[rank]) for rank in islice(others, OTHERS_LIMIT))


def _differing_series(series: TrainingSeries, main: int) -> Iterator[tuple[int, Sequence[LoggedStep]]]:
    """Yield the job's own series, and those of ranks that differ from it at the last common step."""
    yield main, series.steps
    own = {step.step: step for step in series.steps}
    shown = 0
    others = {one.rank: one for one in series.ranks if one.rank is not None and one.rank != main}
    for rank, found in sorted(others.items()):
        both = next((step for step in reversed(found.steps) if step.step in own), None)
        if shown < OTHERS_LIMIT and both is not None and _differ(both, own[both.step]):
            shown += 1
            yield rank, found.steps


def _differ(one: LoggedStep, other: LoggedStep) -> bool:
    pairs = ((getattr(one, name), getattr(other, name)) for name in (*_GAUGES, "skipped_steps"))
    return any(a is not None and b is not None and a != b and not (math.isnan(a) and math.isnan(b)) for a, b in pairs)


def _last(steps: Sequence[LoggedStep], name: str) -> float | None:
    """Return the newest known value of that name."""
    return next((value for step in reversed(steps) if (value := getattr(step, name)) is not None), None)


def lateness_families(late: Iterable[tuple[str, Lateness]]) -> Iterator[Metric]:
    """Yield the families of late ranks, by (job label, lateness): a job has one at most."""
    late_s = gauge("late_rank_seconds", "How much longer than its peers a late rank takes in a step.", _WHERE)
    lost = gauge("late_rank_lost_ratio", "Share of the time that the job loses because of a late rank.", _WHERE)
    for job, one in late:
        late_s.add_metric([job, str(one.rank)], one.late_s)
        lost.add_metric([job, str(one.rank)], one.lost)
    yield from (late_s, lost)


class Metrics(Collector):
    """Holds the latest ``view`` and renders it. Another thread than the updating one may read it."""

    def __init__(self, view: MetricsView | None = None) -> None:
        self.view = view if view is not None else MetricsView()
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def update(self, view: MetricsView) -> None:
        """Replace the current view."""
        self.view = view

    def families(self) -> Iterable[Metric]:
        """Return all families with their current values."""
        return self._registry.collect()

    def render(self) -> tuple[bytes, str]:
        """Return the exposition and its content type."""
        return generate_latest(self._registry), CONTENT_TYPE_LATEST

    def describe(self) -> list[Metric]:
        """Return nothing, so that the registry does not collect at registration."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the families of the view."""
        view = self.view
        if view.jobs:
            yield from rank_families(view.jobs)
            yield from training_families((label(j.job.id), j.training) for j in view.jobs if j.training is not None)
        engines = [(label(job.job.id), engine) for job in view.jobs for engine in job.engines]
        if engines:
            yield from engine_families(engines)
        late = [(label(job.job.id), job.lateness) for job in view.jobs if job.lateness is not None]
        if late:
            yield from lateness_families(late)
        yield from incident_families(view)
        yield from agent_families(view)
