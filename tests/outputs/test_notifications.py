"""Notifications, in the format of each kind of receiver."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from pathlib import Path

import msgspec
import pytest
import yaml
from examples import hang_incident
from hypothesis import given
from hypothesis import strategies as st

from hangwatch.model.incident import Incident, JobEntry
from hangwatch.outputs.briefing import Links, brief, make_links
from hangwatch.outputs.push.notifications import (
    RECEIVERS,
    SHORTEST_S,
    Notification,
    alertmanager_body,
    message_of,
    webhook_body,
)

NOW = datetime(2026, 5, 28, 20, 27, tzinfo=timezone.utc)
RULES = Path(__file__).resolve().parents[2] / "deploy" / "prometheus" / "rules" / "hangwatch.rules.yml"
LINKS = make_links("https://watch.example.org/{node}", "https://docs.example.org/", "gpu-17")
BUNDLE = "/var/lib/hangwatch/incidents/20260528-202637-7c1f"


def notification(ended_at: str | None = None) -> Notification:
    """A deadlock of two ranks, reported on gpu-17."""
    return Notification(hang_incident(ended_at), BUNDLE, "gpu-17", LINKS)


def changed(incident: Incident, **verdict: object) -> Incident:
    """The same incident with another verdict."""
    return msgspec.structs.replace(incident, verdict=msgspec.structs.replace(incident.verdict, **verdict))


def test_alertmanager_gets_cause_remedy_and_bundle() -> None:
    """The labels are those of the rules, the annotations contain what an engineer needs; an open alert has no end."""
    (alert,) = msgspec.json.decode(alertmanager_body(notification(), None, NOW))
    assert alert["labels"] == {
        "alertname": "HangwatchDeadlock",
        "scope": "job",
        "job_id": "torchrun-7c1f",
        "kind": "deadlock",
        "cause": "tuple-labels-gather",
        "severity": "critical",
        "instance": "gpu-17",
    }
    said = alert["annotations"]
    assert said["remedy"].startswith("1. Keep labels one tensor of the same structure on every rank. 2. Drop")
    assert said["bundle"] == BUNDLE
    assert said["runbook_url"] == said["more"] == "https://docs.example.org/causes/tuple-labels-gather"
    assert said["page_url"] == "https://watch.example.org/gpu-17/incidents/20260528-202637-7c1f"
    assert said["job"] == "llama-sft, src/train.py, Slurm job 4711, user ada, 2 ranks"
    assert (said["script"], said["culprit"], said["waiting_ranks"]) == ("src/train.py", "rank 0 on gpu-17", "0-1")
    via = "trainer.evaluate() (via gather_for_metrics (accelerate/accelerator.py:3056))"
    assert said["culprit_line"] == f"rank 0 at finetune/train.py:88: {via}"
    assert said["others_line"].startswith("rank 1 at finetune/train.py:88: trainer.evaluate() (via _sync_buffers")
    assert alert["startsAt"] == "2026-05-28T20:26:37.600Z"
    assert "endsAt" not in alert


def test_pushed_alerts_are_named_and_routed_like_those_of_the_rules() -> None:
    """Whichever way an incident takes to Alertmanager, the same routes and inhibitions apply to it."""
    groups = yaml.safe_load(RULES.read_text())["groups"]
    rules = [r for group in groups for r in group["rules"] if r.get("labels", {}).get("scope") == "job"]
    assert len(rules) == 7
    for rule in rules:
        (kind,) = re.findall(r'kind="(\w+)"', rule["expr"])
        pushed = Notification(changed(hang_incident(), kind=kind), None, "gpu-17")
        (alert,) = msgspec.json.decode(alertmanager_body(pushed, None, NOW))
        assert (alert["labels"]["alertname"], alert["labels"]["scope"]) == (rule["alert"], "job")


@pytest.mark.parametrize(
    ("ended_at", "ends"),
    [
        ("2026-05-28T20:26:41.000Z", "2026-05-28T20:27:40+00:00"),
        ("2026-05-28T21:00:00.000Z", "2026-05-28T21:00:00+00:00"),
    ],
    ids=["at once", "later"],
)
def test_an_alert_lasts_long_enough_to_be_sent(ended_at: str, ends: str) -> None:
    """A hang that was ended within seconds stays an alert for a minute: Alertmanager waits before it tells anyone."""
    assert SHORTEST_S == 60
    (alert,) = msgspec.json.decode(alertmanager_body(notification(ended_at), notification(), NOW))
    assert alert["endsAt"] == ends


def test_another_kind_ends_the_alert_before() -> None:
    """A straggler that became a stall is one alert at a time, not two."""
    before = Notification(changed(hang_incident(), kind="straggler", severity="warning"), BUNDLE, "gpu-17")
    now, old = msgspec.json.decode(alertmanager_body(notification(), before, NOW))
    assert (now["labels"]["alertname"], old["labels"]["alertname"]) == ("HangwatchDeadlock", "HangwatchStraggler")
    assert old["endsAt"] == NOW.isoformat()


def test_a_chat_is_told_who_where_why_what_first_and_where_to_look() -> None:
    """At most twelve lines, the surest first; the end is one line. Without links, a command prints the runbook."""
    message = message_of(notification(), None)
    assert message.title == "Deadlock, proven: llama-sft on gpu-17"
    assert message.body.splitlines() == [
        hang_incident().verdict.summary,
        "Job: llama-sft, src/train.py, Slurm job 4711, user ada, 2 ranks",
        "Culprit: rank 0 at finetune/train.py:88: trainer.evaluate() (via gather_for_metrics (accelerate/accelerator.py:3056))",
        "Others: rank 1 at finetune/train.py:88: trainer.evaluate() (via _sync_buffers (torch/nn/parallel/distributed.py:2207))",
        "Cause: Evaluation gathers labels whose structure differs between ranks (confidence 93%)",
        "Do first: Keep labels one tensor of the same structure on every rank.",
        "Since: 2026-05-28 20:26:37 UTC",
        "Page: https://watch.example.org/gpu-17/incidents/20260528-202637-7c1f",
        "More: https://docs.example.org/causes/tuple-labels-gather",
        f"Bundle: gpu-17:{BUNDLE}",
    ]
    over = message_of(notification("2026-05-28T21:00:00.000Z"), notification())
    assert over.title == over.body == "Resolved: llama-sft on gpu-17 (deadlock), 2026-05-28 20:26:37 UTC to 21:00:00"
    bare = message_of(
        Notification(hang_incident(), None, "gpu-17", Links("http://127.0.0.1:9753", local=True)), None
    ).body
    page = "http://127.0.0.1:9753/incidents/20260528-202637-7c1f"
    assert bare.splitlines()[-2:] == [f"Page (on gpu-17 only): {page}", "More: hangwatch explain tuple-labels-gather"]


def test_a_summary_that_names_the_cause_is_not_repeated() -> None:
    """Then the explanation stands in place of the title."""
    cause = hang_incident().verdict.cause
    assert cause is not None
    summary = f"Ranks 0-1 wait: {cause.title[0].lower()}{cause.title[1:]}."
    body = message_of(Notification(changed(hang_incident(), summary=summary), None, "gpu-17"), None).body
    assert f"Cause: {cause.explanation.removesuffix('.')} (confidence 93%)" in body.splitlines()


@pytest.mark.parametrize(
    ("job", "title"),
    [
        (JobEntry("uuid", (), None, "torchrun", "torchrun a.py", name="mine", script="src/a.py"), "mine"),
        (JobEntry("uuid", (), None, "torchrun", "torchrun a.py", script="src/a.py"), "a.py"),
        (JobEntry("uuid", (), None, "torchrun", "torchrun a.py"), "uuid"),
    ],
)
def test_the_id_of_a_job_names_it_only_where_nothing_else_does(job: JobEntry, title: str) -> None:
    """What its user calls it, else its script; the launcher's UUID comes last."""
    incident = msgspec.structs.replace(hang_incident(), job=job)
    assert message_of(Notification(incident, None, "n"), None).title == f"Deadlock, proven: {title} on n"


