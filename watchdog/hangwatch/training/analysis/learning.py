"""Whether a training learns, by its own logged steps: which lines are bad, since when, and what was bad first.

Pure; may import ``hangwatch.model``. Everything rests on relations between loss, gradient norm, learning rate and
skipped steps over at least ``EVIDENCE_STEPS`` logged steps in a row, never on how small a loss is.

Two libraries hide what they mean. transformers leaves a NaN loss out of the logged mean, so it is printed as 0
(``logging_nan_inf_filter``, in ``Trainer``, 4.57 and 5.x). DeepSpeed replaces a norm that is not finite by -1, which
over k groups is printed as the root of k (``mask_nan_or_inf_with_val_inplace`` in ``runtime/utils.py``, 0.12 to
0.19.2).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from hangwatch.model.telemetry import LoggedStep, TrainingSeries
from hangwatch.training.analysis.curves import (
    Norm,
    Rate,
    all_skipped,
    bar_spacing,
    fell_to_zero,
    has_exploded,
    is_bad_norm,
    is_falling,
    is_rewarded,
    is_root,
    is_rounded,
    is_share,
    is_start,
    read_norm,
    read_rate,
    steps_between,
)

#: How many logged steps in a row are evidence.
EVIDENCE_STEPS = 3
#: Steps whose gradients alone are not finite. A loss scale that is searched for (fp16) takes 33 of them at the most, from
#: 2^16 down to 1 with every second one forgiven, and has good ones in between.
_UNSCALED_STEPS, _SCALED_STEPS = 10, 50
#: Normalised gradients have at most this norm.
_NORMALISED = 1.001

#: ``nan``: the loss is not finite, printed so or as 0; ``zero``: loss and gradients are exactly 0; ``gradient``: the loss is
#: finite and no gradient is.
FaultKind = Literal["nan", "zero", "gradient"]
_Mark = Literal["good", "nan", "zero", "blank", "constant", "gradient"]


@dataclass(frozen=True)
class Fault:
    """What is wrong.

    ``bad``: the lines with the fault; ``before``: the good ones before, oldest first; ``first``: the earliest bad
    one. ``from_start``: no line was ever good; None if the run's beginning was not seen. ``order``: what was bad
    first, the loss (caused by a batch) or a gradient (of a batch whose loss was good); None if lines are too far
    apart to tell. ``printed_nan``: the loss is printed as NaN, not as 0. ``skipped``: True if every one of these
    steps was skipped; None if not reported. ``exploded``: loss or gradients had grown tenfold before.
    """

    kind: FaultKind
    bad: tuple[LoggedStep, ...]
    before: tuple[LoggedStep, ...]
    first: LoggedStep
    from_start: bool | None
    order: Literal["loss", "gradient"] | None
    printed_nan: bool
    norm: Norm
    rate: Rate
    skipped: bool | None
    exploded: bool


@dataclass(frozen=True)
class Learning:
    """The state of a training.

    ``fault``: None if none can be shown. ``recovered``: the last ``EVIDENCE_STEPS`` lines are good.
    """

    fault: Fault | None
    recovered: bool


def read_learning(series: TrainingSeries, rank: int = 0, world_size: int | None = None) -> Learning:
    """Return the current state of a rank's series (0: the job's own)."""
    steps = series.of_rank(rank)
    lines = [step for step in steps if step.loss is not None]
    marks = _mark(lines)
    recovered = len(lines) >= EVIDENCE_STEPS and all(mark == "good" for mark in marks[-EVIDENCE_STEPS:])
    return Learning(_Reading(series, steps, lines, marks, world_size).fault(), recovered)


def _mark(lines: Sequence[LoggedStep]) -> list[_Mark]:
    marks = [_mark_line(line) for line in lines]
    for i in range(len(lines) - EVIDENCE_STEPS + 1):
        some = lines[i : i + EVIDENCE_STEPS]
        norms = {line.grad_norm for line in some}
        if len(norms) == 1 and is_root(some[0].grad_norm) and all(line.loss == 0 for line in some):
            marks[i : i + EVIDENCE_STEPS] = ["constant"] * EVIDENCE_STEPS
    for i in range(len(lines) - 1, 0, -1):  # the step whose gradient began it has the same norm and its own loss
        if marks[i] == "constant" and marks[i - 1] == "good" and lines[i - 1].grad_norm == lines[i].grad_norm:
            marks[i - 1] = "gradient"
    return marks


def _mark_line(line: LoggedStep) -> _Mark:
    loss = line.loss if line.loss is not None else math.nan
    # The norm is of the line's last step; an overflow may be that of any of its steps, and says less.
    bad = is_bad_norm(line.grad_norm) if line.grad_norm is not None else line.overflow is True
    if not math.isfinite(loss):
        return "nan"
    if loss != 0:
        return "gradient" if bad else "good"
    rewarded = is_rewarded(line)
    if bad:
        return "gradient" if rewarded else "nan"
    # A loss of 0 whose gradients are not, or that is learnt from rewards: reinforcement learning begins so.
    if rewarded is not None:
        return "good" if rewarded else "nan"
    return "blank" if line.grad_norm is None else "zero" if line.grad_norm == 0 else "good"


@dataclass(frozen=True)
class _Reading:
    """One series: its lines with a loss, and the meaning of each."""

    series: TrainingSeries
    steps: Sequence[LoggedStep]
    lines: Sequence[LoggedStep]
    marks: Sequence[_Mark]
    world_size: int | None

    def fault(self) -> Fault | None:
        last_good = max((i for i, mark in enumerate(self.marks) if mark == "good"), default=-1)
        # Bad gradients may come first and tell what began it; the last lines tell what it is.
        came = range(last_good + 1, len(self.lines))
        began = next((i for i in came if self.marks[i] != "gradient"), len(self.lines))
        before, gradients, bad = self.lines[: last_good + 1], self.lines[last_good + 1 : began], self.lines[began:]
        kind = self._kind([*before, *gradients], bad, self.marks[began:]) if bad else self._gradients(gradients)
        if kind is None:
            return None
        order = self._order(before, gradients, bad) if kind == "nan" else None
        bad = bad or gradients
        return Fault(
            kind=kind,
            bad=tuple(bad),
            before=tuple(before),
            first=self.lines[last_good + 1],
            from_start=False if before or (gradients and kind != "gradient") else is_start(self.lines),
            order=order,
            printed_nan=any(line.loss is not None and not math.isfinite(line.loss) for line in bad),
            norm=read_norm(bad),
            rate=read_rate(bad),
            skipped=all_skipped(bad),
            exploded=has_exploded(before),
        )

    def _kind(
        self, before: Sequence[LoggedStep], bad: Sequence[LoggedStep], marks: Sequence[_Mark]
    ) -> FaultKind | None:
        """Return the kind of fault that the bad lines show; None if they are too few, or the loss may rightly be 0.

        ``before``: the lines before them whose loss was good.
        """
        seen = set(marks)
        if len(bad) < EVIDENCE_STEPS:
            return None
        if "nan" in seen:
            # The steps in between, reported only as 0, were no better.
            return "nan" if sum(mark in {"nan", "constant"} for mark in marks) >= EVIDENCE_STEPS else None
        if "gradient" in seen or fell_to_zero(before):
            return None
        if "constant" in seen:
            return "nan" if before or self._stands_for_none(bad) else None
        if seen == {"zero"}:
            return "zero"
        if not before:
            return None if all(map(is_rounded, bad)) else "zero"
        return "nan"

    def _stands_for_none(self, bad: Sequence[LoggedStep]) -> bool:
        """True if one constant root as the norm of all steps means gradients that are not finite.

        Normalised gradients have a norm of 1 as well, and may have a loss of 0.
        """
        norms = [line.grad_norm for line in bad if line.grad_norm is not None]
        return min(norms) > _NORMALISED or read_rate(bad) == "zero" or any(line.overflow for line in bad)

    def _gradients(self, lines: Sequence[LoggedStep]) -> FaultKind | None:
        """Return the fault of gradients that have not been finite for long while the loss is; else None."""
        if len(lines) < EVIDENCE_STEPS:
            return None
        skipped = all_skipped(lines)
        if skipped is not True and (read_norm(lines) == "unknown" or is_falling(lines)):
            return None
        scales = [line.loss_scale for line in lines if line.loss_scale is not None]
        if scales and 1 < scales[-1] < scales[0]:
            return None  # the loss scale is being searched for, from its configured start
        types = {s.dtype for setup in self.series.setups for s in (setup.deepspeed, setup.trainer) if s is not None}
        scaled = any(scale > 1 for scale in scales) if scales else not types & {"bf16", "fp32"}
        count = steps_between(lines[0], lines[-1])
        enough = _SCALED_STEPS if scaled else _UNSCALED_STEPS
        return "gradient" if (len(lines) if count is None else count + 1) >= enough else None

    def _order(
        self, before: Sequence[LoggedStep], gradients: Sequence[LoggedStep], bad: Sequence[LoggedStep]
    ) -> Literal["loss", "gradient"] | None:
        """Return what was bad first; None if lines are too far apart to tell."""
        first = gradients[0] if gradients else bad[0]
        if not (before or gradients) or (first.grad_norm is None and first.overflow is None):
            return None
        spacing = self._spacing(before or gradients, first if before else bad[0])
        if not gradients:
            # The filter makes a line 0 only if the very first of its steps was bad, and the gradient before that was good.
            return "loss" if spacing == 1 or first.loss == 0 else None
        # The filter works on each rank and each micro batch by itself: a line's loss is then the mean of the good ones.
        mixed = self._filtered and (self._accumulates or is_share(before, first, self.world_size))
        return "gradient" if spacing == 1 and not mixed else None

    def _spacing(self, before: Sequence[LoggedStep], first: LoggedStep) -> int | None:
        """Return how many steps one line stands for; None if nothing tells."""
        if before and (apart := steps_between(before[-1], first)) is not None:
            return apart
        if (drawn := bar_spacing(self.lines)) is not None:
            return drawn
        configured = (s.logging_steps for setup in self.series.setups if (s := setup.trainer) is not None)
        return next((int(n) for n in configured if n is not None and n >= 1), None)

    @property
    def _filtered(self) -> bool:
        """True if NaN losses may be left out of what is printed."""
        return not any(s.nan_filter is False for setup in self.series.setups if (s := setup.trainer) is not None)

    @property
    def _accumulates(self) -> bool:
        """True if a step is known to take several micro batches."""
        settings = (s for setup in self.series.setups for s in (setup.trainer, setup.deepspeed) if s is not None)
        return any((s.gradient_accumulation_steps or 1) > 1 for s in settings)
