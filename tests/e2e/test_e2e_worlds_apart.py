"""Trainers on one host and the engine that they feed on another: their agents meet where these have met."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from cluster import Cluster

from hangwatch.config.directories import probe_environment
from hangwatch.model.incident import Incident
from support import JOBS, Job, wait_for

ADDRESS = "tcp://10.77.0.1:41000"
TRAINERS, ENGINE = 0, 1


def start(cluster: Cluster, number: int, *launcher: str, role: str) -> Job:
    """One side of the job, with the probe's environment."""
    host = cluster.network[number]
    program = (str(JOBS / "worlds_apart.py"), str(cluster.folder), ADDRESS, "--role", role)
    run_dir = host.home / "tmp" / "hangwatch-0" / "node"
    for folder in (run_dir.parent, run_dir, run_dir / "ranks"):
        folder.mkdir(mode=0o700, exist_ok=True)  # as `hangwatch env` does
    return host.start(sys.executable, *launcher, *program, env=probe_environment(run_dir, {}))


def start_trainers(cluster: Cluster) -> Job:
    """Two, by torchrun, on the first host alone: they do not span nodes."""
    return start(
        cluster, TRAINERS, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", role="trainer"
    )


def wait_for_updates(folder: Path, more: int = 20) -> None:
    """Wait until both workers have taken so many more updates."""
    files = [folder / f"update-{rank}" for rank in (0, 1)]
    read = lambda: [int(f.read_text() or 0) if f.exists() else 0 for f in files]  # noqa: E731
    before = read()
    wait_for(lambda: all(now >= then + more for now, then in zip(read(), before, strict=True)), 120.0, "updates")


def culprits(incident: Incident) -> tuple[str, ...]:
    """By name, where they have one."""
    names = incident.verdict.names
    return tuple(names.get(rank, str(rank)) for rank in incident.verdict.culprit_ranks)


def start_agents(cluster: Cluster) -> None:
    """An agent on each host, with no option."""
    cluster.exchange = None
    for number in (TRAINERS, ENGINE):
        cluster.start_agent(number)


@pytest.fixture
def worlds(cluster: Cluster) -> Cluster:
    """Both sides at work, and agents that have met. How long a side takes to start is no matter of these tests."""
    start_trainers(cluster)
    start(cluster, ENGINE, role="engine")
    wait_for_updates(cluster.folder)
    start_agents(cluster)
    wait_until_joined(cluster)
    return cluster


def wait_until_joined(cluster: Cluster) -> None:
    """Wait until each agent says that it has joined the other."""
    for number, here in ((TRAINERS, 2), (ENGINE, 0)):
        said = f"shares a group with other nodes ({here} of its 2 ranks here): joined at 10.77.0.1:29717"
        cluster.agents[number].wait_for_output(said, 120.0)


def test_an_engine_that_hangs_on_another_host_is_named(worlds: Cluster) -> None:
    """Its worker reads a pipe that nobody writes to: both hosts have the one incident, with its line."""
    (worlds.folder / "hang-engine").touch()
    for incident in worlds.wait_for_incidents((TRAINERS, ENGINE)):
        verdict = incident.verdict
        assert culprits(incident) == ("engine/1",)
        assert verdict.kind == "stall", "the other worker of the engine waits for it, too"
        assert not verdict.proven
        assert verdict.cause is not None
        assert verdict.cause.id == "blocked-io"
        assert {0, 1} <= set(verdict.waiting_ranks)


def test_a_trainer_that_hangs_is_named_to_the_engines_host(worlds: Cluster) -> None:
    """Trainer 1 holds up trainer 0, and so the engine: it is rank 1, and not worker 1."""
    (worlds.folder / "hang-trainer").touch()
    for incident in worlds.wait_for_incidents((TRAINERS, ENGINE)):
        assert incident.verdict.culprit_ranks == (1,)
        assert incident.verdict.kind == "stall"
        assert not incident.verdict.proven
        assert {incident.verdict.names.get(rank, str(rank)) for rank in incident.verdict.waiting_ranks} >= {
            "0",
            "engine/0",
        }


def test_an_engine_that_is_late_is_a_warning_that_ends(worlds: Cluster) -> None:
    """It answers a prompt for longer than the patience, and then goes on: nothing is called a hang."""
    (worlds.folder / "late").touch()
    found = worlds.wait_for_incidents((TRAINERS, ENGINE), warning=True)
    assert {incident.verdict.kind for incident in found} == {"straggler"}
    named = {culprits(incident) for incident in found}  # on a loaded machine one of the two is there before the other
    assert all(one and set(one) <= {"engine/0", "engine/1"} for one in named), named
    (worlds.folder / "late").unlink()
    wait_for_updates(worlds.folder)
    wait_for(lambda: all(worlds.incidents(n)[0].ended_at for n in (TRAINERS, ENGINE)), 60.0, "the warning to be over")
    assert all(len(worlds.incidents(n)) == 1 for n in (TRAINERS, ENGINE))


def test_nothing_is_proven_where_an_agent_is_missing(worlds: Cluster) -> None:
    """The engine's agent is gone when it hangs: who is at the other end is not known, and nobody is blamed for it."""
    worlds.agents[ENGINE].end()
    (worlds.folder / "hang-engine").touch()
    (incident,) = worlds.wait_for_incidents((TRAINERS,), warning=True)
    assert not incident.verdict.proven
    assert incident.verdict.kind == "straggler"
    assert not {0, 1} & set(incident.verdict.culprit_ranks)


@pytest.mark.soak
def test_an_engine_that_never_comes(cluster: Cluster) -> None:
    """It was never started: trainer 0 waits in the rendezvous for somebody outside, and no trainer is blamed."""
    start_agents(cluster)
    start_trainers(cluster)
    (incident,) = cluster.wait_for_incidents((TRAINERS,), warning=True)
    assert not incident.verdict.proven
    assert incident.verdict.kind == "straggler"
    assert incident.verdict.culprit_ranks == ()
