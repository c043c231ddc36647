"""A rank awaits an answer from a process beside the job that is on another node: the agent there tells who that is."""

from __future__ import annotations

import os
import signal
import sys

import pytest
from cluster import Cluster
from hosts import Host

from hangwatch.model.incident import Incident
from support import JOBS, wait_for

NODES, ASKS, SERVES = (0, 1), 0, 1
ADDRESS = "10.77.0.2:8090"


@pytest.fixture
def asking(cluster: Cluster) -> Cluster:
    """A job of two nodes at work, its server beside the rank of the second one, and agents that have met."""
    cluster.exchange = None
    host = cluster.network[SERVES]
    host.start(sys.executable, str(JOBS / "asks_another_node.py"), str(cluster.folder), ADDRESS, "--serve")
    wait_for((cluster.folder / "server").exists, 60.0, "the server")
    for number in NODES:
        cluster.start_agent(number)
        cluster.launch(number, nodes="2", program=("asks_another_node.py", str(cluster.folder), ADDRESS))
    cluster.wait_for_steps(20, 2)
    for number in NODES:
        cluster.agents[number].wait_for_output("(1 of its 2 ranks here): joined at 10.77.0.1:29717", 120.0)
    return cluster


def server_pid(host: Host) -> int:
    """The server, as this machine numbers it."""
    (found,) = (p.pid for p in host.processes() if "--serve" in p.cmdline())
    return found


def assert_server_is_named(cluster: Cluster, incident: Incident) -> None:
    """It is the culprit, by its name; both ranks wait."""
    verdict = incident.verdict
    inner = (cluster.folder / "server").read_text()
    assert [verdict.names.get(rank, str(rank)) for rank in verdict.culprit_ranks] == [f"asks_another_node[{inner}]"]
    assert not verdict.proven
    assert {0, 1} <= set(verdict.waiting_ranks)


def test_a_server_on_another_node_is_named_with_its_line(asking: Cluster) -> None:
    """It reads a file in the middle of a request: a warning first, as an answer may take long."""
    (asking.folder / "hang").touch()
    for incident in asking.wait_for_incidents(NODES, warning=True):
        assert_server_is_named(asking, incident)
        assert incident.verdict.kind == "straggler"
        assert incident.verdict.divergence is not None
        assert incident.verdict.divergence.culprit is not None
        assert incident.verdict.divergence.culprit.function == "read_table"


def test_a_server_on_another_node_that_is_stopped(asking: Cluster) -> None:
    """That is a hang after the patience."""
    os.kill(server_pid(asking.network[SERVES]), signal.SIGSTOP)
    for incident in asking.wait_for_incidents(NODES):
        assert_server_is_named(asking, incident)
        assert incident.verdict.kind == "stall"
        assert incident.verdict.cause is not None
        assert incident.verdict.cause.id == "rank-stopped"
