"""Hangs that real libraries make by their own loops and processes, and the same programs where they end well."""

from __future__ import annotations

from pathlib import Path

import pytest
from watched_runs import find_bundles, read_incident, torchrun

from hangwatch.model.errors import EXIT_STOPPED
from hangwatch.model.incident import HANG_KINDS, Incident
from support import JOBS, JobRunner

pytestmark = pytest.mark.usefixtures("long")
_LIMIT_S = 180.0


def stopped(jobs: JobRunner, folder: Path, program: str, *arguments: str) -> Incident:
    """The incident for which hangwatch has stopped a job."""
    options = ("--stall-after", "5", "--act-after", "2", "--on-hang", "stop", "--state-dir", folder / "state")
    job = jobs.hangwatch("run", *options, "--", *torchrun(JOBS / program, *arguments))
    assert job.wait(_LIMIT_S) == EXIT_STOPPED, job.stderr()
    return read_incident(find_bundles(folder / "state")[-1])


def test_workers_of_a_data_set_that_wait_for_threads_of_their_parent(jobs: JobRunner, tmp_path: Path) -> None:
    """The parent polls a manager's queue: that is no progress, and its workers make none."""
    found = stopped(jobs, tmp_path, "mapping.py").verdict
    assert (found.kind, found.culprit_ranks, found.waiting_ranks) == ("stall", (0,), (1,))
    assert found.cause is not None
    assert found.cause.id == "fork-deadlock"
    assert "encode (" in found.cause.explanation


def test_workers_of_a_data_set_that_go_on(jobs: JobRunner, tmp_path: Path) -> None:
    """The same program without OpenMP in its workers ends by itself, and is never called a hang."""
    job = jobs.hangwatch(
        "run", "--stall-after", "5", "--state-dir", tmp_path / "state", "--", *torchrun(JOBS / "mapping.py", "safely")
    )
    assert job.wait(_LIMIT_S) == 0, job.stderr()
    assert not any(read_incident(one).verdict.kind in HANG_KINDS for one in find_bundles(tmp_path / "state"))
