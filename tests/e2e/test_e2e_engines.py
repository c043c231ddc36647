"""Jobs that wait, and rightly so, for what is no rank of theirs: an inference engine beside trainers, work for an engine."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from watched_runs import STALL_AFTER_S, find_bundles, read_incident

from hangwatch.model.incident import HANG_KINDS
from scenarios.catalogue import PROGRAMS
from support import Job, JobRunner, wait_for

WEIGHTS = PROGRAMS / "several_worlds" / "weights_to_an_engine.py"
IDLE = PROGRAMS / "serving" / "idle_engine.py"


def watch(jobs: JobRunner, state: Path, program: Path, *arguments: str) -> Job:
    """A program under ``hangwatch run`` that would end it where it finds a hang."""
    options = ("--on-hang", "stop", "--stall-after", str(STALL_AFTER_S))
    return jobs.hangwatch(
        "run", *options, "--", sys.executable, str(program), *arguments, env={"HANGWATCH_STATE_DIR": str(state)}
    )


@pytest.mark.parametrize(
    ("program", "arguments"),
    [
        (WEIGHTS, ("--late", "update", "--seconds", "9")),
        (WEIGHTS, ("--late", "start", "--seconds", "20")),
        (IDLE, ("--idle", "20")),
    ],
    ids=["weights-taken-late", "engine-joins-late", "engine-without-requests"],
)
def test_a_job_that_awaits_others_comes_to_its_end(
    jobs: JobRunner, tmp_path: Path, program: Path, arguments: tuple[str, ...]
) -> None:
    """Nothing is called a hang, nothing is ended, and the job succeeds by itself."""
    job = watch(jobs, tmp_path / "state", program, *arguments)
    assert job.wait(120.0) == 0, job.stderr()
    incidents = [read_incident(bundle) for bundle in find_bundles(tmp_path / "state")]
    assert not {one.verdict.kind for one in incidents} & set(HANG_KINDS)
    assert all(not one.verdict.proven and not one.verdict.culprit_ranks for one in incidents)
    assert "ending the job" not in job.stderr()


@pytest.mark.usefixtures("long")
def test_an_engine_that_never_comes_is_no_fault_of_a_trainer(jobs: JobRunner, tmp_path: Path) -> None:
    """The trainers are left alone, a warning says whom they wait for, and no rank is blamed."""
    state = tmp_path / "state"
    job = watch(jobs, state, WEIGHTS, "--late", "update", "--seconds", "3600")
    bundle = wait_for(lambda: next(iter(find_bundles(state)), None), 90.0, "a warning")
    found = read_incident(bundle).verdict
    assert (found.kind, found.severity, found.proven, found.culprit_ranks) == ("straggler", "warning", False, ())
    assert "group weights" in found.summary
    assert job.process.poll() is None


def test_a_worker_that_reads_in_the_middle_of_a_request_is_found(jobs: JobRunner, tmp_path: Path) -> None:
    """The same engine hangs where worker 0 reads its queue once more: it is named, and the job ended."""
    job = watch(jobs, tmp_path / "state", IDLE, "--stuck-at", "request 3")
    assert job.wait(90.0) != 0
    found = [read_incident(bundle).verdict for bundle in find_bundles(tmp_path / "state")]
    assert [(one.kind, one.culprit_ranks) for one in found] == [("stall", (0,))]
