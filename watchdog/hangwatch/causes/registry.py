"""All rules, in no order that matters, and what they say of a case: ``scoring`` alone puts that in order."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import ParamSpec, TypeVar

from hangwatch.analysis.case import Case
from hangwatch.analysis.training.case import TrainingCase
from hangwatch.causes.alternatives import alternatives
from hangwatch.causes.rules.diverged import (
    checkpoint,
    conditional,
    evaluation,
    groups,
    operations,
    passes,
    sharded,
    skipped,
    thread_order,
    uneven,
)
from hangwatch.causes.rules.job import hardware, nodes, serving, unknown
from hangwatch.causes.rules.rank import (
    children,
    failing,
    lost,
    meeting,
    requests,
    straggling,
    stuck,
    tasks,
    threads,
    worlds,
)
from hangwatch.causes.scoring import order, with_alternatives
from hangwatch.causes.signature import Match, Rule, TrainingRule
from hangwatch.causes.training import nonfinite, unlabelled

RULES: tuple[Rule, ...] = (
    checkpoint.checkpoint,
    children.child_stall,
    children.fork_deadlock,
    conditional.conditional,
    evaluation.tuple_labels,
    failing.failed_and_ending,
    failing.failed_and_handling,
    failing.failed_in_thread,
    failing.thrown_out,
    groups.creation,
    groups.inversion,
    groups.point_to_point,
    hardware.fabric,
    hardware.failed_device,
    lost.died,
    lost.early_exit,
    lost.init_missing,
    lost.left_over,
    lost.raised,
    lost.stopped,
    meeting.store_unreachable,
    nodes.node_lost,
    operations.branches,
    operations.mismatch,
    operations.tensors,
    passes.had_fewer_passes,
    passes.left_out_a_pass,
    requests.waits_for_request,
    serving.engine_stalled,
    sharded.generate_length,
    sharded.sharded_forward,
    skipped.skipped,
    straggling.busy_loop,
    straggling.compiling,
    straggling.rank0_work,
    straggling.straggler,
    stuck.blocked_io,
    stuck.dataloader,
    stuck.debugger,
    stuck.gil_held,
    tasks.task_stall,
    thread_order.thread_order,
    threads.lock_deadlock,
    threads.thread_stall,
    uneven.uneven_inputs,
    unknown.unknown,
    worlds.peer_world_lost,
)

#: Why a training that runs learns nothing.
TRAINING_RULES: tuple[TrainingRule, ...] = (
    nonfinite.data_mix,
    nonfinite.loss_nan,
    nonfinite.lr_frozen,
    nonfinite.never_finite,
    nonfinite.overlap_comm,
    nonfinite.poisoned,
    unlabelled.masked_labels,
)

log = logging.getLogger("hangwatch")

_C = TypeVar("_C", Case, TrainingCase)
_T = TypeVar("_T")
_P = ParamSpec("_P")

#: Rules that raised, by name. None ever should; the agent counts them, and the tests hold it at none.
failed: Counter[str] = Counter()


def explain(case: Case) -> tuple[Match, ...]:
    """All that fits the case, the surest first. There is always one: ``unknown`` says what was seen."""
    if case.blame.shape == "outside":
        # Why a process that is not seen does not come, no rule can know.
        return order(_apply((unknown.unknown,), case))
    found = order(_apply(RULES, case))
    more = _guarded(alternatives, case, found[0]) or ()
    return with_alternatives(found, more)


def explain_training(case: TrainingCase) -> tuple[Match, ...]:
    """All that fits a training that learns nothing, the surest first; none only where every rule failed."""
    return order(_apply(TRAINING_RULES, case))


def _apply(rules: Sequence[Callable[[_C], Match | None]], case: _C) -> list[Match]:
    """What the rules say."""
    return [match for rule in rules if (match := _guarded(rule, case)) is not None]


def _guarded(rule: Callable[_P, _T | None], *args: _P.args, **kwargs: _P.kwargs) -> _T | None:
    """What the rule says. One that raises is left out and counted: no user may be left without the verdict."""
    try:
        return rule(*args, **kwargs)
    except Exception:  # an edge as the agent's tick is one: no user goes without a verdict
        failed[rule.__name__] += 1
        log.exception("the rule %s failed and is left out", rule.__name__)
        return None
