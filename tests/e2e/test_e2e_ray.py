"""Real Ray, on this machine alone: actors in a Gloo group, with the probe by ``runtime_env`` (docs/frameworks.md)."""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from nodes import WITH_VARIABLES, Node
from watched_runs import ACT_AFTER_S, STALL_AFTER_S, find_bundles, read_incident, start_ray

from corpus.catalogue import unpack
from hangwatch.outputs.bundle.bundle import read_bundle
from support import JOBS, Job, JobRunner, find_free_port, wait_for

pytestmark = [
    pytest.mark.usefixtures("long"),
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None,
        reason="Ray is no part of this environment: make test-long installs it",
    ),
]
#: A program of the corpus.
PROGRAM = "averaging.py"
#: Without its answers for tokens and its reports of use.
QUIET = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}


@pytest.fixture
def ray_folder() -> Iterator[str]:
    """Where Ray keeps its sockets: their path has to be short."""
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        yield folder


def watch(jobs: JobRunner, state: Path, folder: str, program: Path, *arguments: str, on_hang: str = "stop") -> Job:
    """The program under ``hangwatch run``, once its Ray has started."""
    variables = {"HANGWATCH_STATE_DIR": str(state), "RAY_TMPDIR": folder, **QUIET}
    options = ("--on-hang", on_hang, "--stall-after", str(STALL_AFTER_S), "--act-after", str(ACT_AFTER_S))
    return start_ray(lambda: jobs.hangwatch("run", *options, "--", sys.executable, program, *arguments, env=variables))


@pytest.mark.soak  # `make test-long` replays its like: actors-between-calls of the recorded controls
def test_actors_that_are_all_called_are_healthy(jobs: JobRunner, tmp_path: Path, ray_folder: str) -> None:
    """Also while the driver calls nobody for longer than the patience, and computes for longer than that between two calls."""
    program = unpack("actors", tmp_path / "train") / PROGRAM
    job = watch(jobs, tmp_path / "state", ray_folder, program, "--pause", "12", "--score", "9")
    assert job.wait(180.0) == 0, job.stderr()
    assert not [b for b in find_bundles(tmp_path / "state") if read_incident(b).verdict.kind != "straggler"]


@pytest.mark.soak  # of the corpus: actor-that-is-not-called; below the same hang in a cluster, and another one under `run`
def test_an_actor_that_is_not_called_is_named(jobs: JobRunner, tmp_path: Path, ray_folder: str) -> None:
    """The actor by its class, that it has nothing to do, and the line in which its driver is.

    Before that the driver calls nobody for longer than the patience: a warning at most.
    """
    program = unpack("actors", tmp_path / "train") / PROGRAM
    job = watch(jobs, tmp_path / "state", ray_folder, program, "--busy", "2", "--pause", "12")
    assert job.wait(180.0) == 75, job.stderr()
    assert "step 4" in job.stdout()
    found_all = [read_bundle(bundle) for bundle in find_bundles(tmp_path / "state")]
    ((incident, capture),) = [one for one in found_all if one[0].verdict.kind != "straggler"]
    found = incident.verdict
    assert (found.kind, found.proven, found.culprit_ranks, found.waiting_ranks) == ("stall", False, (2,), (0, 1))
    assert found.cause is not None
    assert found.cause.id == "waits-for-request"
    assert "Rank 2 (ray::Learner)" in found.cause.explanation
    driver = [e.says for e in found.cause.evidence if e.source == "caller"]
    assert any("averaging.py" in says and "ray.get" in says for says in driver)
    assert {rank.identity.title for rank in capture.ranks} == {"ray::Learner"}
    assert all(rank.beat_age_s is not None for rank in capture.ranks)


def test_actors_of_a_cluster_of_its_own_are_watched_by_the_agent_of_their_node(
    node: Node, tmp_path: Path, ray_folder: str
) -> None:
    """The variables before ``ray start``, ``hangwatch agent`` beside it, and the script as ever: of us it has nothing."""
    agent = node.hangwatch(
        "agent", "--listen", "127.0.0.1:0", "--stall-after", str(STALL_AFTER_S), "--state-dir", tmp_path
    )
    agent.wait_for_output("watching this node")
    port = find_free_port()
    ports = (f"--port={port}", "--min-worker-port=0", "--max-worker-port=0")
    small = ("--num-cpus=1", "--object-store-memory=80000000", "--include-dashboard=false", f"--temp-dir={ray_folder}")
    ray = Path(sys.executable).with_name("ray")
    cluster = (*WITH_VARIABLES, ray, "start", "--head", "--block", *ports, *small)
    start_ray(lambda: node.start(*cluster, env=QUIET)).wait_for_output("Ray runtime started")
    address = f"127.0.0.1:{port}"
    program = unpack("actors", tmp_path / "train") / PROGRAM
    script = node.start(sys.executable, program, "--busy", "2", "--address", address, env={"PYTHONPATH": None, **QUIET})
    script.wait_for_output("step 4", 120.0)

    def stalls() -> list[Path]:
        # On a slow machine its group, which forms slowly, is reported before: a warning.
        return [one for one in find_bundles(tmp_path) if read_incident(one).verdict.kind != "straggler"]

    (bundle,) = wait_for(stalls, 60.0, "the incident")
    incident, capture = read_bundle(bundle)
    found = incident.verdict
    assert (found.kind, found.culprit_ranks, found.waiting_ranks) == ("stall", (2,), (0, 1))
    assert found.cause is not None
    assert found.cause.id == "waits-for-request"
    assert {rank.identity.title for rank in capture.ranks} == {"ray::Learner"}
    assert all(rank.beat_age_s is not None for rank in capture.ranks)


def test_the_task_that_a_rank_awaits_is_named(jobs: JobRunner, tmp_path: Path, ray_folder: str) -> None:
    """Its line does not say which (``ray.get(pending)``), and the process is in no group: Ray's dashboard knows both."""
    state = tmp_path / "state"
    program = unpack("requests", tmp_path / "train") / "ray_marks.py"
    job = watch(jobs, state, ray_folder, program, "--rare-at", "6", on_hang="report")
    job.wait_for_output("in mark", 60.0)
    *_, bundle = find_bundles(state)  # on a slow machine its group, which forms slowly, is reported before
    incident, capture = read_bundle(bundle)
    found = incident.verdict
    assert [name.partition("[")[0] for name in found.names.values()] == ["mark"]
    assert found.culprit_ranks == tuple(found.names)
    assert found.waiting_ranks == (0, 1)
    assert found.cause is not None
    assert found.cause.id == "blocked-io"
    first = next(rank for rank in capture.ranks if rank.rank == 0)
    assert [one for one in first.processes[-1].tasks if one.startswith("mark (RUNNING")]


@pytest.mark.soak
def test_a_worker_of_ray_train_that_reports_alone(jobs: JobRunner, tmp_path: Path, ray_folder: str) -> None:
    """An actor of Ray Train counts who has come to a report; the other worker waits for this one in a backward pass."""
    job = watch(jobs, tmp_path / "state", ray_folder, JOBS / "loops" / "reporting.py")
    assert job.wait(300.0) == 75, job.stderr()
    *_, bundle = find_bundles(tmp_path / "state")
    found = read_incident(bundle).verdict
    assert (found.kind, found.proven, found.culprit_ranks, found.waiting_ranks) == ("stall", False, (0,), (1,))
    assert found.cause is not None
    assert found.cause.id == "ranks-diverged"
    assert "get_world_rank() == 0" in found.cause.explanation
    assert found.divergence is not None
    assert found.divergence.culprit is not None
    assert (found.divergence.culprit.source or "").startswith("report(")
