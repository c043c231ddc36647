"""Nobody's rank: all are where they should be, and nothing completes."""

from __future__ import annotations

from hangwatch.analysis.case import Case
from hangwatch.analysis.signatures import describe
from hangwatch.causes.hypothesis import Hypothesis
from hangwatch.causes.knowledge import known
from hangwatch.model.incident import Evidence

FABRIC = known("fabric-or-device")


def fabric(case: Case) -> Hypothesis | None:
    """Every member is in the same operation with the same tensors, by the recorder."""
    operation = case.operation
    if case.blame.shape != "together" or operation is None:
        return None
    here = case.history.at(operation.group.key, operation.seq)
    members = set(operation.group.ranks) or set(case.world)
    if not members.issubset(here):
        return None
    number = f"number {operation.seq} of {operation.group.label}"
    said = f"All members are in {describe(operation)}, {number}, and it does not complete."
    evidence = tuple(
        Evidence(
            r,
            "flight recorder",
            f"number {o.seq} of {o.group.label}: {describe(o)}, {'started' if o.started else 'enqueued'}, not completed",
        )
        for r, o in sorted(here.items())
    )
    return Hypothesis(FABRIC, 0.6 if operation.backend == "nccl" else 0.3, said, evidence)
