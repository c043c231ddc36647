"""Silent failures in which everything is finite and there is nothing to learn."""

from __future__ import annotations

from hangwatch.causes.match import Level, Match
from hangwatch.training.analysis.case import TrainingCase
from hangwatch.training.causes.lines import describe_line, observe


def masked_labels(case: TrainingCase) -> Match | None:
    """Return a match if loss and gradients are exactly 0: no token counts."""
    fault = case.fault
    if fault.kind != "zero":
        return None
    if fault.norm == "unknown":
        level: Level = "likely" if fault.rate == "moves" else "possible"
        gradients = "The gradients are not logged, so it may also be a NaN that is printed as 0."
    else:
        level = "certain" if fault.from_start else "strong"
        gradients = "The gradients are exactly 0 too, and the weights are finite."
    since = "from the first logged step on" if fault.from_start else f"since {describe_line(fault.first)}"
    said = (
        f"The loss is exactly 0 {since}. {gradients} So no token of any batch counts: every target is "
        "masked (-100), because the chat template does not fit or because samples are cut before "
        "their answer begins."
    )
    return Match("loss-zero-masked-labels", level, said, observe(case))
