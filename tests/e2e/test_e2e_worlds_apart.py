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


def wait_until_joined(cluster: Cluster) -> None:
    """Wait until each agent says that it has joined the other."""
    for number, here in ((TRAINERS, 2), (ENGINE, 0)):
        said = f"shares a group with other nodes ({here} of its 2 ranks here): joined at 10.77.0.1:29717"
        cluster.agents[number].wait_for_output(said, 120.0)


def wait_until_over(cluster: Cluster) -> set[str]:
    """Wait until both sides go on, and until all that was said of them is over; the ids of these incidents."""
    wait_for_updates(cluster.folder)
    both = lambda: [incident for n in (TRAINERS, ENGINE) for incident in cluster.incidents(n)]  # noqa: E731
    wait_for(lambda: all(incident.ended_at for incident in both()), 60.0, "the incidents to be over")
    return {incident.id for incident in both()}


def let_go(folder: Path, role: str) -> None:
    """Have a side that hangs go on: what it reads comes to its end."""
    (folder / f"hang-{role}").unlink()
    with (folder / f"pipe-{role}").open("w"):
        pass
    (folder / f"pipe-{role}").unlink()


def test_whoever_hangs_is_named_on_both_hosts(cluster: Cluster) -> None:
    """An engine that is late, a trainer that hangs, an engine that hangs, and one that hangs where nobody sees it."""
    start_trainers(cluster)
    start(cluster, ENGINE, role="engine")
    wait_for_updates(cluster.folder)
    start_agents(cluster)
    wait_until_joined(cluster)
    known = _late(cluster)
    known |= _trainer(cluster, known)
    known |= _engine(cluster, known)
    _unseen(cluster, known)


def _late(cluster: Cluster) -> set[str]:
    """It answers a prompt for longer than the patience, and then goes on: a warning that ends, and nothing is called a hang."""
    (cluster.folder / "late").touch()
    found = cluster.wait_for_incidents((TRAINERS, ENGINE), warning=True)
    assert {incident.verdict.kind for incident in found} == {"straggler"}
    named = {culprits(incident) for incident in found}  # on a loaded machine one of the two is there before the other
    assert all(one and set(one) <= {"engine/0", "engine/1"} for one in named), named
    (cluster.folder / "late").unlink()
    known = wait_until_over(cluster)
    assert all(len(cluster.incidents(n)) == 1 for n in (TRAINERS, ENGINE))
    return known


def _trainer(cluster: Cluster, known: set[str]) -> set[str]:
    """Trainer 1 holds up trainer 0, and so the engine: it is rank 1, and not worker 1."""
    (cluster.folder / "hang-trainer").touch()
    for incident in cluster.wait_for_incidents((TRAINERS, ENGINE), known=known):
        assert incident.verdict.culprit_ranks == (1,)
        assert incident.verdict.kind == "stall"
        assert not incident.verdict.proven
        assert {incident.verdict.names.get(rank, str(rank)) for rank in incident.verdict.waiting_ranks} >= {
            "0",
            "engine/0",
        }
    let_go(cluster.folder, "trainer")
    return wait_until_over(cluster)


def _engine(cluster: Cluster, known: set[str]) -> set[str]:
    """Its worker reads a pipe that nobody writes to: both hosts have the one incident, with its line."""
    (cluster.folder / "hang-engine").touch()
    for incident in cluster.wait_for_incidents((TRAINERS, ENGINE), known=known):
        verdict = incident.verdict
        assert culprits(incident) == ("engine/1",)
        assert verdict.kind == "stall", "the other worker of the engine waits for it, too"
        assert not verdict.proven
        assert verdict.cause is not None
        assert verdict.cause.id == "blocked-io"
        assert {0, 1} <= set(verdict.waiting_ranks)
    let_go(cluster.folder, "engine")
    return wait_until_over(cluster)


def _unseen(cluster: Cluster, known: set[str]) -> None:
    """The engine's agent is gone when it hangs: who is at the other end is not known, and nobody is blamed for it."""
    cluster.agents[ENGINE].end()
    (cluster.folder / "hang-engine").touch()
    (incident,) = cluster.wait_for_incidents((TRAINERS,), warning=True, known=known)
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
