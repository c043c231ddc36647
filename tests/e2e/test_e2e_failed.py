"""A job that fails because its ranks' calls do not match gets a verdict; one that fails of anything else gets none."""

from __future__ import annotations

from pathlib import Path

import pytest
from watched_runs import find_bundles, read_incident, torchrun

from failing import MISMATCHES, OTHERS
from hangwatch.model.incident import Incident
from support import JOBS, JobRunner

_LIMIT_S = 150.0
#: Of each sort of end one in CI: an abort by Gloo, a lost peer, a rank that left. What all others have left is recorded
#: (``fixtures/failed``), and is diagnosed after each change.
_QUICK = ("evaluation", "leaves")
_QUICK_OTHERS = ("value",)


class _Run:
    """A fault under ``hangwatch run``, to its end."""

    def __init__(self, jobs: JobRunner, fault: str, state: Path, aborts: str = "1") -> None:
        python, *launcher = torchrun(JOBS / "failing.py", fault)
        at = launcher.index("torch.distributed.run") + 1
        # torchrun ends the others at once: on a busy machine before they have left anything.
        launcher[at:at] = ["--monitor-interval", "1"]
        job = jobs.hangwatch(
            "run",
            "--on-hang",
            "stop",
            "--",
            python,
            *launcher,
            env={"HANGWATCH_STATE_DIR": str(state), "HANGWATCH_ABORTS": aborts},
        )
        self.status = job.wait(_LIMIT_S)
        self.stderr = job.stderr()
        self.incidents: list[Incident] = [read_incident(bundle) for bundle in find_bundles(state)]


def _check_named(jobs: JobRunner, fault: str, state: Path) -> None:
    run = _Run(jobs, fault, state)
    truth = MISMATCHES[fault]
    assert run.status == 1, "the status is torchrun's"
    assert [one.verdict.kind for one in run.incidents] == ["failed"], run.stderr
    (incident,) = run.incidents
    verdict = incident.verdict
    assert verdict.cause is not None
    assert verdict.cause.id in truth.causes
    assert set(verdict.culprit_ranks) & truth.culprits
    assert (verdict.severity, incident.ended_at is not None) == ("warning", True)
    assert verdict.summary.split(":")[0] in " ".join(run.stderr.split())
    divergence = verdict.divergence
    shown = {side.source for side in (divergence.culprit, divergence.others) if side} if divergence else set()
    assert set(truth.lines) <= shown


def _check_unnamed(jobs: JobRunner, fault: str, state: Path) -> None:
    run = _Run(jobs, fault, state)
    assert run.status != 0
    assert run.incidents == []
    assert "FAILED, " not in run.stderr


@pytest.mark.parametrize("fault", _QUICK)
def test_a_mismatch_that_crashes_is_named(jobs: JobRunner, fault: str, tmp_path: Path) -> None:
    """Who called what, both lines, and why; the job ends as it would."""
    _check_named(jobs, fault, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("fault", sorted(MISMATCHES.keys() - set(_QUICK)))
def test_all_mismatches_that_crash_are_named(jobs: JobRunner, fault: str, tmp_path: Path) -> None:
    """The others."""
    _check_named(jobs, fault, tmp_path)


def test_a_rank_that_gloo_aborts_leaves_nothing_unless_asked_to(jobs: JobRunner, tmp_path: Path) -> None:
    """Then the user is told how to ask, unless torchrun has ended the other rank before that had left anything."""
    run = _Run(jobs, "evaluation", tmp_path, aborts="")
    assert run.status == 1
    assert run.incidents == []
    assert "start it again with HANGWATCH_ABORTS=1" in run.stderr or "(SIGTERM)" in run.stderr


@pytest.mark.parametrize("fault", _QUICK_OTHERS)
def test_another_failure_is_not_explained(jobs: JobRunner, fault: str, tmp_path: Path) -> None:
    """A rank's own error says it all; those that lose their peer by it are no mismatch."""
    _check_unnamed(jobs, fault, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("fault", sorted(set(OTHERS) - set(_QUICK_OTHERS)))
def test_all_other_failures_are_not_explained(jobs: JobRunner, fault: str, tmp_path: Path) -> None:
    """The others."""
    _check_unnamed(jobs, fault, tmp_path)
