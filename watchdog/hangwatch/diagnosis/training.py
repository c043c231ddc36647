"""The diagnosis of a training that runs and learns nothing: what it says of its steps in, a verdict out. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from hangwatch.analysis.training.case import TrainingCase, build_training_case
from hangwatch.analysis.training.learning import EVIDENCE_STEPS
from hangwatch.causes.hypothesis import Hypothesis
from hangwatch.causes.registry import explain_training
from hangwatch.causes.training.lines import describe_line, describe_loss, describe_place
from hangwatch.model.incident import Verdict
from hangwatch.model.telemetry import TrainingSeries
from hangwatch.model.text import format_ranks

#: How many runners-up stay visible, and from which confidence on.
_ALTERNATIVES = 3
_ALTERNATIVE_FLOOR = 0.15


@dataclass(frozen=True)
class TrainingDiagnosis:
    """A verdict on what training says of itself, and the case it rests on."""

    verdict: Verdict
    case: TrainingCase

    @property
    def onset_ns(self) -> int:
        """When the first bad line was written (wall clock)."""
        return self.case.fault.first.at_ns


def diagnose_training(series: TrainingSeries | None, world_size: int | None) -> TrainingDiagnosis | None:
    """The diagnosis of a training; None where it learns, or where that cannot be told (yet)."""
    case = build_training_case(series, world_size) if series is not None else None
    if case is None:
        return None
    hypotheses = explain_training(case)
    if not hypotheses:
        return None
    best, *rest = hypotheses
    others = [h for h in rest if h.confidence >= _ALTERNATIVE_FLOOR][:_ALTERNATIVES]
    verdict = Verdict(
        kind="silent_failure",
        proven=False,
        severity="warning",
        summary=_summary(case, best),
        culprit_ranks=case.differing,
        cause=best.to_cause(),
        alternatives=tuple(h.to_cause() for h in others),
    )
    return TrainingDiagnosis(verdict, case)


def describe_training(series: TrainingSeries) -> str:
    """A sentence on a training in which nothing wrong was found."""
    lines = [step for step in series.steps if step.loss is not None]
    if len(lines) < EVIDENCE_STEPS:
        return f"{len(lines)} logged steps are too few to tell whether the training learns."
    return f"No silent failure found in {len(lines)} logged steps; the last is {describe_line(lines[-1])}."


def _summary(case: TrainingCase, best: Hypothesis) -> str:
    fault = case.fault
    title = best.knowledge.title[0].lower() + best.knowledge.title[1:]
    whose = f" of rank {format_ranks(case.differing)}, and not of the others," if case.differing else ""
    place = describe_place(fault.first) or "it was first seen"
    since = f"since {place}" if not fault.from_start else "from the first logged step on"
    what = (
        f"The gradients{whose} have not been finite {since}"
        if fault.kind == "gradient"
        else f"The loss{whose} is {describe_loss(fault)} {since}"
    )
    return f"{what}, so the job runs and learns nothing: {title}."
