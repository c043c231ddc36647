"""Makes a capture of what a training left behind: its logs, event files and states. Only reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from hangwatch.model.capture import Capture, Gap, Job
from hangwatch.model.telemetry import DeepSpeedSettings, TrainingSetup
from hangwatch.training.analysis.learning import read_learning
from hangwatch.training.analysis.runs import OutputSeries, choose_run
from hangwatch.training.analysis.series import make_series
from hangwatch.training.sources.training_files import (
    Progress,
    TrainingFile,
    Unread,
    read_lone_config,
    read_training_files,
)

_NAMED = 12


def read_training(path: Path, job: str, progress: Progress) -> Capture | None:
    """Return the capture of the newest run in ``path``; None if there is no logged step.

    Raises OSError if ``path`` itself cannot be read.
    """
    files: list[TrainingFile] = []
    gaps: list[Gap] = []
    for one in read_training_files(path, progress):
        if isinstance(one, Unread):
            gaps.append(Gap("file", f"{one.name}: {one.reason}"))
        else:
            files.append(one)
    files = _last_attempts(files)
    if not files:
        return None
    run = choose_run([run for one in files for run in _runs_of(one)])
    gaps += [Gap("file", f"{name} is from another run; diagnose it separately") for name in run.others[:_NAMED]]
    if len(run.others) > _NAMED:
        gaps.append(Gap("file", f"and {len(run.others) - _NAMED} more files are from other runs"))
    setup, world_size = _setup(path, files)
    series = make_series(run.modified_ns, run.builders, {0: setup}, {})
    fault = read_learning(series, world_size=world_size).fault
    if fault is not None and fault.first.at_ns == run.modified_ns:
        gaps.append(Gap("time", "the lines contain no time; the file's modification time is used instead"))
    if setup.deepspeed is None and fault is not None and fault.kind != "zero" and not fault.from_start:
        hint = "if DeepSpeed was used, put its JSON file next to the log"
        gaps.append(
            Gap("configuration", "no file shows whether DeepSpeed was used and how it was configured", hint=hint)
        )
    return Capture(Job(job, world_size, launcher="unknown"), run.modified_ns, (), tuple(gaps), training=series)


def _last_attempts(files: Iterable[TrainingFile]) -> list[TrainingFile]:
    """Return the files without the output of attempts that torchrun has restarted since."""
    found = list(files)
    last: dict[str, int] = {}
    for one in found:
        last[one.family] = max(one.attempt, last.get(one.family, 0))
    return [one for one in found if one.attempt == last[one.family]]


def _runs_of(one: TrainingFile) -> Iterator[OutputSeries]:
    """Yield a series for each rank that the file names, as a launcher's prefix does.

    A file that belongs to one rank gives one series.
    """
    ranks = dict.fromkeys(step.rank for step in one.steps)
    for rank in ranks:
        steps = tuple(step for step in one.steps if step.rank == rank)
        yield OutputSeries(one.family or one.name, one.name, one.modified_ns, rank, steps)


def _setup(path: Path, files: Iterable[TrainingFile]) -> tuple[TrainingSetup, int | None]:
    """Return what DeepSpeed logged of itself, else the only configuration in the folder; and the number of ranks."""
    newest = sorted(files, key=lambda one: one.modified_ns)
    settings: DeepSpeedSettings | None = None
    version: str | None = None
    size: int | None = None
    for one in newest:
        size = one.local_ranks or size
        settings = one.words.settings or settings
        version = one.words.version or version
        size = one.words.world_size or size
    setup = TrainingSetup(
        rank=0,
        versions={"deepspeed": version} if version is not None else {},
        deepspeed=settings or read_lone_config(path),
    )
    return setup, size