@pytest.mark.parametrize(
    ("base", "runbook"),
    [
        ("", ""),
        ("https://docs.example.org/", "https://docs.example.org/causes/rank-died"),
        ("https://git.example.org/docs/{page}.md", "https://git.example.org/docs/causes/rank-died.md"),
    ],
)
def test_a_runbook_is_an_absolute_link_or_none(base: str, runbook: str) -> None:
    """Nothing is published by default, and a relative path is no link."""
    assert make_links("", base, "n").find_cause("rank-died") == runbook


def test_lines_are_named_without_their_code_where_nobody_has_to_sign_in() -> None:
    """``/metrics`` needs no token, and the page does where it can be reached from other machines."""
    shown = brief(hang_incident(), LINKS, code=False)
    assert shown.culprit_line.startswith("rank 0 at finetune/train.py:88 in main")
    assert "trainer.evaluate()" not in repr(shown)


def test_a_tie_calls_nobody_the_culprit() -> None:
    """Both sides are shown with their lines, and neither is accused."""
    tied = Notification(changed(hang_incident(), culprit_ranks=(0, 1)), None, "n")
    body = message_of(tied, None).body
    assert "One side: " in body
    assert "Other side: " in body
    assert "Culprit" not in body
    assert tied.briefing.culprit_line.count("finetune/train.py:88") == 2
    assert (tied.briefing.culprit, tied.briefing.others_line) == ("ranks 0-1 on gpu-17", "")


