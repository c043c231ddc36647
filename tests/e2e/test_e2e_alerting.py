"""From a real hang to the people who are notified: scraped by Prometheus, alerted by its rules, delivered by Alertmanager.

Everything is the real program with the configuration that is shipped; only addresses and intervals are the test's own.
"""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from monitoring import Webhook, get_json, post_json, query, start_alertmanager, start_prometheus, webhook
from prometheus_client.parser import text_string_to_metric_families
from watched_runs import find_bundles, read_incident, read_url

from dashboards import asked_metrics, documented_metrics, panel_queries, read_rules
from hangwatch.model.incident import Incident
from support import JOBS, Job, JobRunner, find_free_port, wait_for

#: How long to wait for a delivery; 30 s are promised at a scrape interval of 1 s, and printed is what it took.
_DELIVERY_LIMIT_S = 90.0

_RUNBOOKS = "https://docs.example.org/hangwatch"

#: The path of such an address is its password.
_WEBHOOK, _SERVICE = "/webhook/B0-open-sesame", "/service/T0-open-sesame"

pytestmark = pytest.mark.timeout(900)


@dataclass(frozen=True)
class _Monitored:
    """A hung job, everything that watches it, and everybody who is notified."""

    job: Job
    agent: str
    prometheus: str
    alertmanager: str
    pushed: str
    webhook: Webhook
    state: Path

    def incident(self) -> Incident:
        """The document of the one incident there is."""

        def found() -> tuple[Path, ...]:
            bundles = find_bundles(self.state)
            assert bundles or self.job.process.poll() is None, (
                f"the job ended without an incident:\n{self.job.stderr()}"
            )
            return bundles

        (bundle,) = wait_for(found, 600.0, "the incident")
        return read_incident(bundle)


@pytest.fixture(scope="module")
def monitored(real: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Monitored]:
    """One job that trains and hangs, scraped by Prometheus, its agent notifying receivers on its own as well."""
    folder = tmp_path_factory.mktemp("monitored")
    runner = JobRunner(folder / "jobs")
    try:
        with webhook() as receiver:
            alertmanager = start_alertmanager(runner, folder / "alertmanager", f"{receiver.url}/rules")
            pushed = start_alertmanager(runner, folder / "pushed", f"{receiver.url}/pushed")
            agent = f"127.0.0.1:{find_free_port()}"
            prometheus = start_prometheus(runner, folder / "prometheus", agent, alertmanager)
            log = folder / "training.log"
            engine = str(find_free_port())
            settings = folder / "hangwatch.toml"
            settings.write_text(f'runbook_base_url = "{_RUNBOOKS}"\n')
            options = (
                "--config", settings, "--state-dir", folder / "state", "--listen", agent, "--log", log, "--engine", f"http://127.0.0.1:{engine}",
            )  # fmt: skip
            launch = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3")
            job = runner.hangwatch(
                "run", *options, "--", *launch, JOBS / "telling.py", log, engine,
                env={
                    "HANGWATCH_ALERTMANAGER": pushed,
                    "HANGWATCH_WEBHOOK": f"{receiver.url}{_WEBHOOK}",
                    "HANGWATCH_NOTIFY": receiver.url.replace("http://", "json://") + _SERVICE,
                },
            )  # fmt: skip
            yield _Monitored(job, agent, prometheus, alertmanager, pushed, receiver, folder / "state")
            runner.end_all()
    finally:
        runner.end_all()


def _seconds_after(at_unix_s: float, moment: str | None) -> float:
    assert moment is not None
    return at_unix_s - datetime.fromisoformat(moment.replace("Z", "+00:00")).timestamp()


def test_a_hang_is_delivered_with_cause_and_remedy(monitored: _Monitored) -> None:
    """A rule fires on what was scraped, and the webhook of those on call hears who, why, and what to do."""

    def delivered() -> Any:
        return monitored.webhook.alerts("/rules/hangs", "firing")

    incident = monitored.incident()
    (message, alert), *_ = wait_for(delivered, _DELIVERY_LIMIT_S, "Alertmanager's message", poll_s=0.1)
    verdict = incident.verdict
    assert verdict.cause is not None
    assert alert["labels"] == {
        "alertname": "HangwatchDeadlock",
        "cause": "ranks-diverged",
        "instance": monitored.agent,
        "job": "hangwatch",
        "job_id": incident.job.id,
        "kind": "deadlock",
        "scope": "job",
        "severity": "critical",
    }
    said = alert["annotations"]
    assert said["summary"] == verdict.summary
    assert said["cause"] == verdict.cause.title
    assert said["remedy"] == " ".join(f"{n}. {step}" for n, step in enumerate(verdict.cause.remedy, 1))
    assert said["culprit"] == f"rank {verdict.culprit_ranks[0]} on {socket.gethostname()}"
    assert verdict.divergence is not None
    assert verdict.divergence.culprit is not None
    assert f"jobs/telling.py:{verdict.divergence.culprit.line}: " in said["culprit_line"]
    assert said["others_line"].startswith("ranks ")
    assert said["script"] == incident.job.script
    assert said["job"].startswith("telling.py, ")
    assert said["incident"] == incident.id
    assert said["page_url"] == f"http://{monitored.agent}/incidents/{incident.id}"
    assert read_url(said["page_url"])
    assert said["runbook_url"] == said["more"] == f"{_RUNBOOKS}/causes/ranks-diverged"
    assert message.body["groupLabels"] == {"job_id": incident.job.id}
    print(f"delivered {_seconds_after(message.at_unix_s, incident.onset_at):.1f} s after the onset,", end=" ")
    print(f"{_seconds_after(message.at_unix_s, incident.confirmed_at):.1f} s after the verdict")


