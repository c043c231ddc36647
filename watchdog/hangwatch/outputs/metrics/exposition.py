"""The agent's metrics for Prometheus. May import the model and prometheus_client.

Every tick replaces one frozen view, and a scrape renders the latest: a scrape never waits for a tick, and the series of
a job disappear when it ends. docs/metrics.md lists all metrics; a test compares it with the code.

The label of a job is ``job_id``: Prometheus uses ``job`` itself and would rename ours to ``exported_job``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from hangwatch.outputs.metrics.agent import agent_families
from hangwatch.outputs.metrics.engines import engine_families
from hangwatch.outputs.metrics.families import label
from hangwatch.outputs.metrics.incidents import incident_families
from hangwatch.outputs.metrics.ranks import rank_families
from hangwatch.outputs.metrics.training import training_families
from hangwatch.outputs.metrics.view import MetricsView


class Metrics:
    """Holds the latest view and renders it. Safe to read from another thread than the one that updates."""

    def __init__(self, view: MetricsView | None = None) -> None:
        self._view = view if view is not None else MetricsView()
        self._registry = CollectorRegistry()
        self._registry.register(_ViewCollector(self))
        ProcessCollector(namespace="hangwatch_agent", registry=self._registry)

    @property
    def view(self) -> MetricsView:
        """The values that the next scrape returns."""
        return self._view

    def update(self, view: MetricsView) -> None:
        """Replace the current values by ``view``."""
        self._view = view

    def families(self) -> Iterable[Metric]:
        """All families with their current values."""
        return self._registry.collect()

    def render(self) -> tuple[bytes, str]:
        """The exposition and its content type."""
        return generate_latest(self._registry), CONTENT_TYPE_LATEST


class _ViewCollector(Collector):
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def describe(self) -> list[Metric]:
        """Empty: prevents the registry from collecting at registration."""
        return []

    def collect(self) -> Iterator[Metric]:
        view = self._metrics.view
        if view.jobs:
            yield from rank_families(view.jobs)
            yield from training_families((label(j.id), j.training) for j in view.jobs if j.training is not None)
        engines = [(label(job.id), engine) for job in view.jobs for engine in job.engines]
        if engines:
            yield from engine_families(engines)
        yield from incident_families(view)
        yield from agent_families(view)
