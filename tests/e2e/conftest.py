"""Runs that several end-to-end tests share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from cluster import NODES, Cluster
from hosts import make_hosts, why_not
from nodes import Node, make_node
from watched_runs import WATCHED, Outcome, run_watched, torchrun

from support import JOBS, LONG_S, JobRunner, once


@pytest.fixture(scope="session")
def outcome(real: None, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outcome]:
    """How a run of ``watched_runs.WATCHED`` ended, whose name is the parameter; each is run once."""
    runner = JobRunner(tmp_path_factory.mktemp("watched"))
    yield run_watched(WATCHED[request.param], runner, tmp_path_factory.mktemp(request.param))
    runner.end_all()


@pytest.fixture
def node(jobs: JobRunner) -> Iterator[Node]:
    """A node of the test's own."""
    with ExitStack() as stack:
        try:
            found = stack.enter_context(make_node(jobs))
        except OSError as error:
            pytest.skip(f"no namespaces may be made here: {error}")
        yield found


@pytest.fixture
def cluster(long: None, jobs: JobRunner, tmp_path: Path) -> Iterator[Cluster]:
    """Hosts and a folder; the exchange is a Redis unless a test says otherwise."""
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    with make_hosts(jobs, NODES + 1) as network:
        (tmp_path / "job").mkdir()
        yield Cluster(network, jobs, tmp_path / "job")


@pytest.fixture
def undisturbed(real: None, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The output of ``training.py`` without us: run once, by whichever worker needs it first."""

    def train() -> str:
        runner = JobRunner(tmp_path_factory.mktemp("undisturbed"))
        try:
            job = runner.start(torchrun(JOBS / "training.py"))
            assert job.wait(LONG_S) == 0, job.stderr()
            return job.stdout()
        finally:
            runner.end_all()

    return once("undisturbed", train, tmp_path_factory)
