"""Series of logged steps for the tests of silent failures: from recorded output, and made up line by line."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable
from pathlib import Path

from hangwatch.diagnosis.training import diagnose_training
from hangwatch.model.incident import Verdict
from hangwatch.model.telemetry import DeepSpeedSettings, LoggedStep, TrainerSettings, TrainingSeries, TrainingSetup

RECORDED = Path(__file__).with_name("trainings")
_LINE = re.compile(r"\{'loss'.*?\}")


def read_lines(text: str, *, numbered: bool = False) -> tuple[LoggedStep, ...]:
    """The lines in which a Trainer tells a loss. ``numbered``: a line is a step, and says which."""
    found = []
    for number, match in enumerate(_LINE.finditer(text), 1):
        said = ast.literal_eval(re.sub(r"(?<![\w'])(nan|inf)(?![\w'])", r"'\1'", match[0]))
        values = {name: float(said[name]) for name in ("loss", "grad_norm", "learning_rate", "epoch") if name in said}
        found.append(LoggedStep("transformers", number, step=number if numbered else None, **values))
    return tuple(found)


def recorded(name: str) -> tuple[LoggedStep, ...]:
    """The lines of a recorded run of tests/jobs/finetuning.py."""
    return read_lines((RECORDED / f"{name}.log").read_text())


def steps(
    losses: Iterable[float],
    norms: Iterable[float | None] | None = None,
    rates: Iterable[float] | None = None,
    *,
    every: int = 1,
    skipped: Iterable[int] | None = None,
    first: int | None = None,
) -> tuple[LoggedStep, ...]:
    """Lines ``every`` so many steps. Without norms they are ordinary, without rates these fall."""
    losses = list(losses)
    norms = list(norms) if norms is not None else [1.0 + 0.1 * math.sin(i) for i in range(len(losses))]
    rates = list(rates) if rates is not None else [1e-3 * (1 - i / 1000) for i in range(len(losses))]
    counts = list(skipped) if skipped is not None else [None] * len(losses)
    start = first if first is not None else every
    return tuple(
        LoggedStep("transformers", i, step=start + every * i, loss=v, grad_norm=g, learning_rate=r, skipped_steps=n)
        for i, (v, g, r, n) in enumerate(zip(losses, norms, rates, counts, strict=True))
    )


ZERO2 = DeepSpeedSettings(
    source="engine", stage=2, overlap_comm=True, dtype="bf16", check_grad_overflow=False, reduce_bucket_size=500_000_000
)


def series(
    lines: Iterable[LoggedStep],
    *,
    deepspeed: DeepSpeedSettings | None = None,
    trainer: TrainerSettings | None = None,
    **versions: str,
) -> TrainingSeries:
    """A series with the settings that go with it."""
    setup = TrainingSetup(rank=0, versions=versions, deepspeed=deepspeed, trainer=trainer)
    return TrainingSeries(at_ns=0, steps=tuple(lines), setups=(setup,))


def verdict_on(series: TrainingSeries, world_size: int | None) -> Verdict | None:
    """The verdict on a training; None without one."""
    found = diagnose_training(series, world_size)
    return found[0] if found is not None else None


def cause_of(verdict: Verdict | None) -> str | None:
    """The id of the cause, None without a finding."""
    return verdict.cause.id if verdict is not None and verdict.cause is not None else None


def judge(lines: Iterable[LoggedStep], *, world_size: int = 2, **setup: object) -> str | None:
    """The cause that is named."""
    return cause_of(verdict_on(series(lines, **setup), world_size))  # type: ignore[arg-type]
