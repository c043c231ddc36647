"""What ``hangwatch run`` serves while a real job trains, hangs, and is reported to a command of the user's."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families
from watched_runs import find_bundles, read_incident, read_url

from hangwatch.demos import find_scenario
from hangwatch.model.incident import Incident
from support import Job, JobRunner, wait_for

_HOOK = """
import json, os, pathlib, sys
bundle = pathlib.Path(os.environ["HANGWATCH_INCIDENT"])
told = {name: value for name, value in os.environ.items() if name.startswith("HANGWATCH_")}
told["files"] = sorted(str(path.relative_to(bundle)) for path in bundle.rglob("*") if path.is_file())
told["document"] = json.loads((bundle / "incident.json").read_text())
path = pathlib.Path(sys.argv[1])
path.with_suffix(".new").write_text(json.dumps(told))
path.with_suffix(".new").rename(path)
"""


@dataclass(frozen=True)
class _Hung:
    """A job under ``hangwatch run`` that hangs and is left alone; ``reported`` is what the user's command wrote."""

    job: Job
    url: str
    reported: Path
    state: Path


@pytest.fixture(scope="module")
def hung(real: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Hung]:
    """One hung job for all tests of this file."""
    folder = tmp_path_factory.mktemp("hung")
    runner = JobRunner(folder / "jobs")
    scenario = find_scenario("rank-conditional")
    assert scenario is not None
    hook = folder / "hook.py"
    hook.write_text(_HOOK)
    job = runner.hangwatch(
        "run", "--state-dir", folder / "state", "--on-hang", f"exec:{sys.executable} {hook} {folder / 'told.json'}",
        "--", *scenario.command(), env=scenario.full_environment(),
    )  # fmt: skip
    found = re.search(r"metrics at (http://127\.0\.0\.1:\d+)/metrics", job.wait_for_output("/metrics"))
    assert found is not None
    yield _Hung(job, found[1], folder / "told.json", folder / "state")
    runner.end_all()


def _samples(text: str, name: str) -> list[tuple[dict[str, str], float]]:
    families = text_string_to_metric_families(text)
    return [(s.labels, s.value) for family in families for s in family.samples if s.name == name]


def _metrics_of_the_hang(hung: _Hung) -> str:
    def scrape() -> str | None:
        text = read_url(f"{hung.url}/metrics")
        return text if _samples(text, "hangwatch_incident") else None

    return wait_for(scrape, 60.0, "the incident among the metrics", poll_s=0.2) or ""


def test_progress_and_incident_are_served(hung: _Hung) -> None:
    """Every rank's numbers in its group, the incident with its cause, and the culprit stand in /metrics while it hangs."""
    text = _metrics_of_the_hang(hung)
    for name in ("hangwatch_collective_enqueued", "hangwatch_collective_completed"):
        seen = {(labels["rank"], labels["group"]): value for labels, value in _samples(text, name)}
        assert set(seen) == {("0", "default_pg"), ("1", "default_pg"), ("2", "default_pg")}
    enqueued = {labels["rank"]: v for labels, v in _samples(text, "hangwatch_collective_enqueued")}
    completed = {labels["rank"]: v for labels, v in _samples(text, "hangwatch_collective_completed")}
    assert enqueued["1"] > completed["1"] >= 1
    assert _samples(text, "hangwatch_group_ranks")[0][1] == 3
    ((incident, value),) = _samples(text, "hangwatch_incident")
    assert value == 1
    assert (incident["kind"], incident["cause"]) == ("deadlock", "ranks-diverged")
    assert [(labels["rank"], v) for labels, v in _samples(text, "hangwatch_incident_culprit")] == [("0", 1)]
    assert [labels["job_id"] for labels, _ in _samples(text, "hangwatch_rank_info")] == 3 * [incident["job_id"]]
    assert _samples(text, "hangwatch_agent_errors_total") == [({}, 0)]
    assert ({"kind": "deadlock"}, 1) in _samples(text, "hangwatch_incidents_total")


def test_promtool_accepts_the_metrics_of_a_real_job(hung: _Hung) -> None:
    """``promtool check metrics`` has nothing to say about them."""
    promtool = shutil.which("promtool")
    assert promtool is not None, "promtool is missing; install it with 'apt-get install prometheus'"
    text = _metrics_of_the_hang(hung)
    check = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert (check.returncode, check.stdout, check.stderr) == (0, "", "")


def test_health_is_served(hung: _Hung) -> None:
    """/healthz says that the agent ticks, and for which job."""
    job = _samples(_metrics_of_the_hang(hung), "hangwatch_incident")[0][0]["job_id"]
    said = json.loads(read_url(f"{hung.url}/healthz"))
    assert said["ok"] is True
    assert said["last_tick_age_s"] >= 0.0
    assert said["jobs"] == [job]


def test_the_users_command_gets_everything(hung: _Hung) -> None:
    """``--on-hang exec:CMD`` gets the verdict in its environment, and the bundle is complete by then."""
    wait_for(hung.reported.exists, 60.0, "the command to have run")
    reported = json.loads(hung.reported.read_text())
    (bundle,) = find_bundles(hung.state)
    incident = read_incident(bundle)
    verdict = incident.verdict
    assert verdict.cause is not None
    assert reported["HANGWATCH_INCIDENT"] == str(bundle)
    assert reported["HANGWATCH_INCIDENT_ID"] == incident.id
    assert reported["HANGWATCH_JOB"] == incident.job.id
    assert reported["HANGWATCH_KIND"] == verdict.kind == "deadlock"
    assert reported["HANGWATCH_PROVEN"] == "1"
    assert reported["HANGWATCH_SEVERITY"] == "critical"
    assert reported["HANGWATCH_CAUSE"] == verdict.cause.id == "ranks-diverged"
    assert reported["HANGWATCH_CULPRITS"] == "0"
    assert reported["HANGWATCH_SUMMARY"] == verdict.summary
    assert set(reported["files"]) == {
        "incident.json",
        "capture.json",
        "ranks.jsonl",
        "stacks.jsonl",
        "stacks.txt",
        "report.html",
        "audit.json",
    }
    document = msgspec.convert(reported["document"], type=Incident)
    assert document.captured["call_sites"]
    assert "on-hang exec: the command ended with status 0" in hung.job.wait_for_output("on-hang exec: ")


def test_a_reported_job_is_left_to_its_owner(hung: _Hung) -> None:
    """Whoever only reports ends nothing; the owner's SIGTERM ends the job, and the incident gets its end."""
    wait_for(hung.reported.exists, 60.0, "the command to have run")
    assert hung.job.process.poll() is None
    assert len(hung.job.ranks()) == 3
    hung.job.send(signal.SIGTERM)
    status = hung.job.wait()
    assert status not in {0, 75}
    (bundle,) = find_bundles(hung.state)
    assert read_incident(bundle).ended_at is not None
    wait_for(lambda: not hung.job.members(), 10.0, "all processes of the job to be gone")
