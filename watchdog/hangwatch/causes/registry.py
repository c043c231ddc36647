"""All rules, in no order that matters: the surest hypothesis comes first, ties are broken by this list."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import ParamSpec, TypeVar

from hangwatch.analysis.case import Case
from hangwatch.analysis.training.case import TrainingCase
from hangwatch.causes.hypothesis import Hypothesis, Rule, TrainingRule
from hangwatch.causes.kin import with_kin
from hangwatch.causes.rules import (
    children,
    diverged,
    evaluation,
    failing,
    groups,
    hardware,
    lost,
    nodes,
    sharded,
    skipped,
    straggling,
    stuck,
    tasks,
    tensors,
    threads,
    unknown,
)
from hangwatch.causes.training import nonfinite, unlabelled

RULES: tuple[Rule, ...] = (
    stuck.debugger,
    lost.stopped,
    nodes.node_lost,
    lost.died,
    lost.raised,
    failing.failed_and_ending,
    failing.failed_and_handling,
    failing.failed_in_thread,
    lost.early_exit,
    lost.init_missing,
    stuck.dataloader,
    stuck.gil_held,
    stuck.blocked_io,
    children.fork_deadlock,
    children.child_stall,
    threads.lock_deadlock,
    threads.thread_stall,
    tasks.task_stall,
    evaluation.tuple_labels,
    diverged.checkpoint,
    sharded.generate_length,
    sharded.sharded_forward,
    groups.inversion,
    groups.creation,
    groups.point_to_point,
    diverged.conditional,
    diverged.uneven_inputs,
    skipped.skipped,
    tensors.tensors,
    diverged.mismatch,
    straggling.compiling,
    straggling.rank0_work,
    straggling.straggler,
    straggling.busy_loop,
    hardware.failed_device,
    hardware.fabric,
    unknown.unknown,
)

#: Why a training that runs learns nothing.
TRAINING_RULES: tuple[TrainingRule, ...] = (
    nonfinite.lr_frozen,
    nonfinite.overlap_comm,
    nonfinite.loss_nan,
    nonfinite.data_mix,
    nonfinite.poisoned,
    nonfinite.never_finite,
    unlabelled.masked_labels,
)

log = logging.getLogger("hangwatch")

_C = TypeVar("_C", Case, TrainingCase)
_T = TypeVar("_T")
_P = ParamSpec("_P")

#: Rules that raised, by name. None ever should; the agent counts them, and the tests hold it at none.
failed: Counter[str] = Counter()


def explain(case: Case) -> tuple[Hypothesis, ...]:
    """All hypotheses that fit the case, the surest first. There is always one: ``unknown`` says what was seen."""
    if case.blame.shape == "outside":
        return _apply((unknown.unknown,), case)  # why somebody does not come of whom nothing is seen, no rule can know
    found = _apply(RULES, case)
    return _guarded(with_kin, case, found) or found


def explain_training(case: TrainingCase) -> tuple[Hypothesis, ...]:
    """All hypotheses that fit a training that learns nothing, the surest first; none only where every rule failed."""
    return _apply(TRAINING_RULES, case)


def _apply(rules: Sequence[Callable[[_C], Hypothesis | None]], case: _C) -> tuple[Hypothesis, ...]:
    """What the rules say."""
    found = [hypothesis for rule in rules if (hypothesis := _guarded(rule, case)) is not None]
    return tuple(sorted(found, key=lambda h: -h.confidence))


def _guarded(rule: Callable[_P, _T | None], *args: _P.args, **kwargs: _P.kwargs) -> _T | None:
    """What the rule says. One that raises is left out and counted: nobody may be left without the verdict."""
    try:
        return rule(*args, **kwargs)
    except Exception:  # an edge as the agent's tick is one: nobody goes without a verdict
        failed[rule.__name__] += 1
        log.exception("the rule %s failed and is left out", rule.__name__)
        return None