def test_a_webhook_gets_the_verdict_without_the_jobs_command() -> None:
    """Everything to act on is there, and the text that chats show; stacks and command line stay in the bundle."""
    body = msgspec.json.decode(webhook_body(notification(), None, NOW))
    assert (body["schema"], body["status"], body["kind"]) == ("hangwatch.notification/1", "firing", "deadlock")
    assert body["cause"]["remedy"][0].startswith("Keep labels one tensor")
    assert body["bundle"] == BUNDLE
    assert body["text"].startswith("Deadlock, proven: llama-sft on gpu-17\nRank 0 gathers labels")
    assert body["job"] == {
        "name": "llama-sft", "script": "src/train.py", "user": "ada", "slurm_job": "4711", "namespace": "", "pod": "",
        "nodes": ["gpu-17"],
    }  # fmt: skip
    assert (body["culprit_line"]["file"], body["culprit_line"]["line"]) == ("/home/ada/finetune/train.py", 88)
    assert body["others_line"]["source"] == "trainer.evaluate()"
    assert body["page_url"].endswith("/incidents/20260528-202637-7c1f")
    assert body["runbook_url"] == "https://docs.example.org/causes/tuple-labels-gather"
    assert body["explain"] == "hangwatch explain tuple-labels-gather"
    assert b"--nproc-per-node" not in webhook_body(notification(), None, NOW)
    assert (
        msgspec.json.decode(webhook_body(notification(ended_at="2026-05-28T21:00:00Z"), None, NOW))["status"]
        == "resolved"
    )


@given(text=st.text(st.characters(), max_size=300), kind=st.sampled_from(sorted(RECEIVERS)))
def test_no_text_of_a_job_breaks_a_message(text: str, kind: str) -> None:
    """Broken text, escapes and the longest names make a valid message of bounded size for every receiver."""
    job = msgspec.structs.replace(hang_incident().job, id=text)
    incident = msgspec.structs.replace(changed(hang_incident(), summary=text * 50), job=job)
    body = RECEIVERS[kind].render(Notification(incident, text, text), None, NOW)
    msgspec.json.decode(body)
    assert b"\\u001b" not in body
