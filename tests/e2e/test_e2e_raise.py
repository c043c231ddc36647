"""``--on-hang raise``: the verdict is an exception in every rank that can be woken; where one cannot, the job is ended."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
from cluster import NODES, SECRET, Cluster
from watched_runs import ACT_AFTER_S, STALL_AFTER_S, assert_has_the_verdict, find_bundles, read_incident, torchrun

from hangwatch.model.errors import EXIT_STOPPED
from hangwatch.outputs.push.audit import read_audit
from support import JOBS, PROGRAMS, Job, JobRunner, find_free_port

pytestmark = pytest.mark.usefixtures("real")
_TIME_LIMIT_S = 150.0


def start(jobs: JobRunner, folder: Path, *arguments: str, program: str = "raising.py", max_restarts: int = 0) -> Job:
    """A job that hangs, under ``hangwatch run --on-hang raise``. torchrun copies its first error file to ``error.json``."""
    patience = ("--stall-after", str(STALL_AFTER_S), "--act-after", str(ACT_AFTER_S))
    options = ("--state-dir", folder / "state", *patience, "--on-hang", "raise")
    env = {"TORCHELASTIC_ERROR_FILE": str(folder / "error.json"), "SCRATCH": str(folder), "OMP_NUM_THREADS": "1"}
    launch = torchrun(JOBS / program, *arguments, max_restarts=max_restarts)
    return jobs.hangwatch("run", *options, "--", *launch, env=env)


def read_outcome(folder: Path) -> tuple[str, str]:
    """The verdict's sentence, and what the bundle says of the action."""
    (bundle,) = find_bundles(folder / "state")
    (taken,) = read_audit(bundle).actions
    assert taken.action == "raise"
    return read_incident(bundle).verdict.summary, taken.outcome


@pytest.mark.soak  # ``test_e2e_logs_specs.py`` has the one that most programs are in, all_reduce
@pytest.mark.parametrize("wait", ["all_gather", "barrier", "recv"])
def test_waits_of_gloo_end_with_the_verdict(jobs: JobRunner, tmp_path: Path, wait: str) -> None:
    """Whoever waits and whoever is waited for catch it, clean up to the end, and torchrun's error file has it as the reason."""
    job = start(jobs, tmp_path, wait)
    assert job.wait(_TIME_LIMIT_S) == 1, job.stderr()
    summary, outcome = read_outcome(tmp_path)
    assert outcome == "raised in ranks 0-1"
    assert_has_the_verdict(job, summary, tmp_path / "error.json")


@pytest.mark.usefixtures("long")
@pytest.mark.parametrize("wait", ["backward", pytest.param("wait", marks=pytest.mark.soak)])
def test_an_error_of_the_wait_itself_carries_the_verdict(jobs: JobRunner, tmp_path: Path, wait: str) -> None:
    """Between the wait of DDP, or ``work.wait()``, and the program nobody lets another exception through: the text has it."""
    job = start(jobs, tmp_path, wait)
    assert job.wait(_TIME_LIMIT_S) == 1, job.stderr()
    summary, outcome = read_outcome(tmp_path)
    assert outcome == "raised in ranks 0-1"
    assert "rank 0 has cleaned up 3" in job.stdout()
    (line,) = {
        one.partition("RuntimeError: ")[2] for one in job.stderr().splitlines() if "[rank0]: RuntimeError" in one
    }
    assert summary in line
    assert "[raised as RuntimeError: " in line


def _assert_ends_a_job_of_which_a_rank_does_not_wake(jobs: JobRunner, folder: Path, how: str) -> None:
    """Rank 0 raises, and after a grace the job is ended, which is said."""
    job = start(jobs, folder, how)
    assert job.wait(_TIME_LIMIT_S) == EXIT_STOPPED, job.stderr()
    _, outcome = read_outcome(folder)
    assert outcome.startswith("raised in rank 0; not in rank 1: ")
    assert outcome.endswith(("ended", "by SIGKILL"))
    assert "rank 0 has cleaned up 3" in job.stdout()
    assert "about to end the job instead" in job.stderr()


def test_a_rank_that_cannot_be_woken_ends_the_job(jobs: JobRunner, tmp_path: Path) -> None:
    """It is in a read."""
    _assert_ends_a_job_of_which_a_rank_does_not_wake(jobs, tmp_path, "blocked")


