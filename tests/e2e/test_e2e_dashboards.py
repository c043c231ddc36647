"""Every query of the dashboards against a real Prometheus: 1,024 ranks on 128 nodes, three jobs, two incidents of one job.

The agents' real expositions of made-up values are served from one process; Prometheus scrapes them with the shipped rules.
"""

from __future__ import annotations

import math
import re
import threading
import time
import urllib.error
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from monitoring import query, start_prometheus

from dashboards import PanelQuery, panel_queries, read_dashboards
from hangwatch.model.capture import Job
from hangwatch.model.incident import Lateness
from hangwatch.model.live import LiveRank
from hangwatch.model.progress import LiveProgress
from hangwatch.model.serving import EngineState
from hangwatch.model.telemetry import LoggedStep, RankSteps, TrainingSeries
from hangwatch.model.text import format_members
from hangwatch.outputs.briefing import Briefing
from hangwatch.outputs.metrics.exposition import Metrics
from hangwatch.outputs.metrics.view import (
    AgentMetrics,
    IncidentMetrics,
    JobMetrics,
    MetricsView,
    ReceiverMetrics,
    SourceMetrics,
)
from support import JobRunner, wait_for

_NODES, _RANKS_PER_NODE = 128, 8
_RANKS = _NODES * _RANKS_PER_NODE
#: Nodes of the two small jobs.
_SMALL, _OTHER = _NODES, _NODES + 1
#: Also how long a scrape may take: of a busy machine.
_INTERVAL_S = 5
_MOST_SERIES = 50
_LLAMA = "3f2a8c1e-0000-4000-8000-5d1c7f0a9b42"
_VALUES = {
    "cluster": ".*",
    "namespace": ".*",
    "job_id": _LLAMA,
    "rank": "9",
    "__rate_interval": "20s",
    "__range": "30s",
}

pytestmark = pytest.mark.timeout(300)


def _briefing(name: str, title: str) -> Briefing:
    return Briefing(
        name=name, script="src/train.py", job_text=f"{name}, src/train.py", summary=f"{name} hangs.", culprit="rank 9 on gpu-1",
        sides=(), culprit_line="rank 9 at src/train.py:42: dist.barrier()", others_line="", title=title, why="",
        steps=("Look.",), page_url="http://gpu-0:9753/incidents/i", runbook_url="", more="hangwatch explain unknown",
    )  # fmt: skip


def _rank(rank: int, count: int) -> LiveRank:
    """A rank in three groups of a job with tensor and data parallelism; all wait, most for rank 9, some further behind."""
    node = rank // _RANKS_PER_NODE
    tensor = tuple(range(node * _RANKS_PER_NODE, (node + 1) * _RANKS_PER_NODE))
    data = tuple(range(rank % _RANKS_PER_NODE, _RANKS, _RANKS_PER_NODE))
    groups = {"default_pg": (), f"tp [{format_members(tensor)}]": tensor, f"dp [{format_members(data)}]": data}
    behind = rank % 7 if rank % 3 else 0
    progress = tuple(
        LiveProgress(label, label, members, count - behind, count - behind - 1, 90.0 + rank / 100)
        for label, members in groups.items()
    )
    return LiveRank(rank, f"gpu-{node}", 4000 + rank, "stuck" if rank == 9 else "waiting", 0.2, progress)


def _small(name: str, node: int, count: int, namespace: str = "") -> JobMetrics:
    job = Job(name, 2, (f"gpu-{node}",), "torchrun", name=f"{name}-name", namespace=namespace)
    groups = (LiveProgress("0@", "default_pg", (0, 1), count, count),)
    ranks = tuple(LiveRank(rank, f"gpu-{node}", 10 + rank, "running", 0.1, groups) for rank in (0, 1))
    return JobMetrics(job, ranks, (), 60.0)


