"""Silent failures in which everything is finite and there is nothing to learn."""

from __future__ import annotations

from hangwatch.analysis.training.case import TrainingCase
from hangwatch.causes.signature import Match, Signature
from hangwatch.causes.training.lines import describe_line, observe

ZERO_FROM_START = Signature("loss-zero-masked-labels", "zero-from-the-start", "certain")
ZERO_SINCE = Signature("loss-zero-masked-labels", "zero-since", "strong")
NO_GRADIENTS_RATE_MOVES = Signature("loss-zero-masked-labels", "gradients-unknown-rate-moves", "likely")
NO_GRADIENTS = Signature("loss-zero-masked-labels", "gradients-unknown", "possible")


def masked_labels(case: TrainingCase) -> Match | None:
    """A loss of exactly 0 whose gradients are exactly 0: no token counts."""
    fault = case.fault
    if fault.kind != "zero":
        return None
    if fault.norm == "unknown":
        row = NO_GRADIENTS_RATE_MOVES if fault.rate == "moves" else NO_GRADIENTS
        gradients = "Nothing is known of the gradients, so it may also be a NaN that is printed as 0."
    else:
        row = ZERO_FROM_START if fault.from_start else ZERO_SINCE
        gradients = "The gradients are exactly 0 as well, and the weights finite."
    since = "from the first logged step on" if fault.from_start else f"since {describe_line(fault.first)}"
    said = (
        f"The loss is exactly 0 {since}. {gradients} So no token of any batch counts: every target is masked "
        f"(-100), by a chat template that does not fit, or because samples are cut before their answer begins."
    )
    return Match(row, said, observe(case))
