"""Real trainings that run and learn nothing, under ``hangwatch run``: the Trainer alone, under DDP, ZeRO-2 and ZeRO-3.

Each kind of run is started once; those that are well go beside those that are not. What single lines amount to is tested on
recorded output (tests/training/test_training_causes.py).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from watched_runs import find_bundles, read_incident, torchrun

from hangwatch.model.errors import EXIT_STOPPED
from support import JOBS, JobRunner

pytestmark = pytest.mark.usefixtures("real")

_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1",
}  # fmt: skip
#: The first run under DeepSpeed compiles an operator, and must be let to.
_TIME_LIMIT_S = 280.0


@dataclass(frozen=True)
class _Run:
    """A training: how it is started, and the cause that has to be named, None where it is well."""

    name: str
    cause: str | None
    options: tuple[str, ...]
    ranks: int = 2

    def command(self, output: Path) -> tuple[str, ...]:
        """The command line of the job. A step takes long enough to be seen between two others."""
        script = JOBS / "finetuning.py"
        options = ("--output_dir", str(output), "--steps", "14", "--load_s", "0.15", *self.options)
        alone = self.ranks == 1 and "--zero" not in options  # DeepSpeed takes a launcher
        return (sys.executable, str(script), *options) if alone else torchrun(script, *options, nproc=self.ranks)


#: A loss of NaN and one pinned at 0: what is promised first.
_PROMISED = (
    _Run("alone-images", "loss-nan-data-mix", ("--fault", "images"), 1),
    _Run("zero2-nan-weights", "loss-zero-lr-frozen", ("--zero", "2", "--bf16", "--fault", "nan-weights")),
)
_OTHERS = (_Run("zero3-one-skipped", None, ("--zero", "3", "--bf16", "--fault", "gradient")),)
#: The same causes, otherwise, or such as are told from recorded output (tests/training/test_training_causes.py).
_AGAIN = (
    _Run("alone-none", None, (), 1),
    _Run("alone-nan-weights", "loss-zero-lr-frozen", ("--fault", "nan-weights"), 1),
    _Run("ddp-none", None, ()),
    _Run("ddp-images-unfiltered", "loss-nan", ("--fault", "images", "--unfiltered")),
    _Run("zero2-none", None, ("--zero", "2", "--bf16")),
    _Run("zero2-masked", "loss-zero-masked-labels", ("--zero", "2", "--bf16", "--fault", "masked"), 1),
    _Run(
        "zero2-overlap",
        "loss-zero-overlap-comm",
        ("--zero", "2", "--bf16", "--fault", "gradient", "--unchecked", "--overlap", "on"),
    ),
    _Run(
        "zero2-poisoned",
        "weights-poisoned",
        ("--zero", "2", "--bf16", "--fault", "gradient", "--unchecked", "--overlap", "off"),
    ),
    _Run("zero3-images", "loss-nan-data-mix", ("--zero", "3", "--bf16", "--fault", "images")),
)  # fmt: skip


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[JobRunner]:
    """Starts jobs and leaves nothing behind."""
    found = JobRunner(tmp_path / "jobs")
    yield found
    found.end_all()


def _check_verdict(runner: JobRunner, tmp_path: Path, training: _Run) -> None:
    state = tmp_path / "state"
    job = runner.hangwatch("run", "--state-dir", state, "--", *training.command(tmp_path / "out"), env=_ENVIRONMENT)
    assert job.wait(_TIME_LIMIT_S) == 0, job.stderr()
    silent = [i for i in map(read_incident, find_bundles(state)) if i.verdict.kind == "silent_failure"]
    assert [i.verdict.cause.id for i in silent if i.verdict.cause is not None] == (
        [training.cause] if training.cause else []
    )
    if not silent:
        return
    (incident,) = silent
    cause = incident.verdict.cause
    assert cause is not None
    assert incident.ended_at is not None
    assert any("versions" in e.source and "transformers" in e.says for e in cause.evidence)
    if "--zero" in training.options:
        assert any("ZeRO stage" in e.says for e in cause.evidence)
    again = runner.hangwatch("diagnose", "--json", state / "incidents" / incident.id)
    assert again.wait() == 0
    assert f'"{cause.id}"' in again.stdout()


@pytest.mark.parametrize("training", _PROMISED, ids=lambda training: training.name)
def test_a_training_gets_its_verdict(runner: JobRunner, tmp_path: Path, training: _Run) -> None:
    """A fault is named by its cause, once, with a bundle that says the same again; a training that is well is left alone."""
    _check_verdict(runner, tmp_path, training)


@pytest.mark.usefixtures("long")
@pytest.mark.parametrize(
    "training",
    [
        *(pytest.param(one, id=one.name) for one in _OTHERS),
        *(pytest.param(one, id=one.name, marks=pytest.mark.soak) for one in _AGAIN),
    ],
)
def test_every_kind_of_training_gets_its_verdict(runner: JobRunner, tmp_path: Path, training: _Run) -> None:
    """The same with all faults, under DDP and ZeRO."""
    _check_verdict(runner, tmp_path, training)


def test_a_silent_failure_is_stopped_only_where_that_was_asked_for(runner: JobRunner, tmp_path: Path) -> None:
    """``--on-silent-failure stop`` ends the job with 75, the bundle complete."""
    run = _Run("alone-masked", "loss-zero-masked-labels", ("--fault", "masked", "--steps", "400"), 1)
    state = tmp_path / "state"
    job = runner.hangwatch(
        "run",
        "--state-dir",
        state,
        "--on-silent-failure",
        "stop",
        "--",
        *run.command(tmp_path / "out"),
        env=_ENVIRONMENT,
    )
    assert job.wait(_TIME_LIMIT_S) == EXIT_STOPPED
    (bundle,) = find_bundles(state)
    verdict = read_incident(bundle).verdict
    assert verdict.cause is not None
    assert verdict.cause.id == run.cause
    assert (bundle / "training.json").is_file()
    assert "on-silent-failure stop: " in job.stderr()


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        ("nan", "print"),
        *(
            pytest.param(*one, marks=pytest.mark.soak)
            for one in (("nan", "report"), ("none", "report"), ("none", "print"))
        ),
    ],
)
def test_a_job_of_milliseconds_is_judged_by_what_it_left(
    runner: JobRunner, tmp_path: Path, kind: str, how: str
) -> None:
    """Thirty steps are over before a third tick: a loss of NaN is reported once all the same, a healthy one is left alone."""
    state = tmp_path / "state"
    job = runner.hangwatch("run", "--state-dir", state, "--", *torchrun(JOBS / "brief.py", kind, how))
    assert job.wait(_TIME_LIMIT_S) == 0, job.stderr()
    incidents = [read_incident(bundle) for bundle in find_bundles(state)]
    assert [i.verdict.kind for i in incidents] == (["silent_failure"] if kind == "nan" else []), job.stderr()
    for incident in incidents:
        assert incident.verdict.cause is not None
        assert incident.verdict.cause.id.startswith("loss-nan")
        assert incident.ended_at is not None
