"""Real jobs that go on while a rank or a link is slow: reported, and over when it is fast again."""

from __future__ import annotations

import urllib.request
from pathlib import Path

import pytest
from cluster import NODES, Cluster
from watched_runs import find_bundles, read_incident, torchrun

from hangwatch.model.incident import Incident
from support import JOBS, JobRunner, find_free_port, wait_for

pytestmark = pytest.mark.usefixtures("long")

PROGRAM = JOBS / "late_input.py"
LOOKS = 'hangwatch_source_reads_total{source="flight_recorder"} '
_TIME_LIMIT_S = 240.0


def _metrics(port: int) -> list[str]:
    """The lines that the agent serves; none as long as it does not listen."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            return answer.read().decode().splitlines()
    except OSError:
        return []


def _looks(port: int) -> float:
    """How many records the agent has read."""
    return sum(float(line.removeprefix(LOOKS)) for line in _metrics(port) if line.startswith(LOOKS))


@pytest.mark.waits
def test_a_rank_whose_input_becomes_slow(jobs: JobRunner, tmp_path: Path) -> None:
    """Ranks that take turns are no incident; then rank 2's loader is slow, and then it is not."""
    state, port = tmp_path / "state", find_free_port()
    job = jobs.hangwatch(
        "run", "--state-dir", state, "--listen", f"127.0.0.1:{port}", "--",
        *torchrun(PROGRAM, str(tmp_path), nproc=3), env={"TORCH_FR_BUFFER_SIZE": "500", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip

    def incidents() -> list[Incident]:
        assert job.process.poll() is None, job.stderr()
        return [read_incident(path) for path in find_bundles(state)]

    wait_for(lambda: _looks(port) >= 12 and incidents() == [], _TIME_LIMIT_S, "four looks", poll_s=0.2)
    (tmp_path / "stall").touch()
    (found,) = wait_for(incidents, _TIME_LIMIT_S, "an incident")
    assert (found.verdict.kind, found.verdict.culprit_ranks, found.verdict.waiting_ranks) == ("slow", (2,), (0, 1))
    assert found.lateness is not None
    assert found.lateness.reason == "input"
    assert found.lateness.lost > 0.1  # half of it on an idle machine
    assert found.verdict.divergence is not None
    line = found.verdict.divergence.culprit
    assert line is not None
    assert (line.file, line.source) == (str(PROGRAM), "for step, batch in enumerate(loader):")
    # They are published once the tick ends that has written the bundle.
    served = wait_for(
        lambda: [line for line in _metrics(port) if line.startswith("hangwatch_late_rank_")], _TIME_LIMIT_S, "metrics"
    )
    assert {line.partition("{")[0] for line in served} == {
        "hangwatch_late_rank_seconds",
        "hangwatch_late_rank_lost_ratio",
    }
    assert all('rank="2"' in line for line in served)
    (tmp_path / "stall").unlink()
    wait_for(lambda: incidents()[0].ended_at is not None, _TIME_LIMIT_S, "its end")
    (tmp_path / "stop").touch()
    assert job.wait(_TIME_LIMIT_S) == 0, job.stderr()
    assert [one.verdict.kind for one in map(read_incident, find_bundles(state))] == ["slow"]
    assert "nothing slows the job down any more" in job.stderr()


@pytest.mark.waits
def test_a_late_rank_of_another_host(cluster: Cluster) -> None:
    """Three hosts with a rank each: one agent names it and its line for all, and no other reports it as well."""
    cluster.exchange = None
    cluster.start_agents()
    for number in range(NODES):
        cluster.launch(number, program=(PROGRAM.name, str(cluster.folder)), env={"OMP_NUM_THREADS": "1"})
    late = 2

    def reported() -> list[Incident]:
        return [one for number in range(NODES) for one in cluster.incidents(number)]

    (cluster.folder / "stall").touch()
    (found,) = wait_for(reported, _TIME_LIMIT_S, "an incident")
    assert (found.verdict.kind, found.verdict.culprit_ranks, found.verdict.waiting_ranks) == ("slow", (late,), (0, 1))
    assert found.lateness is not None
    assert found.lateness.reason == "input"
    assert {rank.rank: rank.node for rank in found.ranks}[late] == cluster.network[late].name
    assert found.verdict.divergence is not None
    line = found.verdict.divergence.culprit
    assert line is not None
    assert line.source == "for step, batch in enumerate(loader):"
    (cluster.folder / "stall").unlink()
    wait_for(lambda: reported()[0].ended_at is not None, _TIME_LIMIT_S, "its end")
    assert len(reported()) == 1
    (cluster.folder / "stop").touch()
    for launcher in cluster.launchers.values():
        assert launcher.wait(_TIME_LIMIT_S) == 0, launcher.stderr()


@pytest.mark.waits
def test_a_host_with_a_slow_card(cluster: Cluster) -> None:
    """The agent that leads names the host, and no rank: not the slow host's, nor its neighbour's, which comes late for it."""
    cluster.exchange = None
    cluster.start_agents()
    for number in range(NODES):
        cluster.launch(number, program=("bulk.py", str(cluster.folder)), env={"OMP_NUM_THREADS": "1"})
    slow = cluster.network[1]

    def reported() -> list[Incident]:
        return [one for number in range(NODES) for one in cluster.incidents(number)]

    slow.limit("100mbit")
    (found,) = wait_for(reported, _TIME_LIMIT_S, "an incident")
    assert (found.verdict.kind, found.verdict.culprit_ranks) == ("slow", ())
    assert found.verdict.cause is not None
    assert (found.verdict.cause.id, f"on the links of {slow.name}" in found.verdict.summary) == ("slow-link", True)
    slow.limit(None)
    wait_for(lambda: reported()[0].ended_at is not None, _TIME_LIMIT_S, "its end")
    assert len(reported()) == 1
    (cluster.folder / "stop").touch()
    for launcher in cluster.launchers.values():
        assert launcher.wait(_TIME_LIMIT_S) == 0, launcher.stderr()
