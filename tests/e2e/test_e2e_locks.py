"""A job that waits for a lock file: as long as another job has it, that is a wait; one that nobody has is a hang."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest
from watched_runs import find_bundles, read_incident, torchrun

from hangwatch.model.errors import EXIT_STOPPED
from hangwatch.model.incident import HANG_KINDS
from hangwatch.outputs.push.audit import read_audit
from support import JOBS, Job, JobRunner, wait_for

pytestmark = pytest.mark.usefixtures("real")
_LIMIT_S = 120.0


def start(jobs: JobRunner, folder: Path, kind: str) -> tuple[Job, Job]:
    """One that has the lock, and a job that waits for it and would be stopped for a hang of 3 s."""
    (folder / "cache").mkdir()
    program = (str(JOBS / "locking.py"), str(folder / "cache"), kind)
    maker = jobs.start([sys.executable, *program])
    maker.wait_for_output("making", _LIMIT_S)
    options = ("--stall-after", "3", "--act-after", "2", "--on-hang", "stop", "--state-dir", folder / "state")
    return maker, jobs.hangwatch("run", *options, "--", *torchrun(Path(program[0]), *program[1:]))


@pytest.mark.parametrize("kind", ["baton", pytest.param("filelock", marks=pytest.mark.soak)])
def test_a_lock_that_another_job_has_is_waited_for(jobs: JobRunner, tmp_path: Path, kind: str) -> None:
    """The verdict is a warning that names the file and who has it; once that is done, both jobs succeed."""
    maker, job = start(jobs, tmp_path, kind)
    (bundle,) = wait_for(lambda: find_bundles(tmp_path / "state"), _LIMIT_S, "the warning")
    found = read_incident(bundle).verdict
    assert found.kind not in HANG_KINDS
    assert found.cause is not None
    assert found.cause.id == "blocked-io"
    assert f"lock held by {maker.pid} " in found.cause.explanation
    (tmp_path / "cache" / "made").touch()
    assert maker.wait(_LIMIT_S) == 0
    assert job.wait(_LIMIT_S) == 0, job.stderr()
    assert read_audit(bundle).actions == ()


def test_a_lock_that_nobody_has_is_a_hang(jobs: JobRunner, tmp_path: Path) -> None:
    """Whoever had it was killed, and the file is there still."""
    maker, job = start(jobs, tmp_path, "baton")
    (bundle,) = wait_for(lambda: find_bundles(tmp_path / "state"), _LIMIT_S, "the warning")
    maker.send(signal.SIGKILL)
    assert job.wait(_LIMIT_S) == EXIT_STOPPED, job.stderr()
    found = read_incident(bundle).verdict
    assert (found.kind, found.culprit_ranks) == ("stall", (0, 1))
    assert [one.action for one in read_audit(bundle).actions] == ["stop"]


def test_a_lock_that_a_rank_keeps_through_a_collective_is_a_deadlock(jobs: JobRunner, tmp_path: Path) -> None:
    """The other rank needs the lock to come to that collective."""
    (tmp_path / "cache").mkdir()
    options = ("--stall-after", "3", "--act-after", "2", "--on-hang", "stop", "--state-dir", tmp_path / "state")
    job = jobs.hangwatch("run", *options, "--", *torchrun(JOBS / "locking.py", str(tmp_path / "cache"), "across"))
    assert job.wait(_LIMIT_S) == EXIT_STOPPED, job.stderr()
    (bundle,) = find_bundles(tmp_path / "state")
    found = read_incident(bundle).verdict
    assert found.cause is not None
    assert (found.kind, len(found.culprit_ranks), found.cause.id) == ("stall", 1, "blocked-io")
    assert "neither can go on" in found.cause.explanation
