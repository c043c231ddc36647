"""All rules, in no order that matters. ``causes.precedence`` alone puts in order what they say of a case."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import ParamSpec, TypeVar

from hangwatch.analysis.case import Case
from hangwatch.causes.alternatives import alternatives
from hangwatch.causes.match import Match, Rule
from hangwatch.causes.precedence import order, with_alternatives
from hangwatch.causes.rules import unknown
from hangwatch.causes.rules.diverged import (
    checkpoint,
    evaluation,
    groups,
    operations,
    paths,
    sharded,
    thread_order,
)
from hangwatch.causes.rules.rank import (
    children,
    failing,
    lost,
    mutexes,
    requests,
    straggling,
    stuck,
    threads,
)
from hangwatch.hardware import causes as hardware
from hangwatch.serving import causes as serving
from hangwatch.training.analysis.case import TrainingCase
from hangwatch.training.causes import nonfinite, unlabelled

RULES: tuple[Rule, ...] = (
    checkpoint.checkpoint,
    children.child_stall,
    children.fork_deadlock,
    evaluation.tuple_labels,
    failing.failed_and_ending,
    failing.failed_and_handling,
    failing.failed_in_thread,
    groups.creation,
    groups.inversion,
    groups.left_out,
    groups.point_to_point,
    hardware.fabric,
    hardware.failed_device,
    hardware.hanging_device,
    hardware.own_communicator,
    lost.died,
    lost.early_exit,
    lost.init_missing,
    lost.left_over,
    lost.node_lost,
    lost.peer_world_lost,
    lost.raised,
    lost.stopped,
    lost.store_unreachable,
    mutexes.mutex_deadlock,
    operations.branches,
    operations.items,
    operations.message,
    operations.mismatch,
    operations.roots,
    operations.tensors,
    paths.ranks_diverged,
    requests.request_cycle,
    requests.waits_for_request,
    serving.engine_stalled,
    serving.waits_for_slot,
    sharded.generate_length,
    sharded.sharded_forward,
    straggling.busy_loop,
    straggling.compiling,
    straggling.rank0_work,
    straggling.straggler,
    stuck.blocked_io,
    stuck.dataloader,
    stuck.debugger,
    stuck.gil_held,
    thread_order.thread_order,
    threads.lock_deadlock,
    threads.task_stall,
    threads.thread_stall,
    unknown.unknown,
)

#: Why a training that runs learns nothing.
TRAINING_RULES: tuple[Callable[[TrainingCase], Match | None], ...] = (
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

#: Rules that raised, by name. None ever should: the agent counts them, and the tests allow none.
failed: Counter[str] = Counter()


def explain(case: Case) -> tuple[Match, ...]:
    """Return all that fits the case, the surest first. There is always one: ``unknown`` says what was seen."""
    return weigh(case, find_matches(case))


def find_matches(case: Case) -> list[Match]:
    """Return what the rules say of the case, in no order. No rule can know why a process that is not seen does not come."""
    return _apply((unknown.unknown,) if case.blame.shape == "outside" else RULES, case)


def weigh(case: Case, found: Sequence[Match]) -> tuple[Match, ...]:
    """Return the matches in order, with what the first of them may be mistaken for."""
    ordered = order(found)
    more = _guarded(alternatives, case, ordered[0]) if case.blame.shape != "outside" else None
    return with_alternatives(ordered, more or ())


def explain_training(case: TrainingCase) -> tuple[Match, ...]:
    """Return all that fits a training that learns nothing, the surest first; none only if every rule failed."""
    return order(_apply(TRAINING_RULES, case))


def _apply(rules: Sequence[Callable[[_C], Match | None]], case: _C) -> list[Match]:
    """Return what the rules say."""
    return [match for rule in rules if (match := _guarded(rule, case)) is not None]


def _guarded(rule: Callable[_P, _T | None], *args: _P.args, **kwargs: _P.kwargs) -> _T | None:
    """Return what a rule says. One that raises is left out and counted: no user may be left without the verdict."""
    try:
        return rule(*args, **kwargs)
    except Exception:  # whatever a rule does, the user gets a verdict
        failed[rule.__name__] += 1
        log.exception("the rule %s failed and is left out", rule.__name__)
        return None
