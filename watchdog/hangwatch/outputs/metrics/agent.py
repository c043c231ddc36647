"""Metrics of the agent: ticks, captures, sources, receivers, version. Pure; may import prometheus_client."""

from __future__ import annotations

import platform
from collections.abc import Iterator

from prometheus_client.core import Metric

from hangwatch.outputs.metrics.families import counter, gauge, label, summary
from hangwatch.outputs.metrics.view import MetricsView, ReceiverMetrics, SourceMetrics


def agent_families(view: MetricsView) -> Iterator[Metric]:
    """The families of the agent, its sources and its receivers."""
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
        name = [label(source.name)]
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
