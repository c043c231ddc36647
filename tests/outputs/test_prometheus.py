"""What a scrape shows, and that promtool agrees."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest
from examples import hang_incident
from msgspec.structs import asdict
from prometheus_client.parser import text_string_to_metric_families

from hangwatch.model.capture import Job
from hangwatch.model.incident import Lateness
from hangwatch.model.live import LiveRank
from hangwatch.model.numbers import guest_number
from hangwatch.model.progress import LiveProgress
from hangwatch.model.serving import EngineState
from hangwatch.outputs.briefing import Briefing, brief, make_links
from hangwatch.outputs.metrics.exposition import Metrics
from hangwatch.outputs.metrics.ranks import PAIRS_LIMIT, RANKS_LIMIT
from hangwatch.outputs.metrics.view import (
    AgentMetrics,
    IncidentMetrics,
    JobMetrics,
    MetricsView,
    ReceiverMetrics,
    SourceMetrics,
)

LINKS = make_links("https://watch.example.org/{node}", "https://docs.example.org", "gpu-17")
BRIEFING = brief(hang_incident(), LINKS)
EVIL = 'a"b\\c\nd\x1b[0m\udcff'


ENGINE = EngineState("vllm", "127.0.0.1:8000", 3, 12, demand_s=120.0, still_s=95.0, patience_s=60.0, silent_s=20.0)


def example_view() -> MetricsView:
    """A job of two ranks in a deadlock, which serves, beside another that trains."""
    groups = (LiveProgress("0@", "default_pg", (0, 1), 12, 11, 2.5), LiveProgress("1@", "dp", (0, 1), 3, 3))
    ranks = (
        LiveRank(0, "gpu-17", 4100, "waiting", 0.25, groups),
        LiveRank(1, "gpu-17", 4101, "waiting", None, (LiveProgress("0@", "default_pg", (0, 1), 14, 11),)),
    )
    incident = IncidentMetrics("20260528-7c1f", "deadlock", "tuple-labels-gather", "critical", 1.78e9, BRIEFING, (0,))
    job = Job(
        "torchrun-7c1f",
        16,
        ("gpu-17",),
        "torchrun",
        name="llama-sft",
        script="src/train.py",
        user="ada",
        slurm_job="4711",
    )
    return MetricsView(
        jobs=(
            JobMetrics(job, ranks, (incident,), 30.0, engines=(ENGINE,)),
            JobMetrics(
                Job("deepspeed-02", command="python -c run()", namespace="team-a", pod="bert-0"),
                (LiveRank(0, "gpu-17", 5200, "running", 0.1),),
                lateness=Lateness(0, 0.2, 0.31, 0.25, (1, 2), 40, 60, "Rank 0 is late.", "input"),
            ),
        ),
        incidents_total={"deadlock": 1},
        sources=(SourceMetrics("flight recorder", True, 0.03, 8, 0), SourceMetrics("gpu", False, 0.0, 4, 4)),
        agent=AgentMetrics(20, 0.2, captures_total=1, capture_duration_sum_s=1.5, errors_total=0),
        receivers=(ReceiverMetrics("notify", 3, 1, 0),),
        version="1.2.3",
        links=LINKS,
    )


def samples(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Every series of a scrape, each of which may come only once."""
    found: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for family in text_string_to_metric_families(metrics.render()[0].decode()):
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in found
            found[key] = sample.value
    return found


