"""Which of the files that a training left belong to one run. Pure.

May import ``hangwatch.model`` and ``hangwatch.analysis``. A folder often holds the log of the run, the same steps as
TensorBoard events and as ``trainer_state.json``, and the logs of earlier runs. The run that was written last is
wanted; another file belongs to it if it has the same losses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from hangwatch.model.telemetry import LoggedStep
from hangwatch.training.analysis.series import COUNTED, SeriesBuilder

#: Losses are printed with four digits, and event files hold them in 32 bits.
_RELATIVE, _ABSOLUTE = 2e-3, 1e-4
#: How many common steps tell whether two files are of one run, and what share of them must agree.
_LEAST_COMMON, _AGREEING = 1, 0.9
#: Long enough that all of a run is kept, including its first step.
_KEPT = 200_000


@dataclass(frozen=True)
class OutputSeries:
    """The steps that one file reports of one rank (None if it names none).

    ``family``: equal for series that are certainly of one run: those of one file, or of the files that its ranks
    wrote.
    """

    family: str
    name: str
    modified_ns: int
    rank: int | None
    steps: tuple[LoggedStep, ...]


@dataclass(frozen=True)
class Run:
    """The newest run: a builder for each rank, under None for output that names no rank.

    ``others``: the files of other runs by name, or by what the names of their ranks' files have in common.
    """

    builders: dict[int | None, SeriesBuilder]
    modified_ns: int
    others: tuple[str, ...]


def choose_run(outputs: Sequence[OutputSeries]) -> Run:
    """Return the run that was written last. ``outputs`` must not be empty."""
    newest = max(outputs, key=lambda one: (one.modified_ns, len(one.steps), one.name))
    own = [one for one in outputs if one.family == newest.family]
    builders: dict[int | None, SeriesBuilder] = {}
    for one in own:
        builder = builders.setdefault(one.rank, SeriesBuilder(last_kept=_KEPT))
        for step in one.steps:
            builder.add(step)
    main = None if None in builders else min(rank for rank in builders if rank is not None)
    others = []
    for one in outputs:
        if one.family == newest.family:
            continue
        if one.rank is not None:
            others.append(one.family)
            continue
        joined = join(builders[main].steps(), _filled(one.steps).steps())
        if joined is None:
            others.append(one.name)
        else:
            builders[main] = _filled(joined)
    return Run(builders, newest.modified_ns, tuple(dict.fromkeys(others)))


def join(one: tuple[LoggedStep, ...], other: tuple[LoggedStep, ...]) -> tuple[LoggedStep, ...] | None:
    """Return two series of one run as one; None if they are of different runs.

    Lines that name no step get the other series' numbers.
    """
    if _counted(one) != _counted(other):
        numbered, lines = (other, one) if _counted(one) else (one, other)
        with_loss = [step for step in numbered if step.loss is not None]
        if len(with_loss) != len(lines) or not _agree(list(zip(with_loss, lines, strict=True))):
            return None
        named = {
            step.step: msgspec.structs.replace(line, step=step.step, texts=_uncounted(line))
            for step, line in zip(with_loss, lines, strict=True)
        }
        return tuple(step for pair in numbered for step in (pair, named.get(pair.step)) if step is not None)
    known = {step.step: step for step in one if step.loss is not None}
    pairs = [(known[step.step], step) for step in other if step.loss is not None and step.step in known]
    return (*one, *other) if len(pairs) >= _LEAST_COMMON and _agree(pairs) else None


def _filled(steps: Sequence[LoggedStep]) -> SeriesBuilder:
    builder = SeriesBuilder(last_kept=_KEPT)
    for step in steps:
        builder.add(step)
    return builder


def _counted(steps: Sequence[LoggedStep]) -> bool:
    return bool(steps) and steps[-1].texts.get("step") == COUNTED


def _uncounted(step: LoggedStep) -> dict[str, str]:
    return {name: word for name, word in step.texts.items() if name != "step"}


def _agree(pairs: Sequence[tuple[LoggedStep, LoggedStep]]) -> bool:
    return sum(_same(one.loss, other.loss) for one, other in pairs) >= _AGREEING * len(pairs)


def _same(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return False
    finite = math.isfinite(one), math.isfinite(other)
    if not all(finite):  # one may be the 0 by which a filter replaces NaN
        return not any(finite) or one == 0 or other == 0
    return math.isclose(one, other, rel_tol=_RELATIVE, abs_tol=_ABSOLUTE)
