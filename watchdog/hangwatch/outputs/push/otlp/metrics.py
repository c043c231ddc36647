"""The families of ``outputs.metrics`` as OpenTelemetry's metrics. Pure; may import its SDK and prometheus_client.

By "Prometheus and OpenMetrics Compatibility" of OpenTelemetry's specification (1.50): names and labels stay, counters
become sums since the agent's start. The SDK has no summary: ours, which have no quantiles, become histograms without
buckets: count and sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.export import Metric as Sent
from opentelemetry.sdk.resources import Resource
from prometheus_client import Metric

from hangwatch.outputs.push.otlp.incidents import SCOPE

_SINCE_START = AggregationTemporality.CUMULATIVE


def make_metrics(families: Iterable[Metric], resource: Resource, start_ns: int, now_ns: int) -> MetricsData:
    """Return all families that have samples. ``start_ns``: when the agent began to count."""
    metrics = [one for family in families for one in _convert(family, start_ns, now_ns)]
    return MetricsData([ResourceMetrics(resource, [ScopeMetrics(SCOPE, metrics, "")], "")])


def _convert(family: Metric, start_ns: int, now_ns: int) -> Iterator[Sent]:
    if family.type == "summary":
        yield _counted(family, start_ns, now_ns)
        return
    points: dict[str, list[NumberDataPoint]] = {}
    for sample in family.samples:
        point = NumberDataPoint(dict(sample.labels), start_ns, now_ns, float(sample.value))
        points.setdefault(sample.name, []).append(point)
    for name, found in points.items():
        data = Sum(found, _SINCE_START, is_monotonic=True) if family.type == "counter" else Gauge(found)
        yield Sent(name, family.documentation, "", data)


def _counted(family: Metric, start_ns: int, now_ns: int) -> Sent:
    """Return one of our summaries, which have no labels, as a histogram."""
    value = {sample.name.removeprefix(f"{family.name}_"): sample.value for sample in family.samples}
    count = int(value["count"])
    point = HistogramDataPoint({}, start_ns, now_ns, count, value["sum"], [count], [], None, None)
    return Sent(family.name, family.documentation, "", Histogram([point], _SINCE_START))
