"""The agent's metrics for Prometheus. May import the model and prometheus_client.

The agent replaces one frozen view a tick and a scrape renders the latest: a scrape never waits for a tick, and the
series of a job that has ended are gone with it.

Sequence numbers are gauges and not counters: they say *where* a rank is, are compared between ranks (``max - min``)
rather than rated, begin anywhere, and go back when a job restarts, which ``rate()`` would take for progress.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from hangwatch import __version__
from hangwatch.outputs.sanitize import clean

_KINDS = ("deadlock", "stall", "rank_lost", "straggler", "silent_failure")


class GroupMetrics(msgspec.Struct, frozen=True):
    """A rank in a group: its last sequence numbers, and for how long its oldest operation has been in flight (None: none is).

    ``label`` must tell the groups of one job apart (torch's names alone do not).
    """

    label: str
    size: int
    enqueued: int
    completed: int
    in_flight_s: float | None = None


class RankMetrics(msgspec.Struct, frozen=True):
    """One rank. ``state`` is a word (``training``, ``waiting``, ``stopped``); ``beat_age_s`` is None without a probe."""

    rank: int
    node: str
    pid: int
    state: str
    beat_age_s: float | None = None
    groups: tuple[GroupMetrics, ...] = ()


class IncidentMetrics(msgspec.Struct, frozen=True):
    """The incident that is open now. ``cause`` is the cause's id, ``unknown`` where there is none."""

    id: str
    kind: str
    cause: str
    severity: str
    onset_unix_s: float
    culprit_ranks: tuple[int, ...] = ()


class SourceMetrics(msgspec.Struct, frozen=True):
    """A source's health: whether its last look succeeded, how long that took, failures since the agent's start."""

    name: str
    up: bool
    duration_s: float
    failures_total: int


class AgentMetrics(msgspec.Struct, frozen=True):
    """The agent itself, since its start. Ticks' durations are added up."""

    ticks_total: int = 0
    tick_duration_sum_s: float = 0.0
    captures_total: int = 0
    errors_total: int = 0


class JobMetrics(msgspec.Struct, frozen=True):
    """One job under watch. ``id`` is unique among those of a view."""

    id: str
    ranks: tuple[RankMetrics, ...] = ()
    incident: IncidentMetrics | None = None


class MetricsView(msgspec.Struct, frozen=True):
    """All that a scrape shows. ``incidents_total`` counts by kind."""

    jobs: tuple[JobMetrics, ...] = ()
    incidents_total: dict[str, int] = {}
    sources: tuple[SourceMetrics, ...] = ()
    agent: AgentMetrics = AgentMetrics()
    version: str = __version__


class Metrics:
    """Holds the latest view and renders it. Safe to render from another thread than the one that updates."""

    def __init__(self, view: MetricsView | None = None) -> None:
        self._view = view if view is not None else MetricsView()
        self._registry = CollectorRegistry()
        self._registry.register(_ViewCollector(self))
        ProcessCollector(namespace="hangwatch_agent", registry=self._registry)

    @property
    def view(self) -> MetricsView:
        """What the next scrape shows."""
        return self._view

    def update(self, view: MetricsView) -> None:
        """Show ``view`` from now on, and nothing of the one before."""
        self._view = view

    def render(self) -> tuple[bytes, str]:
        """The exposition and its content type."""
        return generate_latest(self._registry), CONTENT_TYPE_LATEST


class _ViewCollector(Collector):
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def describe(self) -> list[Metric]:
        """Nothing: keeps the registry from collecting once at registration."""
        return []

    def collect(self) -> Iterator[Metric]:
        view = self._metrics.view
        if view.jobs:
            yield from _job_families(view.jobs)
        yield from _incident_totals(view)
        yield from _source_families(view.sources)
        yield from _agent_families(view)


def _gauge(name: str, text: str, labels: Sequence[str]) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"hangwatch_{name}", text, labels=labels)


def _counter(name: str, text: str, labels: Sequence[str] = ()) -> CounterMetricFamily:
    return CounterMetricFamily(f"hangwatch_{name}", text, labels=labels)


