"""The agent is killed at any moment: the job trains on to its own end, with its own result, as if nobody had watched."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from watched_runs import command_of, torchrun

from support import JOBS, Job, JobRunner, is_alive, wait_for

#: The launcher's status is written by a shell above it: once its agent is gone, nobody else can ask for it.
_SHELL = ("sh", "-c", '"$@"; echo $? > "$0"')


def _launched(job: Job) -> bool:
    return any(command_of(process)[1:3] == ["-m", "torch.distributed.run"] for process in job.members())


def _looking(job: Job) -> bool:
    """The agent has a stack reader at work just now."""
    try:
        readers = psutil.Process(job.pid).children()
    except psutil.Error:
        return False
    return any(Path((command_of(process) or [""])[0]).name == "py-spy" for process in readers)


_RANDOM_STEP = random.randrange(2, 40)

_MOMENTS: dict[str, Callable[[Job], bool]] = {
    "launcher-started": _launched,
    "before-torch-is-loaded": lambda job: "started" in job.stdout(),
    "during-a-look": _looking,
    "any-step": lambda job: f"step {_RANDOM_STEP}:" in job.stdout(),
}


def _check_survival(jobs: JobRunner, tmp_path: Path, undisturbed: str, moment: str) -> None:
    status = tmp_path / "status"
    command = (*_SHELL, str(status), *torchrun(JOBS / "training.py"))
    job = jobs.hangwatch("run", "--state-dir", tmp_path / "state", "--", *command)
    wait_for(lambda: _MOMENTS[moment](job), 60.0, f"{moment} (step {_RANDOM_STEP})", poll_s=0.002)
    assert not status.exists()
    job.send(signal.SIGKILL)
    assert job.wait() == -signal.SIGKILL

    wait_for(lambda: not any(is_alive(process) for process in job.members()), 60.0, "the job to come to its end")
    assert job.stdout() == undisturbed
    assert status.read_text() == "0\n"


def test_the_job_survives_the_agent(jobs: JobRunner, tmp_path: Path, undisturbed: str) -> None:
    """Killed while it reads a rank's stack. Losses, weights and output are the same to the last bit; torchrun's status is 0."""
    _check_survival(jobs, tmp_path, undisturbed, "during-a-look")


@pytest.mark.soak
@pytest.mark.parametrize("moment", ["launcher-started", "before-torch-is-loaded", "any-step"])
def test_the_job_survives_the_agent_at_any_moment(
    jobs: JobRunner, tmp_path: Path, undisturbed: str, moment: str
) -> None:
    """The same whenever the agent is killed."""
    _check_survival(jobs, tmp_path, undisturbed, moment)