def test_the_agent_tells_receivers_itself(monitored: _Monitored) -> None:
    """Without Prometheus, Alertmanager, a webhook and a service of apprise are notified of the same incident, with its bundle."""
    incident = monitored.incident()
    (bundle,) = find_bundles(monitored.state)
    (_, alert), *_ = wait_for(
        lambda: monitored.webhook.alerts("/pushed/hangs", "firing"), _DELIVERY_LIMIT_S, "the pushed alert", poll_s=0.1
    )
    assert alert["labels"]["alertname"] == "HangwatchDeadlock"
    assert alert["labels"]["instance"] == socket.gethostname()
    assert alert["annotations"]["bundle"] == str(bundle)

    def bodies() -> dict[str, Any]:
        found = {m.path: m.body for m in list(monitored.webhook.messages)}
        return found if {_WEBHOOK, _SERVICE} <= found.keys() else {}

    reported = wait_for(bodies, _DELIVERY_LIMIT_S, "the webhook and the service to be notified", poll_s=0.1)
    assert reported[_WEBHOOK]["incident_id"] == incident.id
    assert reported[_WEBHOOK]["bundle"] == str(bundle)
    assert reported[_WEBHOOK]["cause"]["remedy"]
    message = reported[_SERVICE]["message"]
    assert str(bundle) in message
    assert len(message.splitlines()) <= 12

    def metrics() -> list[str]:
        return read_url(f"http://{monitored.agent}/metrics").splitlines()

    for kind in ("alertmanager", "webhook", "notify"):  # Alertmanager is told again each minute
        sent = f'hangwatch_notifications_total{{receiver="{kind}"}} '
        often = [f"{sent}{count}.0" for count in range(1, 10 if kind == "alertmanager" else 2)]
        wait_for(
            lambda often=often: set(often) & set(metrics()), 60.0, f"{kind} to be counted as a tick ends", poll_s=0.2
        )
        assert f'hangwatch_notification_failures_total{{receiver="{kind}"}} 0.0' in metrics()


def test_every_query_of_the_dashboards_finds_data(monitored: _Monitored) -> None:
    """No panel, annotation, variable or rule asks for what a hung job under watch does not give.

    What is served for a late rank only is left out (``test_e2e_slow.py``).
    """
    job_id = monitored.incident().job.id
    values = {
        "cluster": ".*", "namespace": ".*", "job_id": job_id, "rank": "0", "__rate_interval": "30s", "__range": "10m",
    }  # fmt: skip
    queries = [one for one in panel_queries() if "hangwatch_late_rank_" not in one.expression]
    assert len(queries) > 45

    def without_data() -> list[str]:
        now = time.time()
        period = {"start": str(now - 10), "end": str(now), "step": "5"}
        return [
            str(q)
            for q in queries
            if not query(monitored.prometheus, q.filled(values), **({} if q.instant else period))
        ]

    wait_for(lambda: bool(query(monitored.prometheus, "hangwatch_incident")), 60.0, "the incident to be scraped")
    wait_for(lambda: not (missing := without_data()) or print(missing), 60.0, "data for every query", poll_s=2.0)


def test_every_metric_of_the_rules_has_been_scraped(monitored: _Monitored) -> None:
    """Whatever a rule asks for is there, so that an alert which does not fire has seen that there is no reason to."""
    monitored.incident()
    asked = set().union(*(asked_metrics(rule["expr"]) for rule in read_rules()))
    assert len(asked) > 10

    def absent() -> list[str]:
        return [name for name in sorted(asked) if not query(monitored.prometheus, name)]

    wait_for(lambda: not (missing := absent()) or print(missing), 60.0, "data for every rule", poll_s=1.0)


