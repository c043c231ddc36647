"""The life of a silent failure: reported once a run and cause, over when the loss is well, kept as a bundle that says so."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
import pytest

from hangwatch.agent.capturing import redact
from hangwatch.agent.capturing.local_ranks import LocalRanks
from hangwatch.agent.capturing.scope import LocalScope
from hangwatch.agent.incidents.lifecycle import IncidentLifecycle
from hangwatch.agent.job.silent_failure import SilentFailureWatch
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.capture import Job
from hangwatch.model.incident import Incident
from hangwatch.model.telemetry import DeepSpeedSettings, LoggedStep, TrainerSettings, TrainingSeries, TrainingSetup
from hangwatch.outputs.bundle.bundle import read_bundle

NAN = math.nan
SETUP = TrainingSetup(
    rank=0,
    versions={"deepspeed": "0.14.4"},
    deepspeed=DeepSpeedSettings("engine", stage=2, overlap_comm=True, dtype="bf16"),
)
GOOD, BAD, GRADIENT = (3.8, 1.2), (0.0, NAN), (3.8, NAN)


def said(*lines: tuple[float, float], run: int = 1, every: int = 1) -> TrainingSeries:
    """A series of lines of loss and gradient norm, a second a line."""
    steps = tuple(
        LoggedStep("transformers", i * 1_000_000_000, step=every * i, loss=loss, grad_norm=norm, learning_rate=1e-3 / i)
        for i, (loss, norm) in enumerate(lines, 1)
    )
    return TrainingSeries(at_ns=len(steps) * 1_000_000_000, steps=steps, setups=(SETUP,), runs=run)


class Reports:
    """A watch without ranks of its own, and everything it reported."""

    def __init__(self, state_dir: Path) -> None:
        self.incidents: list[Incident] = []
        self.paths: list[Path | None] = []
        local = LocalScope(LocalRanks(Job("job", 8)))
        self.watch = SilentFailureWatch(local, IncidentLifecycle(state_dir, self._note))

    async def _note(self, incident: Incident, path: Path | None) -> None:
        self.incidents.append(incident)
        self.paths.append(path)

    async def read(self, series: TrainingSeries | None) -> None:
        """One tick."""
        await self.watch.update(series, 99_000_000_000)

    @property
    def causes(self) -> list[tuple[str, bool]]:
        """The cause of everything reported, and whether it was reported to be over."""
        return [(i.verdict.cause.id if i.verdict.cause else "", i.ended_at is not None) for i in self.incidents]


@pytest.mark.asyncio
async def test_a_cause_is_reported_once_and_is_over_when_the_loss_is_well(tmp_path: Path) -> None:
    """Line after line bad is one incident; three good ones end it; the same again in this run is not reported again."""
    reports = Reports(tmp_path)
    lines = [GOOD] * 4
    await reports.read(None)
    for line in (*[BAD] * 6, *[GOOD] * 3, *[BAD] * 5):
        lines.append(line)
        await reports.read(said(*lines))
        await reports.read(said(*lines))
    assert reports.causes == [("loss-nan-data-mix", False), ("loss-nan-data-mix", True)]


@pytest.mark.asyncio
async def test_a_new_run_may_fail_anew(tmp_path: Path) -> None:
    """A step number that went back ends the incident; the same cause is reported again."""
    reports = Reports(tmp_path)
    await reports.read(said(*[GOOD] * 4, *[BAD] * 4))
    await reports.read(said(GOOD, run=2))
    await reports.read(said(*[GOOD] * 4, *[BAD] * 4, run=2))
    assert [over for _, over in reports.causes] == [False, True, False]
    reports.watch.begin_again()
    await reports.read(said(*[GOOD] * 4, *[BAD] * 5))
    assert [over for _, over in reports.causes] == [False, True, False, True, False]


@pytest.mark.asyncio
async def test_another_cause_is_the_same_incident(tmp_path: Path) -> None:
    """What is learnt later of the same trouble changes the incident, and makes no second one."""
    reports = Reports(tmp_path)
    lines = [GOOD] * 4 + [BAD] * 4
    await reports.read(said(*lines))
    await reports.read(said(*([GOOD] * 4 + [GRADIENT] + [BAD] * 4)))
    assert reports.causes == [("loss-nan-data-mix", False), ("loss-zero-overlap-comm", False)]
    assert len({incident.id for incident in reports.incidents}) == 1


@pytest.mark.asyncio
async def test_the_bundle_gives_the_same_verdict_again(tmp_path: Path) -> None:
    """The series with its NaN, the configuration and the versions are in the bundle, and its diagnosis is the same."""
    reports = Reports(tmp_path)
    await reports.read(said(*[GOOD] * 4, GRADIENT, *[BAD] * 4))
    (path,) = reports.paths
    assert path is not None
    before, capture = read_bundle(path)
    assert capture.gaps == ()
    assert before is not None
    assert before.onset_at == "1970-01-01T00:00:05.000Z"
    again = diagnose(capture).verdict
    assert again == before.verdict
    assert again.cause is not None
    assert any("overlap_comm on" in e.says for e in again.cause.evidence)
    assert any("deepspeed 0.14.4" in e.says for e in again.cause.evidence)
    assert capture.training is not None
    assert math.isnan(capture.training.steps[-1].grad_norm or 0.0)


@pytest.mark.asyncio
async def test_what_a_training_says_of_itself_is_redacted_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A secret of a rank's environment in a setting of its trainer is in no file of the bundle."""
    monkeypatch.setattr(redact, "secret_values", lambda _: frozenset({"correct-horse"}))
    series = said(*[GOOD] * 4, *[BAD] * 6)
    setup = msgspec.structs.replace(SETUP, trainer=TrainerSettings("transformers", output_dir="/runs/correct-horse"))
    reports = Reports(tmp_path)
    await reports.read(msgspec.structs.replace(series, setups=(setup,)))
    (path,) = reports.paths
    assert path is not None
    files = {file.name: file.read_bytes() for file in path.iterdir() if file.is_file()}
    assert b"/runs/***" in files["training.json"]
    assert not [name for name, data in files.items() if b"correct-horse" in data]
