"""``--on-hang raise``: the verdict is an exception in every rank that can be woken; where one cannot, the job is ended."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from watched_runs import STALL_AFTER_S, find_bundles, read_incident, torchrun

from hangwatch.config.errors import EXIT_STOPPED
from hangwatch.outputs.push.audit import read_audit
from support import JOBS, Job, JobRunner, find_free_port

pytestmark = pytest.mark.usefixtures("real")
_TIME_LIMIT_S = 150.0


def start(jobs: JobRunner, folder: Path, *arguments: str, program: str = "raising.py", max_restarts: int = 0) -> Job:
    """A job that hangs, under ``hangwatch run --on-hang raise``. torchrun copies its first error file to ``error.json``."""
    options = ("--state-dir", folder / "state", "--stall-after", str(STALL_AFTER_S), "--on-hang", "raise")
    env = {"TORCHELASTIC_ERROR_FILE": str(folder / "error.json"), "SCRATCH": str(folder), "OMP_NUM_THREADS": "1"}
    launch = torchrun(JOBS / program, *arguments, max_restarts=max_restarts)
    return jobs.hangwatch("run", *options, "--", *launch, env=env)


def read_outcome(folder: Path) -> tuple[str, str]:
    """The verdict's sentence, and what the bundle says of the action."""
    (bundle,) = find_bundles(folder / "state")
    (taken,) = read_audit(bundle).actions
    assert taken.action == "raise"
    return read_incident(bundle).verdict.summary, taken.outcome


@pytest.mark.parametrize("wait", ["all_reduce", "all_gather", "barrier", "recv"])
def test_a_wait_of_gloo_ends_with_the_verdict(jobs: JobRunner, tmp_path: Path, wait: str) -> None:
    """Whoever waits and whoever is waited for catch it, clean up to the end, and torchrun's error file has it as the reason."""
    job = start(jobs, tmp_path, wait)
    assert job.wait(_TIME_LIMIT_S) == 1, job.stderr()
    summary, outcome = read_outcome(tmp_path)
    assert outcome == "raised in rank 0-1"
    lines = job.stdout().splitlines()
    for rank in (0, 1):
        (caught,) = [line for line in lines if line.startswith(f"rank {rank} caught: ")]
        assert summary in caught
        assert f"rank {rank} has cleaned up 3" in lines
    reason = (tmp_path / "error.json").read_text()
    assert "HangDetected" in reason
    assert summary.split(":")[0] in reason


def test_an_error_of_a_backward_carries_the_verdict(jobs: JobRunner, tmp_path: Path) -> None:
    """Between DDP's wait and the program there is nobody of torch's who would let another exception through: the text has it."""
    job = start(jobs, tmp_path, "backward")
    assert job.wait(_TIME_LIMIT_S) == 1, job.stderr()
    summary, outcome = read_outcome(tmp_path)
    assert outcome == "raised in rank 0-1"
    assert "rank 0 has cleaned up 3" in job.stdout()
    (line,) = {
        one.partition("RuntimeError: ")[2] for one in job.stderr().splitlines() if "[rank0]: RuntimeError" in one
    }
    assert summary in line
    assert "[raised as RuntimeError: " in line


@pytest.mark.parametrize("how", ["stopped", "blocked"])
def test_a_rank_that_cannot_be_woken_ends_the_job(jobs: JobRunner, tmp_path: Path, how: str) -> None:
    """Stopped, or in a read: rank 0 raises, and after a grace the job is ended, which is said."""
    job = start(jobs, tmp_path, how)
    assert job.wait(_TIME_LIMIT_S) == EXIT_STOPPED, job.stderr()
    _, outcome = read_outcome(tmp_path)
    assert outcome.startswith("raised in rank 0; not in rank 1: ")
    assert outcome.endswith(("process(es) ended", "by SIGKILL"))
    assert "rank 0 has cleaned up 3" in job.stdout()
    assert "about to end the job instead" in job.stderr()


def test_torchrun_restarts_a_job_of_which_a_rank_cannot_be_woken(jobs: JobRunner, tmp_path: Path) -> None:
    """With ``--max-restarts 1`` the ranks that remain are ended, and torchrun's second start of them succeeds."""
    job = start(jobs, tmp_path, "blocked", max_restarts=1)
    assert job.wait(_TIME_LIMIT_S) == 0, job.stderr()
    _, outcome = read_outcome(tmp_path)
    assert outcome.startswith("raised in rank 0; not in rank 1: ")
    assert outcome.endswith("torchrun restarts them (restart 1 of its 1)")
    assert {"rank 0 has recovered", "rank 1 has recovered"} <= set(job.stdout().splitlines())


@pytest.mark.usefixtures("long")
@pytest.mark.skipif(
    importlib.util.find_spec("nvidia_resiliency_ext") is None,
    reason="nvidia-resiliency-ext is no part of this environment: make test-long installs it",
)
def test_an_in_process_restart_goes_on_in_the_same_processes(jobs: JobRunner, tmp_path: Path) -> None:
    """NVIDIA's library catches the verdict in both ranks, cleans up, and calls the function again, which succeeds."""
    job = start(jobs, tmp_path, str(tmp_path), str(find_free_port()), program="in_process_restart.py")
    assert job.wait(_TIME_LIMIT_S) == 0, job.stderr()
    summary, outcome = read_outcome(tmp_path)
    assert outcome == "raised in rank 0-1"
    assert f"fn_ex: HangDetected('stall: {summary}" in job.stderr()
    assert {"rank 0 finished in call 1", "rank 1 finished in call 1"} == set(job.stdout().splitlines())
