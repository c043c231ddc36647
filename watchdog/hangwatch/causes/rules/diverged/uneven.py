"""One side is still in a loop over data, the other past it."""

from __future__ import annotations

from hangwatch.analysis.case import Case
from hangwatch.analysis.divergence.frames import is_parameter_loop
from hangwatch.analysis.divergence.iterations import LOOPS, batch_loop, begins_iteration_alone
from hangwatch.analysis.divergence.loop import Loop, over_keys
from hangwatch.analysis.divergence.relate import CONDITIONS, Fork, depends_only_on_loop_variable, own_blocks
from hangwatch.analysis.places import package_of
from hangwatch.causes.evidence import at_fork, tell_values
from hangwatch.causes.rules.diverged.groups import in_point_to_point, left_schedule
from hangwatch.causes.signature import Match, Signature
from hangwatch.model.stacks import Block

#: Iterations that are counted say more than what the loop looks like.
UNEVEN_COUNTED = Signature(
    "uneven-inputs",
    "fewer-iterations-counted",
    "strong",
    beats=("rank-conditional-collective", "generate-length-divergence/own-decoding-loop"),
    decides=True,
)
#: One side is past a loop: that is no matter of order.
PAST_LOOP = Signature("uneven-inputs", "past-the-loop", "strong", beats=("group-order-inversion/opposite-order",))
PAST_LOOP_BELOW = Signature("uneven-inputs", "past-a-loop-further-down", "strong")
BETWEEN_EPOCHS = Signature("uneven-inputs", "between-epochs", "likely")
OWN_OR_FIXED_LOOP = Signature("uneven-inputs", "loop-of-one-side-or-fixed", "likely")
POINT_TO_POINT = Signature("uneven-inputs", "point-to-point", "possible")
BY_A_CONDITION = Signature("uneven-inputs", "by-a-condition", "possible")
PARAMETER_LOOP = Signature("uneven-inputs", "parameter-loop", "possible")
AS_MANY = Signature("uneven-inputs", "as-many-iterations", "possible")
#: Both were in that loop, iteration by iteration: it was not a condition that kept one of them out.
RAN_OUT_BEFORE = Signature(
    "uneven-inputs",
    "left-between-iterations",
    "strong",
    beats=(
        "rank-conditional-collective/left-out-behind-a-loop",
        "rank-conditional-collective/left-out-behind-a-loop-unread",
        "skipped-collective/exception-caught-before-the-next-round",
    ),
)
#: A schedule takes as many steps on all ranks; a rank has left it at the end of its data.
LEFT_SCHEDULE = Signature(
    "uneven-inputs", "past-a-loop-of-a-pipeline", "strong", beats=("rank-conditional-collective", "skipped-collective")
)
NEXT_ROUND = Signature("uneven-inputs", "another-round", "possible")


def uneven_inputs(case: Case) -> Match | None:
    """One side is still in a loop, the other past it."""
    fork, loop = case.fork, case.loop
    data = _loop_of_pipeline(case, fork) if fork is not None else None
    if fork is not None and data is not None:
        said = (
            f"Rank {fork.mine.rank} has left the pipeline and is past the loop over its data, rank {fork.theirs.rank} is still "
            f"in `{data.text}` and needs it."
        )
        return Match(LEFT_SCHEDULE, said, at_fork(case, fork))
    if fork is None or fork.relation != "loop" or fork.block is None:
        return None
    inside, past = fork.sides
    said = f"Rank {past.rank} has left the loop `{fork.block.text}`, rank {inside.rank} is still in it and needs the others."
    row = _row_of(case, fork, loop)
    count = loop.iteration_count if loop is not None else None
    if loop is not None and count is not None:
        if count.fewer <= 0:
            row = AS_MANY  # as many iterations as the other, or more: there was no want of data
        elif row not in {POINT_TO_POINT, BY_A_CONDITION, PARAMETER_LOOP} and not (count.breaks or loop.fixed):
            row = UNEVEN_COUNTED
            said += f" It had {count.fewer} fewer iteration{'s' if count.fewer > 1 else ''}, by `{count.counter}`."
    elif loop is not None and loop.ahead:
        left = _left_between_iterations(case, loop)
        row = RAN_OUT_BEFORE if left is not None else NEXT_ROUND
        if left is not None:
            said = (
                f"Rank {inside.rank} has left the loop `{left.text}` between two iterations and has gone on to the next round of "
                f"`{loop.block.text}`; rank {past.rank} begins one iteration more and needs the others."
            )
    return Match(row, said + tell_values(case, fork), at_fork(case, fork))


def _loop_of_pipeline(case: Case, fork: Fork) -> Block | None:
    """The loop over data in which the others drive a pipeline, where the culprit is past it, or past its own."""
    if not left_schedule(case) or not fork.one_function or fork.mine.at is None:
        return None
    own = (b for b in own_blocks(fork.theirs, fork.mine) if b.kind in LOOPS and b.line < fork.mine.at.line)
    return next((b for b in own if not is_parameter_loop(b.text) and " in range(" not in b.text), None)


def _left_between_iterations(case: Case, loop: Loop) -> Block | None:
    """The loop over data that the side behind is in, where the other was in it just before, to the end of an iteration.

    That one has gone on to the next round of the loop around: its data had ended, and the other's has not. Keys that only one
    side has are no data: there a collective is called for each of them. Nor has it ended where a condition leaves some out.
    """
    behind, ahead = loop.past, loop.inside
    found = batch_loop(behind.tail)
    if found is None or in_point_to_point(case.views[behind.rank]):
        return None
    frame, block = found
    within = frame.blocks[frame.blocks.index(block) + 1 :] if package_of(frame) is None else ()
    may_leave_out = any(b.kind in CONDITIONS and not depends_only_on_loop_variable(b, behind.path) for b in within)
    if may_leave_out or over_keys(frame, block):
        return None
    return block if begins_iteration_alone(case, behind.rank, ahead.rank, frame) else None


def _row_of(case: Case, fork: Fork, loop: Loop | None) -> Signature:
    """What being past a loop says, before iterations are counted."""
    if fork.block is not None and is_parameter_loop(fork.block.text):
        return PARAMETER_LOOP
    if loop is not None and in_point_to_point(case.views[loop.inside.rank]):
        return POINT_TO_POINT
    by_condition = loop is not None and (loop.ranked or loop.behind or loop.failed or loop.keyed)
    if loop is not None and (by_condition or loop.mid_iteration or loop.not_begun):
        return BY_A_CONDITION
    if loop is not None and (loop.alone or loop.fixed):
        return OWN_OR_FIXED_LOOP
    if fork.block is not None and "epoch" in fork.block.text.partition(" in ")[0]:
        return BETWEEN_EPOCHS  # a decision to stop, rather than data that ended
    return PAST_LOOP if fork.sure else PAST_LOOP_BELOW