def series(name: str, /, **labels: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """A series' name and labels as ``samples`` has them."""
    return (f"hangwatch_{name}", tuple(sorted(labels.items())))


def test_a_scrape_shows_the_view() -> None:
    """Progress, state, incident, sources and the agent itself are there under their names and labels."""
    found = samples(Metrics(example_view()))
    job = "torchrun-7c1f"
    expected = {
        series("late_rank_seconds", job_id="deepspeed-02", rank="0"): 0.31,
        series("late_rank_lost_ratio", job_id="deepspeed-02", rank="0"): 0.2,
        series("collective_enqueued", job_id=job, rank="0", group="default_pg"): 12,
        series("collective_completed", job_id=job, rank="1", group="default_pg"): 11,
        series("collective_in_flight_seconds", job_id=job, rank="0", group="default_pg"): 2.5,
        series("collective_behind", job_id=job, rank="0", group="default_pg"): 2,
        series("collective_behind", job_id=job, rank="1", group="default_pg"): 0,
        series("group_ranks", job_id=job, group="dp"): 2,
        series(
            "job_info",
            job_id=job,
            name="llama-sft",
            script="src/train.py",
            user="ada",
            slurm_job="4711",
            job_namespace="",
            job_pod="",
            launcher="torchrun",
        ): 1,
        series(
            "job_info",
            job_id="deepspeed-02",
            name="deepspeed-02",
            script="",
            user="",
            slurm_job="",
            job_namespace="team-a",
            job_pod="bert-0",
            launcher="plain",
        ): 1,
        series("job_world_ranks", job_id=job): 16,
        series("job_stall_after_seconds", job_id=job): 30,
        series("job_series_left_out", job_id=job): 0,
        series("rank_state", job_id=job, rank="1", state="waiting"): 1,
        series("rank_info", job_id=job, rank="1", node="gpu-17", pid="4101"): 1,
        series("rank_heartbeat_age_seconds", job_id=job, rank="0"): 0.25,
        series("incident", job_id=job, kind="deadlock", cause="tuple-labels-gather", severity="critical"): 1,
        series("incident_onset_timestamp_seconds", job_id=job, kind="deadlock"): 1.78e9,
        series(
            "incident_info",
            job_id=job,
            kind="deadlock",
            id="20260528-7c1f",
            name="llama-sft",
            script="src/train.py",
            job_text="llama-sft, src/train.py, Slurm job 4711, user ada, 2 ranks",
            summary=BRIEFING.summary,
            culprit="rank 0 on gpu-17",
            culprit_line=BRIEFING.culprit_line,
            others_line=BRIEFING.others_line,
            title="Evaluation gathers labels whose structure differs between ranks",
            remedy=BRIEFING.remedy,
            page_url="https://watch.example.org/gpu-17/incidents/20260528-202637-7c1f",
            runbook_url="https://docs.example.org/causes/tuple-labels-gather",
            more="https://docs.example.org/causes/tuple-labels-gather",
        ): 1,
        series("runbook_info", url="https://docs.example.org/{page}"): 1,
        series("incident_culprit", job_id=job, kind="deadlock", rank="0"): 1,
        series("engine_info", job_id=job, engine="127.0.0.1:8000", kind="vllm"): 1,
        series("engine_up", job_id=job, engine="127.0.0.1:8000"): 0,
        series("engine_requests_running", job_id=job, engine="127.0.0.1:8000"): 3,
        series("engine_requests_waiting", job_id=job, engine="127.0.0.1:8000"): 12,
        series("engine_demand_seconds", job_id=job, engine="127.0.0.1:8000"): 120,
        series("engine_progress_age_seconds", job_id=job, engine="127.0.0.1:8000"): 95,
        series("engine_stall_after_seconds", job_id=job, engine="127.0.0.1:8000"): 60,
        series("rank_state", job_id="deepspeed-02", rank="0", state="running"): 1,
        series("incidents_total", kind="deadlock"): 1,
        series("incidents_total", kind="rank_lost"): 0,
        series("source_up", source="gpu"): 0,
        series("source_duration_seconds", source="flight_recorder"): 0.03,
        series("source_failures_total", source="gpu"): 4,
        series("source_reads_total", source="flight_recorder"): 8,
        series("notifications_total", receiver="notify"): 3,
        series("notification_failures_total", receiver="notify"): 1,
        series("notifications_pending", receiver="notify"): 0,
        series("agent_tick_duration_seconds_sum"): 0.2,
        series("agent_tick_duration_seconds_count"): 20,
        series("agent_capture_duration_seconds_sum"): 1.5,
        series("agent_capture_duration_seconds_count"): 1,
        series("agent_errors_total"): 0,
        series("build_info", version="1.2.3", python=platform.python_version()): 1,
    }
    assert {key: found.get(key) for key in expected} == expected
    assert all(name.startswith(("hangwatch_", "process_")) for name, _ in found)
    assert ("process_resident_memory_bytes", ()) in found
    ours = {name for name, _ in samples(Metrics()) if name.startswith("hangwatch_")}
    words = ("source", "state", "kind", "cause", "severity", "receiver")
    assert ours
    assert not [value for _, labels in found for name, value in labels if name in words and " " in value]
    assert series("rank_heartbeat_age_seconds", job_id=job, rank="1") not in found
    assert series("collective_in_flight_seconds", job_id=job, rank="0", group="dp") not in found


def test_series_of_an_ended_job_are_gone() -> None:
    """The next view replaces the last; counters of the agent stay."""
    metrics = Metrics(example_view())
    metrics.update(MetricsView(incidents_total={"deadlock": 1}))
    found = samples(metrics)
    assert not any(("job_id", "torchrun-7c1f") in labels for _, labels in found)
    assert found[series("incidents_total", kind="deadlock")] == 1


def test_names_of_the_job_cannot_break_the_exposition() -> None:
    """Quotes, line breaks, escapes and broken text in labels are carried, and two groups of one label stay two series."""
    group = LiveProgress(EVIL, EVIL, (0, 1), 1, 1)
    rank = LiveRank(0, EVIL, 1, EVIL, None, (group, group))
    found = samples(Metrics(msgspec.structs.replace(example_view(), jobs=(JobMetrics(Job(EVIL, name=EVIL), (rank,)),))))
    shown = 'a"b\\c d\\x1b[0m\\udcff'
    assert found[series("collective_enqueued", job_id=shown, rank="0", group=shown)] == 1
    assert found[series("collective_enqueued", job_id=shown, rank="0", group=f"{shown}#2")] == 1


def test_series_are_bounded_and_what_is_left_out_is_counted() -> None:
    """Groups are left out whole, a group that waits is never the first to go, and no rank beyond the limit is shown."""
    ranks = tuple(
        LiveRank(r, "node", r, "running", 0.1, tuple(
            LiveProgress(f"{g}@", f"group {g}", tuple(range(8)), 5, 4, 60.0 if g == 299 else None) for g in range(300)
        )) for r in range(8)
    )  # fmt: skip
    found = samples(Metrics(MetricsView(jobs=(JobMetrics(Job("many groups"), ranks),))))
    shown = [dict(labels) for name, labels in found if name == "hangwatch_collective_enqueued"]
    by_group = {g: [s for s in shown if s["group"] == g] for g in {s["group"] for s in shown}}
    assert len(shown) <= PAIRS_LIMIT
    assert all(len(members) == 8 for members in by_group.values())
    assert "group 299" in by_group
    assert found[series("job_series_left_out", job_id="many groups")] == 8 * 300 - len(shown)
    crowd = tuple(LiveRank(r, "node", r, "running") for r in range(RANKS_LIMIT + 3))
    found = samples(Metrics(MetricsView(jobs=(JobMetrics(Job("many ranks"), crowd),))))
    assert sum(name == "hangwatch_rank_info" for name, _ in found) == RANKS_LIMIT
    assert found[series("job_series_left_out", job_id="many ranks")] == 3


def test_labels_are_of_bounded_length() -> None:
    """A name of 100 kB, as a job may choose it, becomes a label that every Prometheus accepts."""
    texts = {name: ("ß" * 10**5,) if type(value) is tuple else "ß" * 10**5 for name, value in asdict(BRIEFING).items()}
    incident = IncidentMetrics("i" * 10**5, "stall", "unknown", "critical", 1.0, Briefing(**texts))
    rank = LiveRank(0, "n" * 10**5, 1, "running", None, (LiveProgress("0@", "\U0001f525" * 10**5, (0,), 1, 1),))
    found = samples(Metrics(MetricsView(jobs=(JobMetrics(Job("j" * 10**5), (rank,), (incident,)),))))
    assert max(len(value.encode()) for _, labels in found for _, value in labels) < 2048


def test_a_culprit_of_another_world_goes_by_its_name() -> None:
    """A number that stands for a process of another world says nothing to whoever is alerted."""
    engine = guest_number("engines", 1)
    one = IncidentMetrics("i", "stall", "unknown", "critical", 1.0, BRIEFING, (0, engine), names={engine: "engine/1"})
    found = samples(Metrics(MetricsView(jobs=(JobMetrics(Job("job"), (), (one,)),))))
    culprits = {dict(labels)["rank"] for name, labels in found if name == "hangwatch_incident_culprit"}
    assert culprits == {"0", "engine/1"}


@pytest.mark.parametrize("view", [example_view(), MetricsView()], ids=["incident", "idle"])
@pytest.mark.usefixtures("real")
def test_promtool_has_nothing_to_say(view: MetricsView) -> None:
    """``promtool check metrics`` accepts the exposition without a remark."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.fail("promtool is missing; install it with 'apt-get install prometheus' or from prometheus.io/download")
    body, _ = Metrics(view).render()
    checked = subprocess.run([promtool, "check", "metrics"], input=body, capture_output=True, check=False)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")


def test_every_metric_is_documented_with_its_labels() -> None:
    """docs/metrics.md lists exactly what a scrape can show, with its type and its labels."""
    text = (Path(__file__).resolve().parents[2] / "docs" / "metrics.md").read_text()
    rows = re.findall(r"^\| `(hangwatch_\w+)` \| (\w+) \| ([^|]*)\|", text, re.MULTILINE)
    tables = re.findall(r"^### Labels of `(\w+)`\n(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL)
    more = {name: set(re.findall(r"^\| `(\w+)`", table, re.MULTILINE)) for name, table in tables}
    documented = {
        name: (kind, set(re.findall(r"`(\w+)`", labels)) | more.get(name, set()))
        for name, kind, labels in rows
        if not name.startswith("hangwatch_training_")
    }
    shown = {}
    for family in text_string_to_metric_families(Metrics(example_view()).render()[0].decode()):
        if family.name.startswith("process_"):
            continue
        name = f"{family.name}_total" if family.type == "counter" else family.name
        shown[name] = (family.type, set(family.samples[0].labels))
    assert documented == shown
