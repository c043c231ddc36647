"""Several real hosts (network, processes and host names of their own): one verdict, whatever fails around it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hosts import Host, Network, kill, make_hosts, why_not
from watched_runs import find_bundles, read_incident

from hangwatch.agent.directories import probe_environment
from hangwatch.model.incident import Incident
from support import JOBS, SOURCE_ROOT, Job, JobRunner, wait_for

sys.path.append(str(Path(__file__).resolve().parent.parent / "exchange"))
from servers import RedisServer

_REASON = why_not()
pytestmark = [pytest.mark.e2e, pytest.mark.skipif(_REASON is not None, reason=_REASON or "")]
NODES = 3
#: A receiver of alerts: a line of JSON for each that it takes.
_RECEIVER = """
import http.server, sys
class Taker(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with open(sys.argv[1], "ab") as file:
            file.write(body.replace(b"\\n", b" ") + b"\\n")
        self.send_response(200)
        self.end_headers()
    def log_message(self, *args):
        pass
http.server.ThreadingHTTPServer(("10.77.0.4", 8080), Taker).serve_forever()
"""


@dataclass
class Cluster:
    """Three nodes with a rank each, agents beside them, and a fourth host for the server and the receiver of alerts."""

    network: Network
    runner: JobRunner
    folder: Path
    exchange: str
    agents: dict[int, Job] = field(default_factory=dict)

    @property
    def nodes(self) -> Sequence[Host]:
        """The nodes of the job."""
        return self.network.hosts[:NODES]

    def start_receiver(self) -> None:
        """Start whoever is alerted."""
        self.network[NODES].start(sys.executable, "-c", _RECEIVER, str(self.folder / "alerts"))

    def start_agent(self, number: int) -> None:
        """Start the agent of a node, as a daemon."""
        options = ("--exchange", self.exchange, "--stall-after", "6", "--webhook", "http://10.77.0.4:8080/")
        host = self.network[number]
        self.agents[number] = host.hangwatch("agent", *options, env={"PYTHONPATH": str(SOURCE_ROOT)})
        self.agents[number].wait_for_output("watching this node", 120.0)

    def start_job(self) -> None:
        """Start the job on all nodes, as a user would with ``hangwatch env``, and wait until it trains."""
        for number, host in enumerate(self.nodes):
            run_dir = host.home / "tmp" / "hangwatch-0" / "node"
            options = ("--nnodes", str(NODES), "--nproc-per-node", "1", "--node-rank", str(number), "--rdzv-id", "job")
            meeting = ("--rdzv-backend", "c10d", "--rdzv-endpoint", "10.77.0.1:29500", "--local-addr", host.address)
            launcher = (sys.executable, "-m", "torch.distributed.run", *options, *meeting)
            host.start(*launcher, str(JOBS / "nodes.py"), str(self.folder), env=dict(probe_environment(run_dir, {})))
        self.wait_for_steps(20)

    def steps(self) -> list[int]:
        """The step that each rank is at."""
        files = [self.folder / f"step-{rank}" for rank in range(NODES)]
        return [int(file.read_text() or 0) if file.exists() else 0 for file in files]

    def wait_for_steps(self, more: int) -> None:
        """Wait until every rank has done so many steps more."""
        before = self.steps()
        done = lambda: all(now >= then + more for now, then in zip(self.steps(), before, strict=True))  # noqa: E731
        wait_for(done, 120.0, "all ranks to go on")

    def hang(self, rank: int) -> None:
        """Let a rank hang."""
        (self.folder / f"hang-{rank}").touch()

    def incidents(self, number: int) -> list[Incident]:
        """The incidents on a node's disk."""
        return [read_incident(bundle) for bundle in find_bundles(self.network[number].state)]

    def wait_for_incidents(self, numbers: Sequence[int]) -> list[Incident]:
        """The one incident of each of these nodes."""
        wait_for(lambda: all(self.incidents(n) for n in numbers), 60.0, "every node to have the incident")
        found = [self.incidents(n) for n in numbers]
        assert [len(one) for one in found] == [1] * len(numbers)
        return [one[0] for one in found]

    def alerts(self) -> list[str]:
        """What the receiver has been told, in order."""
        file = self.folder / "alerts"
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def cluster(jobs: JobRunner, tmp_path: Path) -> Iterator[Cluster]:
    """Hosts and a folder; the exchange is a Redis unless a test says otherwise."""
    with make_hosts(jobs, NODES + 1) as network:
        (tmp_path / "job").mkdir()
        yield Cluster(network, jobs, tmp_path / "job", "redis://10.77.0.4:6379")


def start_redis(cluster: Cluster) -> RedisServer:
    """A Redis server on the fourth host."""
    server = RedisServer(cluster.runner, 6379, "10.77.0.4", cluster.network[NODES].inside())
    server.start()
    return server


def test_agents_and_redis_fail_and_nobody_is_blamed(cluster: Cluster) -> None:
    """In a healthy job an agent is killed and comes back, then Redis: nothing is told.

    Then a rank hangs: every node names it under one id, and one receiver is told.
    """
    redis = start_redis(cluster)
    assert redis.job is not None
    cluster.start_receiver()
    for number in range(NODES):
        cluster.start_agent(number)
    cluster.start_job()

    kill(cluster.agents[1])
    cluster.wait_for_steps(200)
    cluster.start_agent(1)
    kill(redis.job)
    cluster.agents[0].wait_for_output("the exchange is out of reach")
    cluster.wait_for_steps(140)
    redis.start()
    cluster.agents[0].wait_for_output("the exchange is back")
    assert not any(cluster.incidents(number) for number in range(NODES))

    cluster.hang(2)
    found = cluster.wait_for_incidents(range(NODES))
    assert len({incident.id for incident in found}) == 1
    for incident in found:
        assert incident.verdict.culprit_ranks == (2,)
        assert incident.verdict.kind == "stall"
        assert incident.verdict.cause is not None
        assert incident.verdict.cause.id == "blocked-io"
        assert incident.verdict.divergence is not None
        assert incident.verdict.divergence.culprit is not None
        assert incident.verdict.divergence.culprit.function == "read_licence"
    wait_for(cluster.alerts, 30.0, "the alert")
    assert len(cluster.alerts()) == 1
    assert json.loads(cluster.alerts()[0])


def test_a_node_whose_link_goes_down_is_lost(cluster: Cluster) -> None:
    """In the middle of training: the others name it and its rank; the node itself says that it sees only its own."""
    start_redis(cluster)
    for number in range(NODES):
        cluster.start_agent(number)
    cluster.start_job()
    cluster.wait_for_steps(60)  # long enough for its host to have been asked
    cluster.network[2].cut()
    cluster.wait_for_incidents((0, 1))
    # With so little patience it is a stall at first: it takes longer to know that a node is silent.
    lost = lambda: all(found.verdict.kind == "rank_lost" for n in (0, 1) for found in cluster.incidents(n))  # noqa: E731
    wait_for(lost, 60.0, "the node to be known as lost")
    for incident in cluster.wait_for_incidents((0, 1)):
        assert incident.verdict.culprit_ranks == (2,)
        assert incident.verdict.cause is not None
        assert incident.verdict.cause.id == "node-lost"
        assert "n2" in incident.verdict.cause.explanation
    cluster.agents[2].wait_for_output("the exchange is out of reach")


def test_torch_store_beside_rank_0(cluster: Cluster) -> None:
    """No server at all: the rank that hangs is named by every node; when the store's host is gone the others say so."""
    cluster.exchange = "tcp"
    for number in range(NODES):
        cluster.start_agent(number)
    cluster.start_job()
    cluster.wait_for_steps(60)
    cluster.hang(1)
    found = cluster.wait_for_incidents(range(NODES))
    assert len({incident.id for incident in found}) == 1
    assert all(incident.verdict.culprit_ranks == (1,) for incident in found)
    kill(cluster.agents[0])
    for number in (1, 2):
        cluster.agents[number].wait_for_output("the exchange is out of reach")
        assert len(cluster.incidents(number)) == 1