def _llama(node: int, count: int) -> JobMetrics:
    """The part of the large job on one node; its two incidents, training and engine are known to the agent of the first."""
    job = Job(
        _LLAMA, _RANKS, (f"gpu-{node}",), "torchrun", name="llama-70b", script="src/train.py", user="ada", slurm_job="4711",
        namespace="team-a", pod=f"llama-{node}",
    )  # fmt: skip
    first = node * _RANKS_PER_NODE
    ranks = tuple(_rank(rank, count) for rank in range(first, first + _RANKS_PER_NODE))
    if node:
        return JobMetrics(job, ranks, (), 60.0)
    onset_s = time.time() - 90.0
    incidents = (
        IncidentMetrics(
            "i", "deadlock", "unknown", "critical", onset_s, _briefing("llama-70b", "None known"), tuple(range(9, 209))
        ),
        IncidentMetrics("s", "silent_failure", "loss-nan", "warning", onset_s, _briefing("llama-70b", "Loss is NaN")),
    )
    own = LoggedStep("report", 0, count, 0, loss=2.0, grad_norm=1.0, learning_rate=1e-4, skipped_steps=3)
    others = tuple(
        RankSteps(
            rank,
            (LoggedStep("report", 0, count, rank, loss=math.nan if rank == 9 else 2.0 + rank, grad_norm=math.nan),),
        )
        for rank in range(1, _RANKS)
    )
    training = TrainingSeries(
        0, (own,), others, reached={0: count, **dict.fromkeys(range(1, _RANKS), 1)}, steps_per_s={0: 4.0}
    )
    engine = EngineState("vllm", "127.0.0.1:8000", 3, 12, demand_s=120.0, still_s=95.0, patience_s=60.0)
    late = Lateness(9, 0.2, 0.31, 0.25, tuple(range(9)), 60, 60, "Rank 9 is late.")
    return JobMetrics(job, ranks, incidents, 60.0, training, (engine,), late)


