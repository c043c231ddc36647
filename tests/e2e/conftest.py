"""Runs that several end-to-end tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import NODES, Cluster
from hosts import make_hosts, why_not
from watched_runs import WatchedRuns, torchrun

from support import JOBS, LONG_S, JobRunner


@pytest.fixture(scope="session")
def watched(
    real: None, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WatchedRuns]:
    """Outcomes of whole runs, each run once; it is known from the tests' parameter ``run`` which will be asked for."""
    parameters = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
    runs = WatchedRuns(tmp_path_factory.mktemp("watched"), [p["run"] for p in parameters if "run" in p])
    yield runs
    runs.end()


@pytest.fixture
def cluster(long: None, jobs: JobRunner, tmp_path: Path) -> Iterator[Cluster]:
    """Hosts and a folder; the exchange is a Redis unless a test says otherwise."""
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    with make_hosts(jobs, NODES + 1) as network:
        (tmp_path / "job").mkdir()
        yield Cluster(network, jobs, tmp_path / "job")


@pytest.fixture(scope="session")
def undisturbed(real: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The output of ``training.py`` without us."""
    runner = JobRunner(tmp_path_factory.mktemp("undisturbed"))
    job = runner.start(torchrun(JOBS / "training.py"))
    assert job.wait(LONG_S) == 0, job.stderr()
    yield job.stdout()
    runner.end_all()
