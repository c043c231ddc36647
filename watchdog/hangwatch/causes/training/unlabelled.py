"""Silent failures in which everything is finite and there is nothing to learn."""

from __future__ import annotations

from hangwatch.analysis.training.case import TrainingCase
from hangwatch.causes.hypothesis import Hypothesis
from hangwatch.causes.knowledge import known
from hangwatch.causes.training.lines import describe_line, observe

MASKED = known("loss-zero-masked-labels")


def masked_labels(case: TrainingCase) -> Hypothesis | None:
    """A loss of exactly 0 whose gradients are exactly 0: no token counts."""
    fault = case.fault
    if fault.kind != "zero":
        return None
    if fault.norm == "unknown":
        confidence = 0.55 if fault.rate == "moves" else 0.4
        told = "Of the gradients nothing is told, so it may be a NaN that is printed as 0, too."
    else:
        confidence = 0.9 if fault.from_start else 0.65
        told = "The gradients are exactly 0 as well, and the weights finite."
    since = "from the first logged step on" if fault.from_start else f"since {describe_line(fault.first)}"
    said = (
        f"The loss is exactly 0 {since}. {told} So no token of any batch counts: every target is masked (-100), by a chat "
        "template that does not fit, or because samples are cut before their answer begins."
    )
    return Hypothesis(MASKED, confidence, said, observe(case))
