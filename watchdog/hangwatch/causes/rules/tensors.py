"""The same operation with different tensors."""

from __future__ import annotations

from hangwatch.analysis.case import Case
from hangwatch.analysis.operations.signatures import signature
from hangwatch.causes.evidence import at_recorder, at_stack
from hangwatch.causes.hypothesis import Hypothesis
from hangwatch.causes.knowledge import known

SHAPES = known("shape-mismatch")
DTYPES = known("dtype-mismatch")


def tensors(case: Case) -> Hypothesis | None:
    """One operation by name and place in the program, and yet the sides brought different sizes or types."""
    parting = case.blame.parting
    one, other = case.representatives
    if parting is None or one is None or other is None:
        return None
    here = case.history.at(parting.group.key, parting.seq)
    ours, theirs = here.get(one), here.get(other)
    if ours is None or theirs is None or ours.op != theirs.op:
        return None
    fork = case.paths.fork if case.paths is not None else None
    same_place = fork is not None and fork.relation == "same"
    types = ours.input_dtypes != theirs.input_dtypes
    if signature(ours) == signature(theirs):
        return None
    evidence = at_recorder(case, (one, other)) + at_stack(case, one) + at_stack(case, other)
    what = "types" if types else "sizes"
    said = f"Ranks {one} and {other} both call {ours.op} at number {parting.seq}, with tensors of different {what}."
    return Hypothesis(DTYPES if types else SHAPES, 0.8 if same_place else 0.42, said, evidence)