def _exposition(node: int) -> bytes:
    """What the agent of a node serves now."""
    ticks = int(time.monotonic())
    jobs = {_SMALL: _small("bert", _SMALL, 5 * ticks, "team-b"), _OTHER: _small("vit", _OTHER, 7 * ticks)}
    view = MetricsView(
        jobs=(jobs[node] if node in jobs else _llama(node, 3 * ticks),),
        incidents_total={"deadlock": ticks // 5},
        sources=(
            SourceMetrics("stacks", node != 5, 0.03, ticks, ticks // 2),
            SourceMetrics("flight recorder", True, 0.1, ticks, 0),
        ),
        receivers=(ReceiverMetrics("webhook", 1, 0, 0),),
        agent=AgentMetrics(ticks, ticks * 0.01, ticks // 10, ticks * 0.05, errors_total=ticks // 20),
    )  # fmt: skip
    return Metrics(view).render()[0]


@dataclass(frozen=True)
class _Fleet:
    """Prometheus, with enough of the fleet's history for every rate."""

    prometheus: str


@pytest.fixture(scope="module")
def fleet(real: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Fleet]:
    """The fleet, scraped several times, its rules evaluated on what was scraped."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = _exposition(int(self.path.split("/")[1]))
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    folder = tmp_path_factory.mktemp("fleet")
    runner = JobRunner(folder / "jobs")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        prometheus = start_prometheus(
            runner, folder / "prometheus", f"127.0.0.1:{server.server_address[1]}", "http://127.0.0.1:9",
            nodes=_NODES + 2, interval=f"{_INTERVAL_S}s",
        )  # fmt: skip
        scraped = 'min(count_over_time(up{job="hangwatch"}[1m])) >= 6 and count(up == 1) == ' + str(_NODES + 2)
        recorded = f"count(count_over_time(job:hangwatch_job_info:max[{6 * _INTERVAL_S}s]) >= 4) == 3"
        for text in (scraped, recorded):
            wait_for(lambda text=text: query(prometheus, text), 200.0, text, poll_s=1.0)
        yield _Fleet(prometheus)
    finally:
        runner.end_all()
        server.shutdown()
        thread.join()
        server.server_close()


def _series(fleet: _Fleet, one: PanelQuery, **values: str) -> list[dict[str, Any]]:
    """The series that a query gives a panel, over the last scrapes or now."""
    now = time.time()
    period = {} if one.instant else {"start": str(now - 3 * _INTERVAL_S), "end": str(now), "step": str(_INTERVAL_S)}
    try:
        return query(fleet.prometheus, one.filled({**_VALUES, **values}), **period)
    except urllib.error.HTTPError as error:
        pytest.fail(f"{one}: {error.read().decode()}\n{one.expression}")


def test_every_query_finds_data_and_no_panel_more_than_a_person_can_read(fleet: _Fleet) -> None:
    """No error, though one job has two open incidents; no panel with one series a rank of 1,024."""
    panels: dict[str, int] = {}
    for one in panel_queries():
        # One scrape of a busy machine may have failed.
        found = wait_for(lambda one=one: _series(fleet, one), 60.0, f"data for {one}", poll_s=1.0)
        if not one.panel.startswith("variable"):
            panels[str(one)] = panels.get(str(one), 0) + len(found)
    crowded = [f"{panel}: {count}" for panel, count in panels.items() if count > _MOST_SERIES]
    assert crowded == []
    assert len(panels) > 45
    print(sorted(panels.items(), key=lambda item: -item[1])[:8])


def _panel(title: str) -> list[PanelQuery]:
    return [one for one in panel_queries() if one.panel == title]


def test_both_incidents_of_a_job_are_rows_with_all_that_the_page_says(fleet: _Fleet) -> None:
    """A hang and a silent failure are open at once; each row has its own cause, age and line."""
    for one in (*_panel("Open incidents"), *_panel("Verdict")):
        # One scrape of a busy machine may have failed.
        found = wait_for(
            lambda one=one: found if len(found := _series(fleet, one)) == 2 else [], 60.0, f"both of {one}", poll_s=1.0
        )
        rows = {row["metric"]["kind"]: row for row in found}
        assert {kind: row["metric"]["cause"] for kind, row in rows.items()} == {
            "deadlock": "unknown", "silent_failure": "loss-nan",
        }  # fmt: skip
        assert {row["metric"]["name"] for row in rows.values()} == {"llama-70b"}
        assert rows["deadlock"]["metric"]["culprit_line"] == "rank 9 at src/train.py:42: dist.barrier()"
        assert 80 < float(rows["deadlock"]["value"][1]) < 200


def test_variables_narrow_what_is_shown(fleet: _Fleet) -> None:
    """A namespace leaves one job, an unknown cluster none; the list of jobs shows names and has ids for values."""
    (jobs,) = [one for one in _panel("Jobs") if one.expression.startswith("count(")]

    def counts() -> list[str]:
        return [_series(fleet, jobs, namespace=name)[0]["value"][1] for name in (".*", "team-b")]

    wait_for(lambda: counts() == ["3", "1"], 60.0, "three jobs, one of them in the namespace")
    assert _series(fleet, jobs, cluster="none")[0]["value"][1] == "0"
    (legend,) = {frozenset(row["metric"]) for row in _series(fleet, _panel("Oldest operation in flight")[0])}
    assert "name" in legend
    named = next(one for one in panel_queries() if one.panel == "variable job_id")
    names = {_LLAMA: "llama-70b", "bert": "bert-name", "vit": "vit-name"}
    wait_for(
        lambda: {row["metric"]["job_id"]: row["metric"]["name"] for row in _series(fleet, named)} == names,
        60.0,
        "all three jobs in the list",
        poll_s=1.0,
    )


def test_the_ranks_to_look_at_are_the_culprits_first(fleet: _Fleet) -> None:
    """Of 1,024 ranks few are listed, each with node, process and state, the stuck one among them."""

    def ranks() -> list[dict[str, str]]:
        found = [row["metric"] for one in _panel("Ranks to look at")[:1] for row in _series(fleet, one)]
        return found if len(found) >= 8 and "9" in {row["rank"] for row in found} else []

    rows = wait_for(ranks, 60.0, "the ranks to look at", poll_s=1.0)  # one scrape of a busy machine may have failed
    assert len(rows) <= 32
    (culprit,) = [row for row in rows if row["rank"] == "9"]
    assert (culprit["node"], culprit["pid"], culprit["state"]) == ("gpu-1", "4009", "stuck")


def test_a_name_is_read_from_the_list_of_jobs_as_grafana_does() -> None:
    """The variable's regular expression takes text and value from a series as Grafana writes it."""
    for dashboard in ("hangwatch-job", "hangwatch-rank"):
        variables = {v["name"]: v for v in read_dashboards()[dashboard]["templating"]["list"]}
        pattern = variables["job_id"]["regex"].removeprefix("/").removesuffix("/g").replace("(?<", "(?P<")
        series = 'job:hangwatch_job_info:max{cluster="c", job_id="3f2a", launcher="torchrun", name="llama", script="x.py"} 1 178'
        found = [match.groupdict() for match in re.finditer(pattern, series)]
        assert {k: v for groups in found for k, v in groups.items() if v} == {"text": "llama", "value": "3f2a"}
