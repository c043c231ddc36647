"""The suite's own promise: whatever a test starts is gone when it ends."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from support import JobRunner, is_alive, wait_for


@pytest.mark.usefixtures("real")
def test_nothing_survives_a_test(tmp_path: Path) -> None:
    """Stopped processes, and those that left the session or lost their parent, are ended too."""
    runner = JobRunner(tmp_path)
    orphan = tmp_path / "orphan"
    job = runner.start(
        ["bash", "-c", f"(setsid sleep 1000 & echo $! > {orphan}); setsid sleep 1000 & echo up; kill -STOP $$"]
    )
    job.wait_for_output("up")
    wait_for(lambda: psutil.Process(job.pid).status() == psutil.STATUS_STOPPED, what="the shell to stop")
    members = job.members()
    assert int(orphan.read_text()) in {process.pid for process in members}
    runner.end_all()
    assert not [process for process in members if is_alive(process)]


def test_a_job_does_not_see_the_launcher_of_the_suite(jobs: JobRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables of a launcher around the suite are not inherited by the jobs it starts."""
    monkeypatch.setenv("RANK", "7")
    monkeypatch.setenv("HANGWATCH_STATE_DIR", "/nowhere")
    job = jobs.start(["env"])
    assert job.wait() == 0
    assert "RANK=" not in job.stdout()
    assert "HANGWATCH_" not in job.stdout()


def test_ranks_are_the_topmost_processes(jobs: JobRunner) -> None:
    """A child that inherits RANK, as a DataLoader worker does, is no rank of its own."""
    job = jobs.start(["bash", "-c", "RANK=3 bash -c 'sleep 1000 & echo $$ up; wait'"])
    written = job.wait_for_output(" up")
    assert {rank: process.pid for rank, process in job.ranks().items()} == {3: int(written.split()[0])}


def test_waiting_in_vain_says_for_what() -> None:
    """A condition that never holds fails the test with what was waited for."""
    with pytest.raises(AssertionError, match=r"waited 0\.2 s in vain for the moon"):
        wait_for(lambda: False, 0.05, "the moon")
