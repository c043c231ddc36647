"""Incidents and metrics in OpenTelemetry's form, without a network: its in-memory exporters and its own encoder read them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from examples import hang_incident
from opentelemetry._logs import SeverityNumber
from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import user_attributes
from opentelemetry.semconv.attributes import code_attributes, error_attributes
from prometheus_client.parser import text_string_to_metric_families
from test_prometheus import EVIL, example_view

from hangwatch.diagnosis.document import ended
from hangwatch.model.incident import Incident, JobHistory, PastHang
from hangwatch.outputs.metrics.exposition import Metrics
from hangwatch.outputs.push.notifications import Notification
from hangwatch.outputs.push.otlp.incidents import make_event, make_span
from hangwatch.outputs.push.otlp.metrics import make_metrics

RESOURCE = Resource({"service.name": "hangwatch"})
END_NS, NOW_NS = 1_780_000_100_000_000_000, 1_780_000_101_000_000_000


def sent_event(notification: Notification, before: Notification | None = None) -> Any:
    """The event as an exporter gets it."""
    exporter = InMemoryLogRecordExporter()
    exporter.export([make_event(notification, before, RESOURCE, NOW_NS)])
    (found,) = exporter.get_finished_logs()
    return found.log_record


def sent_span(notification: Notification) -> Any:
    """The span as an exporter gets it."""
    exporter = InMemorySpanExporter()
    exporter.export([make_span(notification, RESOURCE)])
    (found,) = exporter.get_finished_spans()
    return found


def note(incident: Incident) -> Notification:
    """A notification of it."""
    return Notification(incident, "/state/incidents/x", "gpu-17")


def test_an_incident_is_a_span_from_onset_to_end_and_its_events_belong_to_it() -> None:
    """The event when it is confirmed, the event when it is over, and the span carry the same ids and the same verdict."""
    open_, over = note(hang_incident()), note(ended(hang_incident(), END_NS))
    first, last, span = sent_event(open_), sent_event(over, open_), sent_span(over)
    assert (span.start_time, span.end_time) == (1_779_999_997_600_000_000, END_NS)
    assert {(one.trace_id, one.span_id) for one in (first, last)} == {(span.context.trace_id, span.context.span_id)}
    assert (first.event_name, first.timestamp, first.severity_number) == (
        "hangwatch.incident", 1_780_000_000_000_000_000, SeverityNumber.ERROR,
    )  # fmt: skip
    assert (last.timestamp, last.severity_number) == (END_NS, SeverityNumber.INFO)
    assert first.body.startswith("Deadlock, proven: llama-sft on gpu-17\nRank 0 gathers labels")
    assert last.body.startswith("Resolved: llama-sft on gpu-17 (deadlock)")
    assert first.attributes["hangwatch.incident.status"] == "firing"
    assert (
        {**first.attributes, "hangwatch.incident.status": "resolved"} == dict(last.attributes) == dict(span.attributes)
    )


def test_a_changed_verdict_is_an_event_of_its_own_time() -> None:
    """Else a log would show it beside the first one."""
    open_ = note(hang_incident())
    assert sent_event(open_, before=open_).timestamp == NOW_NS


def test_what_is_known_is_an_attribute_by_the_conventions_name() -> None:
    """The job's name and user, both lines, what to do, the step that was reached; what is not known is left out."""
    incident = hang_incident()
    known = sent_event(note(incident)).attributes
    texts = (
        value for module in (code_attributes, error_attributes, user_attributes) for value in vars(module).values()
    )
    conventions = {value for value in texts if isinstance(value, str)}
    assert {name for name in known if not name.startswith("hangwatch.")} <= conventions
    assert (known["error.type"], known["hangwatch.cause.id"], known["hangwatch.proven"]) == (
        "deadlock", "tuple-labels-gather", True,
    )  # fmt: skip
    assert (known["hangwatch.job.name"], known["hangwatch.job.script"], known["user.name"]) == (
        "llama-sft", "src/train.py", "ada",
    )  # fmt: skip
    assert known["hangwatch.culprit_line"].startswith("rank 0 at finetune/train.py:88: trainer.evaluate()")
    assert known["hangwatch.others_line"].startswith("rank 1 at finetune/train.py:88: trainer.evaluate()")
    assert known["hangwatch.remedy"].startswith("1. Keep labels one tensor")
    assert not {"hangwatch.page_url", "hangwatch.runbook_url"} & known.keys()
    assert (known["code.file.path"], known["code.line.number"]) == ("/home/ada/finetune/train.py", 88)
    assert "hangwatch.step" not in known
    again = msgspec.structs.replace(incident, history=JobHistory(PastHang(incident.id, "deadlock", True, step=412)))
    assert sent_event(note(again)).attributes["hangwatch.step"] == 412
    bare = msgspec.structs.replace(
        incident, verdict=msgspec.structs.replace(incident.verdict, cause=None, divergence=None, collective=None)
    )
    unknown = sent_event(note(bare)).attributes
    assert unknown["hangwatch.cause.id"] == "unknown"
    assert not [name for name in unknown if name.startswith(("code.", "hangwatch.collective."))]


@pytest.mark.parametrize("text", [EVIL, "\ud800", "x" * 100_000])
def test_text_of_a_job_can_be_encoded(text: str) -> None:
    """Protobuf takes no lone surrogates; an event has a bounded body."""
    incident = hang_incident()
    incident = msgspec.structs.replace(
        incident,
        job=msgspec.structs.replace(incident.job, id=text),
        verdict=msgspec.structs.replace(incident.verdict, summary=text),
        ended_at=incident.confirmed_at,
    )
    found = note(incident)
    assert encode_spans([make_span(found, RESOURCE)]).SerializeToString()
    assert encode_logs([make_event(found, None, RESOURCE, NOW_NS)]).SerializeToString()
    assert len(sent_event(found).body) < 2500


def series(metrics: Metrics) -> set[tuple[str, tuple[tuple[str, str], ...], float]]:
    """All a scrape shows but what the process itself is like, which changes while we look."""
    families = text_string_to_metric_families(metrics.render()[0].decode())
    samples = [sample for family in families for sample in family.samples]
    return {(s.name, tuple(sorted(s.labels.items())), s.value) for s in samples if not s.name.startswith("process_")}


def test_the_metrics_are_those_of_a_scrape() -> None:
    """Each series of a scrape under its own name, with its labels and its value, and nothing else; encoded without a loss."""
    metrics = Metrics(example_view())
    sent = encode_metrics(make_metrics(metrics.families(), RESOURCE, 1, NOW_NS))
    ((scope,),) = [resource.scope_metrics for resource in sent.resource_metrics]
    found = set()
    for metric in scope.metrics:
        kind = metric.WhichOneof("data")
        for point in getattr(metric, kind).data_points:
            labels = tuple(sorted((one.key, one.value.string_value) for one in point.attributes))
            assert point.time_unix_nano == NOW_NS
            if kind == "histogram":
                assert list(point.bucket_counts) == [point.count]
                found |= {(f"{metric.name}_count", labels, point.count), (f"{metric.name}_sum", labels, point.sum)}
            else:
                found.add((metric.name, labels, point.as_double))
        if kind != "gauge":
            assert getattr(metric, kind).aggregation_temporality == 2  # cumulative, since the start
        if kind == "sum":
            assert metric.sum.is_monotonic
            assert metric.name.endswith("_total")
    own = {one for one in found if not one[0].startswith("process_")}
    assert own == series(metrics)
    assert len(own) > 50
    assert {name for name, _, _ in found} >= {"process_cpu_seconds_total", "hangwatch_incidents_total"}
