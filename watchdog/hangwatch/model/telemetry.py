"""What training says of itself: logged steps, the series they make, and the settings behind them. Imports nothing of ours.

An absent value is None. NaN and the infinities are ordinary, informative floats: compare with ``math.isnan``, never
two steps with ``==``. JSON lacks them, so such values are written through ``to_plain`` (words ``nan``, ``inf``,
``-inf``), and read with ``msgspec.convert(..., strict=False)`` or ``msgspec.json.decode(..., strict=False)``, which
accept the words.
"""

from __future__ import annotations

import math

import msgspec

#: What a logged step can hold besides where and when: the names of ``LoggedStep``'s values, in order of interest.
VALUES = ("loss", "grad_norm", "learning_rate", "epoch", "skipped_steps", "overflow", "loss_scale")


class LoggedStep(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was said of one step: by one source, or, merged, by several.

    - ``source``: who said it: ``transformers``, ``deepspeed``, ``lightning``, ``report`` (the program itself), or the
      path of a file. In a merged step it is the best of them.
    - ``step``: counts optimizer steps from 1; None only if a line names none. ``rank``: None if the source does not
      tell.
    - ``at_ns``: the wall clock when it was said, as precisely as known.
    - ``skipped_steps``: counts since the start of the run. ``overflow``: this very step was skipped.
    - ``texts``: values as they were written, by name, if that says more than the number: ``'0'`` in quotes
      (transformers 5), ``nan``, ``OVERFLOW!``. Also ``step`` (``counted``: the number is a mere count of lines),
      ``bar`` (the position of a progress bar, ``12/100``) and ``reward`` (what a trainer on rewards or preferences
      said of them).
    """

    source: str
    at_ns: int
    step: int | None = None
    rank: int | None = None
    epoch: float | None = None
    loss: float | None = None
    grad_norm: float | None = None
    learning_rate: float | None = None
    skipped_steps: int | None = None
    overflow: bool | None = None
    loss_scale: float | None = None
    texts: dict[str, str] = {}


class DeepSpeedSettings(msgspec.Struct, frozen=True, omit_defaults=True):
    """DeepSpeed's configuration in force, as far as known.

    ``source``: ``engine`` (resolved, defaults filled in), the path of a file, or ``command line``. ``dtype``: fp32,
    fp16 or bf16. ``check_grad_overflow``: a step with non-finite gradients is skipped. The bucket's size is in elements.
    """

    source: str
    stage: int | None = None
    overlap_comm: bool | None = None
    reduce_bucket_size: int | None = None
    dtype: str | None = None
    check_grad_overflow: bool | None = None
    gradient_accumulation_steps: int | None = None


class TrainerSettings(msgspec.Struct, frozen=True, omit_defaults=True):
    """Settings of a trainer (transformers', Lightning's) that bear on its log.

    ``source``: ``transformers`` or ``lightning``; ``name``: the class in use. ``nan_filter``: a NaN or infinite loss
    is left out of the logged mean (``logging_nan_inf_filter``), so it is printed as 0. ``dtype``: fp32, fp16 or bf16.
    """

    source: str
    name: str = ""
    nan_filter: bool | None = None
    logging_steps: float | None = None
    dtype: str | None = None
    gradient_accumulation_steps: int | None = None
    output_dir: str | None = None
    logging_dir: str | None = None


class TrainingSetup(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one rank trains with. ``versions``: by distribution: torch, transformers, accelerate, deepspeed, ..."""

    rank: int | None = None
    versions: dict[str, str] = {}
    deepspeed: DeepSpeedSettings | None = None
    trainer: TrainerSettings | None = None


class RankSteps(msgspec.Struct, frozen=True):
    """The series of one rank (None: of output that names no rank), merged over its sources, ascending by step."""

    rank: int | None
    steps: tuple[LoggedStep, ...]


class TrainingSeries(msgspec.Struct, frozen=True):
    """Everything training has said of itself, as of ``at_ns`` (wall clock).

    - ``steps``: the job's own series, ascending, one entry per step: what rank 0 says of itself, completed by the
      job's output and files. ``ranks``: the other ranks that reported values of their own.
    - ``runs``: how many series there were: a step number that goes back begins a new one.
    - ``reached``: the step of each rank, logged or not. ``steps_per_s``: its pace over the last minute.
    - ``texts['step']`` of a step is ``counted`` if lines name no step.
    """

    at_ns: int
    steps: tuple[LoggedStep, ...] = ()
    ranks: tuple[RankSteps, ...] = ()
    setups: tuple[TrainingSetup, ...] = ()
    reached: dict[int, int] = {}
    steps_per_s: dict[int, float] = {}
    runs: int = 1

    def of_rank(self, rank: int) -> tuple[LoggedStep, ...]:
        """Return the steps that a rank other than 0 reported of itself; the job's own for 0."""
        if rank == 0:
            return self.steps
        return next((found.steps for found in self.ranks if found.rank == rank), ())


def to_plain(value: object) -> object:
    """Return any of these values as dicts, lists, strings and finite numbers: what JSON can hold."""
    return _words(msgspec.to_builtins(value))


def _words(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {name: _words(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_words(item) for item in value]
    return value
