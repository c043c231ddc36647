"""Training judged by what it writes: ``hangwatch diagnose`` on its files, and a live job that is known by its output alone."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest
from watched_runs import find_bundles, read_incident

from hangwatch.model.incident import Incident
from support import JOBS, JobRunner

TESTS = Path(__file__).resolve().parents[1]
OVERLAP = TESTS / "causes" / "logs" / "failing" / "loss-zero-overlap-comm.llava-pretraining.log"
EVENTS = TESTS / "fixtures" / "training" / "transformers-4.57.6-nan-weights.tfevents"
WELL = TESTS / "fixtures" / "training" / "transformers-4.57.6-resumed.trainer_state.json"


@pytest.mark.parametrize("file", [OVERLAP, EVENTS, WELL], ids=lambda path: path.name)
def test_a_file_of_a_training_gives_the_document(jobs: JobRunner, file: Path) -> None:
    """A log, an event file, a state: the same document as for a hang; status 0, as no hang was found, and the kind tells."""
    job = jobs.hangwatch("diagnose", file, "--json")
    assert job.wait(60.0) == 0, job.stderr()
    incident = msgspec.json.decode(job.stdout(), type=Incident)
    assert incident.verdict.kind == ("healthy" if file == WELL else "silent_failure")
    assert incident.captured["training"]
    assert (incident.job.world_size, incident.ranks) == (8 if file == OVERLAP else None, ())


def test_the_verdict_on_a_log_is_for_people(jobs: JobRunner) -> None:
    """On a terminal and as a report: what is wrong, since when, by which lines and which configuration, and what to do."""
    job = jobs.hangwatch("diagnose", OVERLAP, "--verbose")
    assert job.wait(60.0) == 0, job.stderr()
    for words in ("SILENT FAILURE", "since logged line 18", "overlap_comm on", "deepspeed 0.12.6", "What to do"):
        assert words in job.stdout()
    report = jobs.hangwatch("diagnose", OVERLAP, "--format", "html")
    assert report.wait(60.0) == 0, report.stderr()
    assert report.stdout().lower().startswith("<!doctype html>")
    assert "loss-zero-overlap-comm" in report.stdout()


def test_a_folder_gives_its_newest_run(jobs: JobRunner, tmp_path: Path) -> None:
    """Logs, event files and states of one run are put together; those of another run are named and left aside."""
    run = tmp_path / "run"
    (run / "runs" / "Nov21").mkdir(parents=True)
    (run / "checkpoint-14").mkdir()
    shutil.copy(WELL, run / "checkpoint-14" / "trainer_state.json")
    shutil.copy(EVENTS, run / "runs" / "Nov21" / "events.out.tfevents.1.host.1.0")
    job = jobs.hangwatch("diagnose", run, "--json")
    assert job.wait(60.0) == 0, job.stderr()
    incident = msgspec.json.decode(job.stdout(), type=Incident)
    assert incident.verdict.kind == "silent_failure"
    assert incident.missing == ("file: checkpoint-14/trainer_state.json is from another run; diagnose it separately",)


def test_what_tells_of_no_step_is_status_2(jobs: JobRunner, tmp_path: Path) -> None:
    """One line that says what to give."""
    (tmp_path / "train.log").write_text("loading the model\n")
    job = jobs.hangwatch("diagnose", tmp_path / "train.log")
    assert job.wait(60.0) == 2
    assert job.stdout() == ""
    assert "training logs" in job.stderr()
    assert job.stderr().count("\n") == 1


def test_one_rank_is_named_cleared_and_nothing_stopped(jobs: JobRunner, tmp_path: Path) -> None:
    """Under torchrun's --log-dir and --tee a rank's NaN is reported once, is over when its loss is well, and stops no job."""
    state = tmp_path / "state"
    command = (
        "torchrun", "--nproc-per-node", "2", "--master-port", "0", "--log-dir", tmp_path / "logs", "--tee", "3",
        JOBS / "talking.py", state / "incidents",
    )  # fmt: skip
    job = jobs.hangwatch("run", "--state-dir", state, "--on-hang", "stop", "--", *command)
    assert job.wait(200.0) == 0, job.stderr()
    (incident,) = (read_incident(bundle) for bundle in find_bundles(state))
    assert incident.verdict.kind == "silent_failure"
    assert incident.verdict.culprit_ranks == (1,)
    assert "of rank 1 only" in incident.verdict.summary
    assert incident.ended_at is not None
    assert job.stderr().count("SILENT FAILURE") == 1
    again = jobs.hangwatch("diagnose", tmp_path / "logs", "--json")
    assert again.wait(60.0) == 0, again.stderr()
    left = msgspec.json.decode(again.stdout(), type=Incident)
    assert (left.verdict.kind, left.job.world_size) == ("healthy", 2)
