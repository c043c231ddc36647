"""No option at all: a job that spans nodes gets one verdict, one that does not changes nothing, a firewall is named."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from cluster import NODES, Cluster, assert_licence_is_awaited
from watched_runs import find_bundles, listening_ports, read_incident

from hangwatch.exchange.tcpstore import DEFAULT_PORT
from hangwatch.model.incident import Incident
from support import JOBS, Job, JobRunner, find_free_port, wait_for

STORE = f"10.77.0.1:{DEFAULT_PORT}"


def run_part(jobs: JobRunner, folder: Path, number: int, port: int, *options: str) -> Job:
    """One of two torchruns of a job on this machine, each under ``hangwatch run``: no agent sees the other's ranks."""
    where = ("--node-rank", str(number), "--master-addr", "127.0.0.1", "--master-port", str(port))
    launcher = (sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1", *where)
    state = folder / f"state-{number}"
    command = ("run", "--state-dir", state, "--stall-after", "6", *options, "--", *launcher)
    return jobs.hangwatch(*command, JOBS / "nodes.py", folder)


def incidents(folder: Path, number: int) -> list[Incident]:
    """The incidents on the disk of an agent of ``run_part``."""
    return [read_incident(bundle) for bundle in find_bundles(folder / f"state-{number}")]


def wait_for_training(folder: Path) -> None:
    """Wait until both ranks have taken some steps."""
    files = [folder / f"step-{rank}" for rank in (0, 1)]
    wait_for(lambda: all(f.exists() and int(f.read_text() or 0) > 20 for f in files), 120.0, "the job to train")


def test_two_runs_join_by_themselves(jobs: JobRunner, tmp_path: Path) -> None:
    """One line says where they meet; one verdict names the rank of the other launcher, and nothing of torch's log is shown.

    The agents have no secret, so they do not act, although they were asked to: both say so at once, and in the incident.
    """
    port = find_free_port()
    runs = [run_part(jobs, tmp_path, number, port, "--on-hang", "stop", "--act-after", "1") for number in (0, 1)]
    for run in runs:
        run.wait_for_output(f"spans nodes (1 of its 2 ranks here): joined at 127.0.0.1:{DEFAULT_PORT}", 120.0)
    wait_for_training(tmp_path)
    (tmp_path / "hang-1").touch()
    # On a busy machine a rank that hangs is a straggler first.
    hangs = lambda n: any(one.verdict.kind != "straggler" for one in incidents(tmp_path, n))  # noqa: E731
    wait_for(lambda: hangs(0) and hangs(1), 90.0, "both to have the incident")
    for number in (0, 1):
        (incident,) = incidents(tmp_path, number)
        assert_licence_is_awaited(incident, 1)
        assert incident.second_look is not None
        assert (incident.second_look.action, incident.second_look.until) == ("end the job", "")
        assert "set HANGWATCH_SECRET to one secret on all nodes" in incident.second_look.called_off
    assert incidents(tmp_path, 0)[0].id == incidents(tmp_path, 1)[0].id
    for run in runs:
        assert "hangs of several nodes are reported and not acted on: set HANGWATCH_SECRET" in run.stderr()
        assert run.process.poll() is None
        assert "c10d" not in run.stderr()
        assert "Traceback" not in run.stderr()


@pytest.mark.usefixtures("long")
def test_local_turns_it_off(jobs: JobRunner, tmp_path: Path) -> None:
    """Each watches its own ranks: it neither listens nor joins, and says in the incident whose ranks nobody reports."""
    port = find_free_port()
    runs = [run_part(jobs, tmp_path, number, port, "--exchange", "local") for number in (0, 1)]
    wait_for_training(tmp_path)
    assert all(len(listening_ports(run.pid)) == 1 for run in runs), "metrics and page, nothing else"
    (tmp_path / "hang-1").touch()
    wait_for(lambda: incidents(tmp_path, 0), 90.0, "the node that waits to say so")
    assert any("no agent reports rank 1" in what for what in incidents(tmp_path, 0)[0].missing)
    assert not any("spans nodes" in run.stderr() for run in runs)


@pytest.mark.parametrize(
    "one_name", [pytest.param(False, id="names", marks=pytest.mark.soak), pytest.param(True, id="one-name")]
)
def test_hosts_join_by_themselves(cluster: Cluster, one_name: bool) -> None:
    """Agents on two hosts and ``run`` on the third, also where all hosts have one name: one verdict, the same everywhere."""
    cluster.exchange = None
    if one_name:
        for host in cluster.nodes:
            host.rename("localhost")
    for number in (0, 1):
        cluster.start_agent(number)
        cluster.launch(number, static=one_name)
    cluster.launch(2, static=one_name, run=True)
    for number in range(NODES):
        cluster.agents[number].wait_for_output(f"spans nodes (1 of its 3 ranks here): joined at {STORE}", 120.0)
    cluster.wait_for_steps(60)
    cluster.hang(2)
    found = cluster.wait_for_incidents()
    assert len({incident.id for incident in found}) == 1
    for incident in found:
        assert_licence_is_awaited(incident, 2)
        assert len(set(incident.job.nodes)) == NODES


def test_two_hosts_that_meet_by_name(cluster: Cluster) -> None:
    """The launchers give a name and no address, as with ``--rdzv-endpoint HOST``; both run under ``hangwatch run``."""
    cluster.exchange = None
    for number in (0, 1):
        cluster.launch(number, "--master-addr", "n0", nodes="2", static=True, run=True)
    for number in (0, 1):
        cluster.agents[number].wait_for_output(f"(1 of its 2 ranks here): joined at n0:{DEFAULT_PORT}", 120.0)
    cluster.wait_for_steps(60, ranks=2)
    cluster.hang(0)
    found = cluster.wait_for_incidents((0, 1))
    assert len({incident.id for incident in found}) == 1
    for incident in found:
        assert_licence_is_awaited(incident, 0)


def test_a_firewall_is_named_with_host_and_port(cluster: Cluster) -> None:
    """The port is closed to one of three nodes: it goes on by itself and says the repair, and the others are joined.

    Once it is open, all of them have the verdict.
    """
    cluster.exchange = None
    cluster.network[2].block(DEFAULT_PORT)
    cluster.start_agents()
    cluster.start_job()
    repair = (
        f"open port {DEFAULT_PORT} of 10.77.0.1 to this node, or name an open one on all nodes with --exchange tcp:PORT"
    )
    cluster.agents[2].wait_for_output(repair, 120.0)
    for number in (0, 1):
        cluster.agents[number].wait_for_output("joined at", 120.0)
    doctor = cluster.network[2].hangwatch("doctor")
    doctor.wait(120.0)
    assert f"the store at {STORE} is not reachable: timed out" in doctor.stdout()
    assert f"open its port {DEFAULT_PORT} to this node, or choose another port: --exchange tcp:PORT" in doctor.stdout()
    cluster.hang(1)
    found = cluster.wait_for_incidents((0, 1))
    for incident in found:
        assert_licence_is_awaited(incident, 1)
    (alone,) = cluster.wait_for_incidents((2,), warning=True)
    assert any(what.startswith("peer discovery: unreachable since") and repair in what for what in alone.missing)
    assert not alone.verdict.proven
    cluster.network[2].block(None)
    cluster.agents[2].wait_for_output("joined at", 120.0)
    wait_for(
        lambda: any(i.id == found[0].id for i in cluster.incidents(2)), 60.0, "the verdict of all on the third node"
    )


def test_one_agent_and_two_jobs_with_hosts_of_their_own(cluster: Cluster) -> None:
    """Two jobs over the same two nodes, with rank 0 on the one and on the other: two stores, and one verdict for one job."""
    cluster.exchange = None
    for number in (0, 1):
        cluster.start_agent(number)
    folders = [cluster.folder / name for name in ("one", "two")]
    for first, folder in enumerate(folders):
        folder.mkdir()
        for number in (0, 1):
            rank = (
                "--node-rank",
                str(number ^ first),
                "--master-addr",
                f"10.77.0.{first + 1}",
                "--master-port",
                "29600",
            )
            cluster.launch(number, *rank, nodes="2", static=True, folder=folder)
    for number in (0, 1):
        for first in (0, 1):
            cluster.agents[number].wait_for_output(f"joined at 10.77.0.{first + 1}:{DEFAULT_PORT}", 120.0)
    for folder in folders:
        wait_for_training(folder)
    (folders[1] / "hang-0").touch()
    found = cluster.wait_for_incidents((0, 1))
    assert len({incident.id for incident in found}) == 1
    for incident in found:
        assert incident.job.id == "10.77.0.2:29600"
        assert_licence_is_awaited(incident, 0)
