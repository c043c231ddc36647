"""``--on-hang restart`` on real jobs: who starts the ranks anew, what the job gets, and when it is stopped instead."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from watched_runs import find_bundles, read_incident, torchrun

from benchmarks.recovery import measure
from hangwatch.model.errors import EXIT_STOPPED
from hangwatch.model.incident import Incident
from hangwatch.outputs.push.audit import read_audit
from support import JOBS, Job, JobRunner, find_free_port

pytestmark = pytest.mark.usefixtures("real")

_PROGRAM = JOBS / "recovering.py"
_TIME_LIMIT_S = 150.0
_RANKS = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"}


class Restarted:
    """A job under ``run --on-hang restart``, from start to end."""

    def __init__(
        self, jobs: JobRunner, folder: Path, launcher: list[str], *options: str, run: tuple[str, ...] = ()
    ) -> None:
        self.folder, self.state = folder / "job", folder / "state"
        self.folder.mkdir()
        arguments = ("run", "--on-hang", "restart", "--state-dir", self.state, *run, "--")
        program = (str(_PROGRAM), "--folder", str(self.folder), *options)
        self.job: Job = jobs.hangwatch(*arguments, *launcher, *program, env=_RANKS)
        self.status = self.job.wait(_TIME_LIMIT_S)
        self.said = self.job.stderr()

    @property
    def starts(self) -> list[tuple[str, str]]:
        """For each start of rank 0 torchrun's count of restarts and hangwatch's, ``-`` where there was none."""
        lines = (self.folder / "starts-0").read_text().splitlines()
        return [(first, second) for first, second in (line.split() for line in lines)]

    @property
    def incidents(self) -> list[Incident]:
        """What was reported, in order."""
        return [read_incident(bundle) for bundle in find_bundles(self.state)]

    @property
    def actions(self) -> list[str]:
        """What was done about each incident."""
        return [" ".join(one.action for one in read_audit(bundle).actions) for bundle in find_bundles(self.state)]

    @property
    def checkpoint(self) -> str:
        """The last step that was saved."""
        return (self.folder / "checkpoint").read_text()


def _torchrun(*options: str) -> list[str]:
    command = list(torchrun(_PROGRAM))[:-1]
    return [*command, *options]


@pytest.mark.usefixtures("long")
def test_the_command_is_run_again_until_restarts_are_used_up(jobs: JobRunner, tmp_path: Path) -> None:
    """torchrun's own restarts are 0: the command is run again, as the same job, and is told the count; hangs have one history.

    After ``--max-restarts`` of its own hangwatch stops the job, with status 75.
    """
    run = Restarted(jobs, tmp_path, _torchrun(), "--hangs", "9", run=("--max-restarts", "1"))
    assert run.status == EXIT_STOPPED, run.said
    assert run.starts == [("0", "-"), ("0", "1")]
    assert run.actions == ["restart", "stop"]
    assert "all restarts are used up (--max-restarts 1)" in run.said
    first, second = run.incidents
    assert first.job.id == second.job.id
    assert first.history is not None
    assert second.history is not None
    assert second.history.before == (first.history.now,)
    assert (first.history.now.step, second.history.now.step) == (3, 4)
    assert second.history.restarts == 1
    said = " ".join(run.said.split())
    assert "Second hang of this job (step 4), after 1 restart; the first had the same culprits (step 3)." in said


def _assert_is_run_again(jobs: JobRunner, folder: Path, launcher: str) -> None:
    """The launcher ends when its ranks do; the command is run again at the same port."""
    port = str(find_free_port())
    if launcher == "accelerate":
        # --cpu would start one process only, unless there is MPI. The program asks for the CPU itself.
        command = ["-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--num_machines", "1"]
        command += ["--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", port]
    elif launcher == "plain":
        command = [str(JOBS / "spawning.py"), port]
    else:
        command = ["-m", "deepspeed.launcher.runner", "--num_gpus", "2", "--master_port", port]
    run = Restarted(jobs, folder, [sys.executable, *command])
    assert run.status == 0, run.said
    assert [count for _, count in run.starts] == ["-", "1"]
    assert run.checkpoint == "8"
    assert run.actions == ["restart"]


@pytest.mark.parametrize("launcher", ["accelerate", pytest.param("deepspeed", marks=pytest.mark.soak)])
def test_other_launchers_are_run_again(jobs: JobRunner, tmp_path: Path, launcher: str) -> None:
    """Those that README shows."""
    _assert_is_run_again(jobs, tmp_path, launcher)


@pytest.mark.soak
def test_a_script_that_spawns_its_ranks_is_run_again(jobs: JobRunner, tmp_path: Path) -> None:
    """By ``mp.spawn``."""
    _assert_is_run_again(jobs, tmp_path, "plain")


def test_a_proven_deadlock_that_comes_again_stops_the_job(jobs: JobRunner, tmp_path: Path) -> None:
    """At the same line in the same step, twice: one restart, then status 75, and the reason is said and kept.

    As torchrun restarts by itself (``--max-restarts 9``), the ranks alone are ended for it, and hangwatch runs nothing.
    """
    run = Restarted(jobs, tmp_path, _torchrun("--max-restarts", "9"), "--hangs", "9", "--again")
    assert run.status == EXIT_STOPPED, run.said
    assert run.starts == [("0", "-"), ("1", "-")]
    assert run.actions == ["restart", "stop"]
    assert "torchrun restarts them (restart 1 of 9)" in run.said
    assert "running " not in run.said
    assert "the job is stopped instead: proven deadlock at jobs/recovering.py:" in run.said
    assert "it will happen again" in run.said
    (last,) = read_audit(find_bundles(run.state)[-1]).actions
    assert "will happen again" in last.outcome
    assert [process for process in run.job.members() if process.is_running()] == []


@pytest.mark.usefixtures("long")
def test_a_job_that_is_submitted_again_has_its_history(jobs: JobRunner, tmp_path: Path) -> None:
    """A second ``run`` of the same name counts on; its command learns of it, and of the restart that it is run beside.

    The deadlock is at the same line in the same step, but between the two somebody may have changed the program.
    """
    told = tmp_path / "told"
    for action in ("stop", f"restart,exec:env > {told}"):
        options = ("--job", "nightly", "--on-hang", action, "--state-dir", tmp_path / "state", "--")
        command = _torchrun("--max-restarts", "1", str(_PROGRAM), "--folder", str(tmp_path), "--hangs", "2", "--again")
        job = jobs.hangwatch("run", *options, *command, env=_RANKS)
        status = job.wait(_TIME_LIMIT_S)
        assert status == (EXIT_STOPPED if action == "stop" else 0), job.stderr()
    assert "Second hang of this job (step 3); the first had the same culprits" in job.stderr()
    given = dict(line.split("=", 1) for line in told.read_text().splitlines() if "=" in line)
    assert (given["HANGWATCH_HANGS"], given["HANGWATCH_RESTARTS"], given["HANGWATCH_ACTION"]) == ("2", "0", "restart")
    (taken,) = read_audit(find_bundles(tmp_path / "state")[-1]).actions
    assert taken.outcome.endswith("torchrun restarts them (restart 1 of 1); the command ended with status 0")


@pytest.mark.soak
def test_a_trainer_recovers() -> None:
    """It hangs once, resumes from its checkpoint, goes on beyond the step it hung after, and ends with status 0."""
    found = measure("torchrun", "--stall-after", "6", "--act-after", "2").recovery
    assert found is not None
    assert found.resumed_step <= found.hung_after + 1  # it may hang right after a checkpoint
    assert found.confirmed_s < found.resumed_s <= found.new_step_s