def _job_families(jobs: Sequence[JobMetrics]) -> Iterator[Metric]:
    where = ("job", "rank", "group")
    enqueued = _gauge("collective_enqueued", "Sequence number of the rank's last enqueued collective.", where)
    completed = _gauge("collective_completed", "Sequence number of the rank's last completed collective.", where)
    in_flight = _gauge("collective_in_flight_seconds", "Age of the rank's oldest operation in flight.", where)
    size = _gauge("group_ranks", "Ranks in the process group.", ("job", "group"))
    info = _gauge("rank_info", "Where the rank runs; always 1.", ("job", "rank", "node", "pid"))
    state = _gauge("rank_state", "State the rank is in now; always 1.", ("job", "rank", "state"))
    beat_age = _gauge("rank_beat_age_seconds", "Time since the rank's probe last wrote.", ("job", "rank"))
    for job in jobs:
        name = clean(job.id)
        sizes: dict[str, int] = {}
        for one in job.ranks:
            rank = str(one.rank)
            info.add_metric([name, rank, clean(one.node), str(one.pid)], 1)
            state.add_metric([name, rank, clean(one.state)], 1)
            if one.beat_age_s is not None:
                beat_age.add_metric([name, rank], one.beat_age_s)
            for label, group in _labelled(one.groups):
                sizes[label] = max(sizes.get(label, 0), group.size)
                enqueued.add_metric([name, rank, label], group.enqueued)
                completed.add_metric([name, rank, label], group.completed)
                if group.in_flight_s is not None:
                    in_flight.add_metric([name, rank, label], group.in_flight_s)
        for label, ranks in sizes.items():
            size.add_metric([name, label], ranks)
    yield from (enqueued, completed, in_flight, size, info, state, beat_age)
    yield from _incident_families(jobs)


def _labelled(groups: tuple[GroupMetrics, ...]) -> Iterator[tuple[str, GroupMetrics]]:
    """Each group with a label of its own: Prometheus refuses a whole scrape in which a series comes twice."""
    taken: dict[str, int] = {}
    for group in groups:
        label = clean(group.label)
        taken[label] = taken.get(label, 0) + 1
        yield (label if taken[label] == 1 else f"{label}#{taken[label]}"), group


def _incident_families(jobs: Sequence[JobMetrics]) -> Iterator[Metric]:
    active = _gauge("incident", "1 while the job has this incident.", ("job", "kind", "cause", "severity"))
    onset = _gauge("incident_onset_timestamp_seconds", "When the open incident began.", ("job", "id"))
    culprit = _gauge("incident_culprit", "1 for each rank that the open incident names.", ("job", "rank"))
    for job in jobs:
        incident, name = job.incident, clean(job.id)
        if incident is None:
            continue
        active.add_metric([name, clean(incident.kind), clean(incident.cause), clean(incident.severity)], 1)
        onset.add_metric([name, clean(incident.id)], incident.onset_unix_s)
        for rank in sorted(set(incident.culprit_ranks)):
            culprit.add_metric([name, str(rank)], 1)
    yield from (active, onset, culprit)


def _incident_totals(view: MetricsView) -> Iterator[Metric]:
    totals = _counter("incidents", "Confirmed incidents since the agent's start.", ("kind",))
    # Kinds never seen are shown as 0, so that the first incident is an increase and not a new series.
    for kind, total in (dict.fromkeys(_KINDS, 0) | view.incidents_total).items():
        totals.add_metric([clean(kind)], total)
    yield totals


def _source_families(sources: tuple[SourceMetrics, ...]) -> Iterator[Metric]:
    up = _gauge("source_up", "Whether the source's last look succeeded.", ("source",))
    duration = _gauge("source_duration_seconds", "How long the source's last look took.", ("source",))
    failures = _counter("source_failures", "Looks that failed since the agent's start.", ("source",))
    for source in sources:
        name = [clean(source.name)]
        up.add_metric(name, 1 if source.up else 0)
        duration.add_metric(name, source.duration_s)
        failures.add_metric(name, source.failures_total)
    yield from (up, duration, failures)


def _agent_families(view: MetricsView) -> Iterator[Metric]:
    agent = view.agent
    ticks = _counter("agent_ticks", "Ticks since the agent's start.")
    ticks.add_metric([], agent.ticks_total)
    durations = SummaryMetricFamily("hangwatch_agent_tick_duration_seconds", "How long ticks took.", labels=())
    durations.add_metric([], count_value=agent.ticks_total, sum_value=agent.tick_duration_sum_s)
    captures = _counter("agent_captures", "Captures taken since the agent's start.")
    captures.add_metric([], agent.captures_total)
    errors = _counter("agent_errors", "Unexpected errors the agent survived since its start.")
    errors.add_metric([], agent.errors_total)
    build = _gauge("build_info", "Version of hangwatch; always 1.", ("version",))
    build.add_metric([clean(view.version)], 1)
    yield from (ticks, durations, captures, errors, build)