def test_what_is_documented_is_what_is_served(monitored: _Monitored) -> None:
    """The agent of a job that trains and hangs serves each metric of docs/metrics.md and no other, and promtool has no remark.

    Those of a late rank are served for that only (``test_e2e_slow.py``).
    """
    monitored.incident()
    url = f"http://{monitored.agent}/metrics"

    def names() -> set[str]:
        families = text_string_to_metric_families(read_url(url))
        found = {sample.name for family in families for sample in family.samples}
        return {name for name in found if name.startswith("hangwatch_")}

    documented = {name for name in documented_metrics() if not name.startswith("hangwatch_late_rank_")}
    wait_for(lambda: names() == documented, 60.0, "every metric of the page", poll_s=1.0)
    promtool = shutil.which("promtool")
    assert promtool is not None, "promtool is missing; install it with 'apt-get install prometheus'"
    checked = subprocess.run(
        [promtool, "check", "metrics"], input=read_url(url), capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_the_job_does_not_know_who_is_notified(monitored: _Monitored) -> None:
    """The receivers' addresses are secrets, and are not in the environment of the ranks."""
    ranks = wait_for(monitored.job.ranks, 60.0, "the ranks")
    assert ranks
    for process in ranks.values():
        environment = process.environ()
        assert "HANGWATCH_RUN_DIR" in environment
        assert not {"HANGWATCH_ALERTMANAGER", "HANGWATCH_WEBHOOK", "HANGWATCH_NOTIFY"} & environment.keys()


def test_addresses_of_receivers_are_shown_nowhere(monitored: _Monitored) -> None:
    """Neither the log, nor the metrics, nor the page, nor any file of the bundle holds how they are notified."""
    monitored.incident()
    wait_for(lambda: {_WEBHOOK, _SERVICE} <= {m.path for m in monitored.webhook.messages}, 60.0, "both to be notified")
    url = f"http://{monitored.agent}"
    shown = [monitored.job.stderr(), *(read_url(f"{url}/{path}") for path in ("", "metrics", "healthz"))]
    files = [path for path in monitored.state.rglob("*") if path.is_file()]
    assert len(files) > 5
    assert not [text for text in shown if "open-sesame" in text]
    assert not [path for path in files if b"open-sesame" in path.read_bytes()]


def test_alerts_of_ranks_are_kept_back_under_the_incident(monitored: _Monitored) -> None:
    """While the job's incident is open, what a rule says of one of its ranks is inhibited, and another job's is not."""
    incident = monitored.incident()
    wait_for(lambda: monitored.webhook.alerts("/rules/hangs", "firing"), _DELIVERY_LIMIT_S, "the incident's alert")
    ends = (datetime.now(timezone.utc) + timedelta(minutes=5)).isoformat()
    post_json(
        f"{monitored.alertmanager}/api/v2/alerts",
        [
            {
                "labels": {"alertname": "HangwatchRankSilent", "scope": "rank", "job_id": job, "rank": "1"},
                "endsAt": ends,
            }
            for job in (incident.job.id, "another")
        ],
    )

    def states() -> dict[str, str] | None:
        alerts = get_json(f"{monitored.alertmanager}/api/v2/alerts", filter='scope="rank"')
        found = {alert["labels"]["job_id"]: alert["status"]["state"] for alert in alerts}
        return found if len(found) == 2 and "unprocessed" not in found.values() else None

    assert wait_for(states, 30.0, "both alerts to be routed", poll_s=0.1) == {
        incident.job.id: "suppressed",
        "another": "active",
    }


def test_an_incident_is_resolved_when_its_job_is_gone(monitored: _Monitored) -> None:
    """The owner ends the job: every receiver hears that it is over, and nothing of it is shown any more.

    This test ends what the others share, and stands last.
    """
    incident = monitored.incident()
    wait_for(lambda: monitored.webhook.alerts("/rules/hangs", "firing"), _DELIVERY_LIMIT_S, "the incident's alert")
    monitored.job.send(signal.SIGTERM)
    monitored.job.wait(60.0)
    for path in ("/rules/hangs", "/pushed/hangs"):
        (_, alert), *_ = wait_for(
            lambda path=path: monitored.webhook.alerts(path, "resolved"), 120.0, f"the end of it at {path}", poll_s=0.1
        )
        assert alert["labels"]["job_id"] == incident.job.id
    statuses = [m.body["status"] for m in monitored.webhook.messages if m.path == _WEBHOOK]
    assert statuses == ["firing", "resolved"]
    titles = [m.body["title"] for m in monitored.webhook.messages if m.path == _SERVICE]
    assert len(titles) == 2
    assert titles[1].startswith("Resolved: telling.py on ")
    assert query(monitored.prometheus, "hangwatch_incident or hangwatch_rank_info") == []
