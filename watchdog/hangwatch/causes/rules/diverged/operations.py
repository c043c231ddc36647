"""Operations that do not meet: of one name with different tensors, or different ones, and that is all that is known."""

from __future__ import annotations

from hangwatch.analysis.case import Case
from hangwatch.analysis.operations.signatures import signature
from hangwatch.causes.evidence import at_recorder, at_stack
from hangwatch.causes.signature import Match, Signature

SHAPES = Signature("shape-mismatch", "one-line", "strong")
DTYPES = Signature("dtype-mismatch", "one-line", "strong")
SHAPES_ELSEWHERE = Signature("shape-mismatch", "two-places", "possible")
DTYPES_ELSEWHERE = Signature("dtype-mismatch", "two-places", "possible")
MISMATCH = Signature("collective-mismatch", "wrong-pair", "possible", general=True, beats=("unknown",))
MISMATCH_IN_A_CYCLE = Signature("collective-mismatch", "cycle", "possible", general=True, beats=("unknown",))


def tensors(case: Case) -> Match | None:
    """One operation by name and place in the program, and yet the sides brought different sizes or types."""
    diverged_at = case.blame.diverged_at
    one, other = case.representatives
    if diverged_at is None or one is None or other is None:
        return None
    here = case.history.at(diverged_at.group.key, diverged_at.seq)
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
    row = (DTYPES if same_place else DTYPES_ELSEWHERE) if types else (SHAPES if same_place else SHAPES_ELSEWHERE)
    said = f"Ranks {one} and {other} both call {ours.op} at number {diverged_at.seq}, with tensors of different {what}."
    return Match(row, said, evidence)


def mismatch(case: Case) -> Match | None:
    """Different operations met, and that is all that can be said."""
    diverged_at = case.blame.diverged_at
    wrong_pair = diverged_at is not None and diverged_at.mismatch
    if not wrong_pair and (case.blame.shape != "cycle" or _in_store(case)):
        return None
    one, other = case.representatives
    shown = tuple(r for r in (one, other) if r is not None)
    evidence = at_recorder(case, shown) + tuple(e for r in shown for e in at_stack(case, r))
    if diverged_at is not None and wrong_pair:
        went = (
            " They went through as a wrong pair, and every operation since is out of step."
            if diverged_at.silent
            else ""
        )
        said = f"At number {diverged_at.seq} of {diverged_at.group.label} the ranks called different operations.{went}"
    else:
        said = "The ranks wait for each other in different operations."
    return Match(MISMATCH if wrong_pair else MISMATCH_IN_A_CYCLE, said, evidence)


def _in_store(case: Case) -> bool:
    """Whether one of the culprits waits for a key of a store: that is no operation of all ranks."""
    waits = (case.views[r].wait for r in (*case.blame.culprits, *case.blame.waiting) if r in case.views)
    return any(w is not None and w.kind == "store" for w in waits)
