"""What else it may be where ranks parted: causes that leave the same picture, and differ in why one rank is ahead.

A turn left out, a condition that holds on some ranks, data that ended earlier: where nothing in the picture decides between
them, whoever reads the incident is to know of all three. So it is where a rank has left a pipeline's sends and receives for a
collective: that they do not pair is seen, and not why that rank went on. Where one side is in a sharded model that goes
through its modules by conditions of its own, these may be what differed.
"""

from __future__ import annotations

from collections.abc import Sequence

from hangwatch.analysis.case import Case
from hangwatch.analysis.divergence.iterations import batch_loop
from hangwatch.analysis.divergence.relate import Fork, condition_of
from hangwatch.analysis.places import bare
from hangwatch.causes.evidence import at_fork
from hangwatch.causes.hypothesis import Hypothesis
from hangwatch.causes.knowledge import Knowledge
from hangwatch.causes.lookalikes import lookalikes
from hangwatch.causes.rules import diverged, groups, sharded, skipped

#: What is taken for what, and how sure that makes us: mostly a little more than of what says only that operations differ (0.4).
_SHARDED = (sharded.SHARDED_FORWARD, 0.43)
_KIN: dict[str, tuple[tuple[Knowledge, float], ...]] = {
    diverged.UNEVEN_INPUTS.id: (_SHARDED, (skipped.SKIPPED, 0.42), (diverged.RANK_CONDITIONAL, 0.41)),
    skipped.SKIPPED.id: (_SHARDED, (diverged.RANK_CONDITIONAL, 0.42), (diverged.UNEVEN_INPUTS, 0.41)),
    diverged.RANK_CONDITIONAL.id: (_SHARDED, (skipped.SKIPPED, 0.42), (diverged.UNEVEN_INPUTS, 0.41)),
    sharded.SHARDED_FORWARD.id: ((diverged.RANK_CONDITIONAL, 0.42), (skipped.SKIPPED, 0.41)),
    sharded.GENERATE.id: ((diverged.RANK_CONDITIONAL, 0.38), (skipped.SKIPPED, 0.37)),
    diverged.MISMATCH.id: ((diverged.RANK_CONDITIONAL, 0.38), (skipped.SKIPPED, 0.37)),
    groups.P2P.id: ((diverged.UNEVEN_INPUTS, 0.4), (diverged.RANK_CONDITIONAL, 0.39)),
}
#: From here on the picture has decided.
_DECIDED = 0.85


def with_kin(case: Case, found: Sequence[Hypothesis]) -> tuple[Hypothesis, ...]:
    """The hypotheses, the surest first, and with them what the first may be taken for."""
    best = found[0]
    named = {h.knowledge.id for h in found}
    others = lookalikes(case, best) or _parted_alike(case, best)
    more = (h for h in others if h.knowledge.id not in named)
    return tuple(sorted((*found, *more), key=lambda h: -h.confidence))


def _parted_alike(case: Case, best: Hypothesis) -> list[Hypothesis]:
    """What the surest may be taken for where ranks diverged."""
    fork = case.fork if best.knowledge.id in _KIN and _open(case, best) and case.diverged else None
    if fork is None:
        return []
    evidence = at_fork(case, fork)
    return [
        Hypothesis(knowledge, min(confidence, best.confidence - 0.01), said, evidence)
        for knowledge, confidence in _KIN[best.knowledge.id]
        if (said := _say(knowledge, fork)) is not None
    ]


def _open(case: Case, best: Hypothesis) -> bool:
    """Whether the picture leaves open why the ranks diverged."""
    if best.knowledge is groups.P2P:
        named = [case.views[r] for r in case.blame.culprits if r in case.views]
        return not any(groups.in_point_to_point(view) for view in named)
    return best.confidence < _DECIDED


def _say(knowledge: Knowledge, fork: Fork) -> str | None:
    """What would have happened; None where there is nothing in the paths that could have made it happen."""
    ranks = f"rank {fork.mine.rank} or rank {fork.theirs.rank}"
    if knowledge is skipped.SKIPPED:
        return (
            f"It may be that {ranks} left out a collective earlier: by a caught exception, a `continue` or a `return`."
        )
    if knowledge is diverged.RANK_CONDITIONAL:
        block = condition_of(fork.mine) or condition_of(fork.theirs)
        which = f", such as `{block.text}` (line {block.line})," if block is not None else ""
        return f"It may be that {ranks} is where it is by a condition{which} that does not hold on every rank."
    if knowledge is sharded.SHARDED_FORWARD:
        chosen = sharded.chosen_modules(fork.mine.path) or sharded.chosen_modules(fork.theirs.path)
        if chosen is None:
            return None
        frame, block = chosen
        return f"It may be that {ranks} has run other modules of the sharded model, by `{block.text}` in {bare(frame)}."
    loop = batch_loop(fork.mine.path) or batch_loop(fork.theirs.path)
    return f"It may be that {ranks} had fewer turns of `{loop[1].text}`." if loop is not None else None