@pytest.mark.soak
@pytest.mark.parametrize("how", ["stopped", "gil"])
def test_whatever_keeps_a_rank_from_waking_the_job_ends(jobs: JobRunner, tmp_path: Path, how: str) -> None:
    """It is stopped, or holds the interpreter."""
    _assert_ends_a_job_of_which_a_rank_does_not_wake(jobs, tmp_path, how)


@pytest.mark.usefixtures("long")
def test_a_rank_that_torchrun_ends_is_said_to_have_ended(jobs: JobRunner, tmp_path: Path) -> None:
    """Rank 0 does not stay: torchrun ends the one that holds the interpreter before the grace is over. No more is done."""
    job = start(jobs, tmp_path, program=str(PROGRAMS / "gil_held.py"))
    assert job.wait(_TIME_LIMIT_S) == 1, job.stderr()
    summary, outcome = read_outcome(tmp_path)
    assert outcome == "raised in rank 0; rank 1 ended before reporting whether it raised"
    assert f"HangDetected: stall: {summary}" in job.stderr()


@pytest.mark.usefixtures("long")
def test_torchrun_restarts_a_job_of_which_a_rank_cannot_be_woken(jobs: JobRunner, tmp_path: Path) -> None:
    """With ``--max-restarts 1`` the ranks that remain are ended, and torchrun's second start of them succeeds."""
    job = start(jobs, tmp_path, "blocked", max_restarts=1)
    assert job.wait(_TIME_LIMIT_S) == 0, job.stderr()
    _, outcome = read_outcome(tmp_path)
    assert outcome.startswith("raised in rank 0; not in rank 1: ")
    assert outcome.endswith("torchrun restarts them (restart 1 of 1)")
    assert {"rank 0 has recovered", "rank 1 has recovered"} <= set(job.stdout().splitlines())


def test_the_cell_of_a_notebook_raises(jobs: JobRunner, tmp_path: Path) -> None:
    """accelerate's notebook_launcher forks the ranks from the process that runs the cells, which goes on with the next one."""
    patience = ("--stall-after", str(STALL_AFTER_S), "--act-after", str(ACT_AFTER_S))
    options = ("--state-dir", tmp_path / "state", *patience, "--on-hang", "raise")
    cells = (sys.executable, JOBS / "in_notebook.py", str(find_free_port()), str(find_free_port()))
    job = jobs.hangwatch("run", *options, "--", *cells)
    assert job.wait(_TIME_LIMIT_S) == 0, job.stderr()
    summary, outcome = read_outcome(tmp_path)
    assert "Rank 0 is blocked in all_reduce of default_pg because of rank 1" in summary
    assert "not in rank" not in outcome
    raised, _, rest = job.stdout().partition("the first cell raised ")[2].partition("the second cell is done")
    assert f"HangDetected: stall: {summary}" in raised
    assert rest == "\n"


def test_every_rank_of_several_hosts_is_reached(cluster: Cluster) -> None:
    """Each agent raises in its own rank, when the bundle is complete, and every exception has the verdict.

    The connections of those that raise first fail in the others: what these met is torch's error, and has it as its text.
    """
    cluster.exchange = None
    cluster.secret = SECRET
    cluster.run_options = ("--on-hang", "raise")
    cluster.start_receiver()
    env = {"SCRATCH": str(cluster.folder)}
    for number in range(NODES):
        cluster.launch(number, static=True, run=True, program=("raising.py", "all_reduce"), env=env)
    assert [cluster.agents[number].wait(_TIME_LIMIT_S) for number in range(NODES)] == [1] * NODES
    ids = set()
    for number, host in enumerate(cluster.nodes):
        job = cluster.agents[number]
        (bundle,) = find_bundles(host.state)
        incident = read_incident(bundle)
        ids.add(incident.id)
        assert incident.verdict.culprit_ranks == (1,)
        assert [one.outcome for one in read_audit(bundle).actions] == [f"raised in rank {number}"], job.stderr()
        assert f"rank {number} has cleaned up 3" in job.stdout()
        ends = [line for line in job.stderr().splitlines() if f"[rank{number}]: " in line and "Error: " in line]
        raised = [line for line in (*job.stdout().splitlines(), *ends) if incident.verdict.summary in line]
        assert raised, job.stdout() + job.stderr()
    assert len(ids) == 1


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
    assert outcome == "raised in ranks 0-1"
    assert f"fn_ex: HangDetected('stall: {summary}" in job.stderr()
    assert {"rank 0 finished in call 1", "rank 1 finished in call 1"} == set(job.stdout().splitlines())
