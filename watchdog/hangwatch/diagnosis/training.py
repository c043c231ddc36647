"""The diagnosis of a training that runs and learns nothing: what it says of its steps in, a verdict out. Pure."""

from __future__ import annotations

from hangwatch.diagnosis.causes import to_causes
from hangwatch.diagnosis.registry import explain_training
from hangwatch.model.incident import Cause, Verdict
from hangwatch.model.telemetry import TrainingSeries
from hangwatch.model.text import number_ranks
from hangwatch.training.analysis.case import TrainingCase, build_training_case
from hangwatch.training.analysis.learning import EVIDENCE_STEPS
from hangwatch.training.causes.lines import describe_line, describe_loss, describe_place


def diagnose_training(series: TrainingSeries | None, world_size: int | None) -> tuple[Verdict, int] | None:
    """Return the verdict on a training, and when its first bad line was written (wall clock, ns).

    None if it learns, or if that is not known (yet).
    """
    case = build_training_case(series, world_size) if series is not None else None
    if case is None:
        return None
    found = explain_training(case)
    if not found:
        return None
    cause, others = to_causes(found)
    verdict = Verdict(
        kind="silent_failure",
        proven=False,
        severity="warning",
        summary=_summary(case, cause),
        culprit_ranks=case.differing,
        cause=cause,
        alternatives=others,
    )
    return verdict, case.fault.first.at_ns


def describe_training(series: TrainingSeries) -> str:
    """Return a sentence on a training in which nothing wrong was found."""
    lines = [step for step in series.steps if step.loss is not None]
    if len(lines) < EVIDENCE_STEPS:
        return f"{len(lines)} logged steps are too few to see whether the training learns."
    return f"No silent failure found in {len(lines)} logged steps; the last is {describe_line(lines[-1])}."


def _summary(case: TrainingCase, cause: Cause) -> str:
    fault = case.fault
    title = cause.title[0].lower() + cause.title[1:]
    whose = f" of {number_ranks(case.differing)} only" if case.differing else ""
    place = describe_place(fault.first) or "its first visible line"
    since = f"since {place}" if not fault.from_start else "from the first logged step on"
    what = (
        f"The gradients{whose} have not been finite {since}"
        if fault.kind == "gradient"
        else f"The loss{whose} has been {describe_loss(fault)} {since}"
    )
    return f"{what}, so the job runs and learns nothing: {title}."
