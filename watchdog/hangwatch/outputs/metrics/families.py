"""Helpers for metric families: the common prefix, and labels that cannot break the exposition. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily

from hangwatch.outputs.sanitize import clean

#: Hosted Prometheus rejects samples with long labels (Mimir: over 2,048 bytes); names of jobs and groups are much shorter.
NAME_LIMIT_BYTES = 160
TEXT_LIMIT_BYTES = 1200


def gauge(name: str, text: str, labels: Sequence[str] = ()) -> GaugeMetricFamily:
    """Return an empty gauge ``hangwatch_NAME``."""
    return GaugeMetricFamily(f"hangwatch_{name}", text, labels=labels)


def counter(name: str, text: str, labels: Sequence[str] = ()) -> CounterMetricFamily:
    """Return an empty counter ``hangwatch_NAME_total``."""
    return CounterMetricFamily(f"hangwatch_{name}", text, labels=labels)


def summary(name: str, text: str, count: int, total: float) -> SummaryMetricFamily:
    """Return a summary with ``hangwatch_NAME_count`` and ``hangwatch_NAME_sum``."""
    family = SummaryMetricFamily(f"hangwatch_{name}", text, labels=())
    family.add_metric([], count_value=count, sum_value=total)
    return family


def label(text: str, limit_bytes: int = NAME_LIMIT_BYTES) -> str:
    """Return a label value: one sanitized line of limited length."""
    data = (text := clean(text)).encode()
    return text if len(data) <= limit_bytes else data[: limit_bytes - 3].decode(errors="ignore") + "…"
