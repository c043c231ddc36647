"""Jobs the agent has nothing in common with: in a container's namespaces, and of another user."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from nodes import WITH_VARIABLES
from watched_runs import find_bundles, read_incident

from hangwatch.demos import find_scenario
from hangwatch.model.incident import Incident
from support import SOURCE_ROOT, Job, JobRunner, wait_for

_HANGWATCH = f"{sys.executable} -m hangwatch"
_AGENT_USER, _JOB_USER = 64997, 64998
_NAMESPACES = ("unshare", "--mount", "--pid", "--fork", "--mount-proc")


@pytest.fixture(autouse=True)  # made before the jobs of a test, so that it outlives them
def away() -> Iterator[Path]:
    """A short path for a folder."""
    with tempfile.TemporaryDirectory(prefix="away-") as folder:
        yield Path(folder)


def _incident_of(state: Path, job: Job) -> Incident | None:
    """The incident of this job: the agent watches the whole node, and others may work on it."""
    pids = {process.pid for process in job.members()}
    incidents = (read_incident(bundle) for bundle in find_bundles(state))
    return next((one for one in incidents if {entry.pid for entry in one.ranks} <= pids), None)


def _check(incident: Incident) -> None:
    """The whole verdict, with the recorder and the stacks it takes."""
    assert (incident.verdict.kind, incident.verdict.proven) == ("deadlock", True)
    assert incident.verdict.cause is not None
    assert incident.verdict.cause.id == "group-order-inversion"
    assert incident.captured["flight_recorder"]
    assert incident.captured["stacks"]
    assert incident.captured["beats"]
    assert incident.verdict.divergence is not None
    assert incident.verdict.divergence.culprit is not None
    assert incident.verdict.divergence.culprit.source, "the source of the line is read as the process sees it"


@pytest.mark.usefixtures("long")
@pytest.mark.skipif(os.geteuid() != 0, reason="makes namespaces and changes users, which takes root")
def test_a_job_in_a_container_is_seen_from_the_node(jobs: JobRunner, away: Path, tmp_path: Path) -> None:
    """Its own PIDs, its own mounts, beats and sockets on a file system that only it sees: the verdict is the same."""
    scenario = find_scenario("group-order")
    assert scenario is not None
    script = Path(shutil.copy(scenario.path, away / "train.py"))
    inside = away / "inside"
    inside.mkdir()
    shell = (
        f'set -e; mount -t tmpfs none "{inside}"; mv "{script}" "{inside}"; export TMPDIR="{inside}"; '
        f'variables="$({_HANGWATCH} env)"; eval "$variables"; exec "$@"'
    )
    launch = [str(inside / "train.py") if word == str(scenario.path) else word for word in scenario.command()]
    environment = {**scenario.full_environment(), "PYTHONPATH": str(SOURCE_ROOT)}
    agent = jobs.hangwatch("agent", "--state-dir", tmp_path, "--listen", ":0", env={"TMPDIR": str(away)})
    agent.wait_for_output("watching this node")
    job = jobs.start([*_NAMESPACES, "sh", "-c", shell, "sh", *launch], env=environment)
    incident = wait_for(lambda: _incident_of(tmp_path, job), 90.0, "its incident", poll_s=0.2)
    assert incident is not None
    assert not (inside / "train.py").exists(), "the script is to be seen in there alone"
    _check(incident)


def _as_user(uid: int, *capabilities: str) -> list[str]:
    """A command that runs another one as a user with these capabilities and no others."""
    caps = ",".join(f"+{name}" for name in capabilities)
    return [
        "setpriv",
        f"--reuid={uid}",
        f"--regid={uid}",
        "--clear-groups",
        f"--inh-caps={caps}",
        f"--ambient-caps={caps}",
    ]


@pytest.mark.usefixtures("long")
@pytest.mark.skipif(os.geteuid() != 0, reason="makes namespaces and changes users, which takes root")
def test_a_job_of_another_user_is_seen_with_the_rights_of_the_unit(jobs: JobRunner, away: Path, tmp_path: Path) -> None:
    """A user's job with the environment of ``hangwatch env``, and an agent of a user with the unit's capabilities alone."""
    scenario = find_scenario("group-order")
    assert scenario is not None
    away.chmod(0o755)
    homes = {uid: away / str(uid) for uid in (_AGENT_USER, _JOB_USER)}
    for uid, home in homes.items():
        home.mkdir(mode=0o700)
        os.chown(home, uid, uid)
    unit = (SOURCE_ROOT.parent / "systemd" / "hangwatch.service").read_text().splitlines()
    granted = next(line for line in unit if line.startswith("AmbientCapabilities="))
    rights = [name.removeprefix("CAP_").lower() for name in granted.partition("=")[2].split()]

    agent_command = f"exec {_HANGWATCH} agent --state-dir {homes[_AGENT_USER]}/state --listen :0"
    agent = jobs.start(
        [*_as_user(_AGENT_USER, *rights), "sh", "-c", agent_command],
        env={"PYTHONPATH": str(SOURCE_ROOT), "TMPDIR": str(homes[_AGENT_USER]), "HOME": str(homes[_AGENT_USER])},
    )
    agent.wait_for_output("watching this node")
    job = jobs.start(
        # The interpreter of the suite may lie where this user may not go.
        [*_as_user(_JOB_USER, "dac_read_search"), *WITH_VARIABLES, *scenario.command()],
        env={
            **scenario.full_environment(),
            "PYTHONPATH": str(SOURCE_ROOT),
            "TMPDIR": str(homes[_JOB_USER]),
            "HOME": str(homes[_JOB_USER]),
        },
        cwd=homes[_JOB_USER],
    )
    wait_for(lambda: len(job.ranks()) == 2, 60.0, "both ranks")
    assert {process.uids().effective for process in job.ranks().values()} == {_JOB_USER}
    incident = wait_for(lambda: _incident_of(homes[_AGENT_USER] / "state", job), 90.0, "its incident", poll_s=0.2)
    assert incident is not None
    _check(incident)
