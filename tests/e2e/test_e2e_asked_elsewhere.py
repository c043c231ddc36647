"""A rank awaits an answer from a process beside the job on another node, or in another pod of its own: who that is."""

from __future__ import annotations

import os
import signal
import sys

import pytest
from cluster import Cluster
from hosts import Host

from hangwatch.agent.capturing.servers import find_servers
from hangwatch.model.capture import RankIdentity
from hangwatch.model.incident import Incident
from support import JOBS, wait_for

NODES, ASKS, SERVES = (0, 1), 0, 1
ADDRESS = "10.77.0.2:8090"
#: One that no machine has and that a rule of the asking node translates, as kube-proxy does for a service of Kubernetes.
SERVICE = "10.99.0.1:80"
TRANSLATED = (
    "ip route add 10.99.0.1 dev eth0",
    f"iptables -t nat -A OUTPUT -d 10.99.0.1 -p tcp --dport 80 -j DNAT --to-destination {ADDRESS}",
)


def serve(cluster: Cluster) -> None:
    """Start the server."""
    host = cluster.network[SERVES]
    host.start(sys.executable, str(JOBS / "asks_another_node.py"), str(cluster.folder), ADDRESS, "--serve")
    wait_for((cluster.folder / "server").exists, 60.0, "the server")


def reach(host: Host, address: str) -> None:
    """See to it that a host comes to the server by an address."""
    for command in TRANSLATED if address == SERVICE else ():
        job = host.start(*command.split())
        assert job.wait(30.0) == 0, job.stderr()


@pytest.fixture
def asking(cluster: Cluster, request: pytest.FixtureRequest) -> Cluster:
    """A job of two nodes at work, its server beside the rank of the second one, and agents that have met.

    The parameter is the address that the server is asked at.
    """
    asked = request.param
    reach(cluster.network[ASKS], asked)
    cluster.exchange = None
    serve(cluster)
    for number in NODES:
        cluster.start_agent(number)
        cluster.launch(number, nodes="2", program=("asks_another_node.py", str(cluster.folder), asked))
    cluster.wait_for_steps(20, 2)
    for number in NODES:
        cluster.agents[number].wait_for_output("(1 of its 2 ranks here): joined at 10.77.0.1:29717", 120.0)
    return cluster


def pid_of(host: Host, argument: str) -> int:
    """The Python process with this argument, as this machine numbers it."""

    def find() -> list[int]:
        return [p.pid for p in host.processes() if argument in p.cmdline() and "python" in p.name()]

    return wait_for(find, 30.0, f"the process with {argument}")[0]


def assert_server_is_named(cluster: Cluster, incident: Incident) -> None:
    """It is the culprit, by its name; both ranks wait."""
    verdict = incident.verdict
    inner = (cluster.folder / "server").read_text()
    assert [verdict.names.get(rank, str(rank)) for rank in verdict.culprit_ranks] == [f"asks_another_node[{inner}]"]
    assert not verdict.proven
    assert {0, 1} <= set(verdict.waiting_ranks)


@pytest.mark.parametrize(
    "asking",
    [pytest.param(ADDRESS, id="its own", marks=pytest.mark.soak), pytest.param(SERVICE, id="of a service")],
    indirect=True,
)
def test_a_server_on_another_node_is_named(asking: Cluster) -> None:
    """With its line where it reads a file in the middle of a request: a warning first, as an answer may take long.

    Once it goes on that is over. A server that is stopped is a hang after the patience. The client knows it by a service's
    address and the server by its own: it is found by the client's.
    """
    (asking.folder / "hang").touch()
    for incident in asking.wait_for_incidents(NODES, warning=True):
        assert_server_is_named(asking, incident)
        assert incident.verdict.kind == "straggler"
        assert incident.verdict.divergence is not None
        assert incident.verdict.divergence.culprit is not None
        assert incident.verdict.divergence.culprit.function == "read_table"
    (asking.folder / "hang").unlink()
    (asking.folder / "table").write_bytes(b"1")
    both = lambda: [incident for number in NODES for incident in asking.incidents(number)]  # noqa: E731
    wait_for(lambda: all(incident.ended_at for incident in both()), 60.0, "the warning to be over")
    asking.wait_for_steps(20, 2)
    known = {incident.id for incident in both()}
    os.kill(pid_of(asking.network[SERVES], "--serve"), signal.SIGSTOP)
    for incident in asking.wait_for_incidents(NODES, known=known):
        assert_server_is_named(asking, incident)
        assert incident.verdict.kind == "stall"
        assert incident.verdict.cause is not None
        assert incident.verdict.cause.id == "rank-stopped"


@pytest.mark.parametrize(
    "address", [pytest.param(ADDRESS, id="its own", marks=pytest.mark.soak), pytest.param(SERVICE, id="of a service")]
)
def test_a_server_in_another_pod_of_the_node(cluster: Cluster, address: str) -> None:
    """Each has a network namespace of its own, and the agent of their node sees both."""
    client, server = cluster.network[ASKS], cluster.network[SERVES]
    (cluster.folder / "hang").touch()
    serve(cluster)
    reach(client, address)
    client.start(sys.executable, "-c", "import sys, urllib.request as r; r.urlopen(sys.argv[1])", f"http://{address}/")
    asking = RankIdentity(rank=0, pid=pid_of(client, f"http://{address}/"), start_time=0.0)
    serving = pid_of(server, "--serve")
    found = wait_for(lambda: find_servers([asking])[1], what="the server")
    assert [one.pid for one in found] == [serving]
