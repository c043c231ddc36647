"""``hangwatch diagnose`` as people call it: on real Gloo dumps, pickled and JSON, and on what is left where there is nothing."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from hangwatch.model.incident import Incident
from support import JobRunner

PROGRAM = Path(__file__).resolve().parents[1] / "jobs" / "dumping.py"


@pytest.fixture(scope="module")
def dumped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What three real Gloo ranks dumped while rank 1 stayed away from the last operation; the ring holds 16 entries."""
    folder = tmp_path_factory.mktemp("dumped")
    runner = JobRunner(folder / "jobs")
    try:
        job = runner.torchrun(PROGRAM, str(folder), nproc=3, env={"TORCH_FR_BUFFER_SIZE": "16"})
        assert job.wait(240.0) == 0, job.stderr()
    finally:
        runner.end_all()
    return folder


@pytest.mark.parametrize("form", ["pickle", "json"])
def test_dumps_of_a_real_job(dumped: Path, jobs: JobRunner, form: str) -> None:
    """Both forms, wrapped rings and a group of two: rank 1 holds the others up, and the exit status is 1."""
    job = jobs.hangwatch("diagnose", dumped / form, "--json")
    assert job.wait(120.0) == 1, job.stderr()
    incident = msgspec.json.decode(job.stdout(), type=Incident)
    assert incident.verdict.culprit_ranks == (1,)
    assert incident.verdict.waiting_ranks == (0, 2)
    assert incident.captured["flight_recorder"]
    assert incident.captured["call_sites"] == (form == "pickle")
    assert incident.job.world_size == 3


def test_nothing_usable_is_status_2(jobs: JobRunner, tmp_path: Path) -> None:
    """One line that says what to give."""
    empty = tmp_path / "empty"
    empty.mkdir()
    job = jobs.hangwatch("diagnose", empty)
    assert job.wait(60.0) == 2
    assert job.stdout() == ""
    assert job.stderr().startswith(f"hangwatch: {empty} holds nothing to diagnose; give ")
    assert job.stderr().count("\n") == 1
