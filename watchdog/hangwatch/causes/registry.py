"""All rules, in no order that matters: the surest hypothesis comes first, ties are broken by this list."""

from __future__ import annotations

from hangwatch.analysis.case import Case
from hangwatch.causes import evaluation, groups, lost, nobody, parted, sharded, straggling, stuck, tensors, unknown
from hangwatch.causes.hypothesis import Hypothesis, Rule

RULES: tuple[Rule, ...] = (
    stuck.debugger,
    lost.stopped,
    lost.died,
    lost.raised,
    lost.early_exit,
    lost.init_missing,
    stuck.dataloader,
    stuck.gil_held,
    stuck.blocked_io,
    stuck.lock_deadlock,
    evaluation.tuple_labels,
    parted.checkpoint,
    sharded.generate_length,
    sharded.sharded_forward,
    groups.inversion,
    groups.creation,
    groups.point_to_point,
    parted.conditional,
    parted.uneven_inputs,
    parted.skipped,
    tensors.tensors,
    parted.mismatch,
    straggling.compiling,
    straggling.rank0_work,
    straggling.straggler,
    straggling.busy_loop,
    nobody.fabric,
    unknown.unknown,
)


def explain(case: Case) -> tuple[Hypothesis, ...]:
    """All hypotheses that fit the case, the surest first. There is always one: ``unknown`` says what was seen."""
    found = [h for rule in RULES if (h := rule(case)) is not None]
    return tuple(sorted(found, key=lambda h: -h.confidence))
