"""One side is under a condition that does not hold on the other, and a collective with it."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise

from hangwatch.analysis.case import Case
from hangwatch.analysis.divergence.both_sides import called_in_addition, calls_it_elsewhere, holds_on_later_iterations
from hangwatch.analysis.divergence.call_sites import calls_usual_operation, comes_as_ever, early_visit, is_new_place
from hangwatch.analysis.divergence.expressions import is_called_in_part
from hangwatch.analysis.divergence.find import side_path
from hangwatch.analysis.divergence.frames import by_rank, call_site, is_parameter_loop, is_program
from hangwatch.analysis.divergence.iterations import inside, is_of_a_step, steps_of
from hangwatch.analysis.divergence.loop import Loop, over_keys
from hangwatch.analysis.divergence.relate import (
    CONDITIONS,
    Fork,
    Side,
    catches,
    condition_of,
    depends_only_on_loop_variable,
    is_decisive,
    own_blocks,
    returning_guard,
    returns,
    tests_guard,
)
from hangwatch.analysis.divergence.values import deciding_values
from hangwatch.analysis.places import bare, package_of
from hangwatch.causes.evidence import at_fork, named, tell_values
from hangwatch.causes.rules.diverged.groups import in_point_to_point, in_schedule, left_schedule
from hangwatch.causes.signature import Match, Signature
from hangwatch.model.stacks import Block, Frame

#: The condition says itself that it is not the same on all ranks.
BY_RANK = Signature(
    "rank-conditional-collective",
    "condition-by-rank",
    "strong",
    beats=("skipped-collective", "group-order-inversion/opposite-order"),
    decides=True,
)
#: The condition says itself that it is not the same on all ranks.
EXPRESSION_BY_RANK = Signature(
    "rank-conditional-collective",
    "expression-by-rank",
    "strong",
    beats=("skipped-collective", "group-order-inversion/opposite-order"),
    decides=True,
)
#: The condition says itself that it is not the same on all ranks.
BEHIND_LOOP_BY_RANK = Signature(
    "rank-conditional-collective", "behind-a-loop-by-rank", "strong", beats=("skipped-collective",)
)
#: The loop was gone through without what is under the condition.
IN_LOOP = Signature("rank-conditional-collective", "in-a-loop", "strong", beats=("skipped-collective",))
#: The condition says itself that it is not the same on all ranks.
BY_RANK_BELOW = Signature(
    "rank-conditional-collective",
    "condition-by-rank-further-down",
    "strong",
    beats=("skipped-collective", "group-order-inversion/opposite-order"),
)
#: There was no want of data: as many iterations lead there.
AS_EVER = Signature(
    "rank-conditional-collective",
    "as-many-operations-as-ever",
    "strong",
    beats=("uneven-inputs/past-the-loop", "uneven-inputs/past-a-loop-further-down"),
)
IN_LOOP_UNRECORDED = Signature("rank-conditional-collective", "in-a-loop-unrecorded", "strong")
LEFT_OUT_BEHIND = Signature("rank-conditional-collective", "left-out-behind-a-loop", "strong")
#: The line itself says why it was passed.
EXPRESSION = Signature("rank-conditional-collective", "expression", "strong", beats=("skipped-collective/passed-by",))
LOOP_CALLED = Signature("rank-conditional-collective", "loop-called-under-a-condition", "strong")
BEHIND_LOOP = Signature("rank-conditional-collective", "behind-a-loop", "strong")
#: It has come no further than the other since: it has called one operation more.
IN_ADDITION = Signature(
    "rank-conditional-collective",
    "called-in-addition",
    "strong",
    beats=("uneven-inputs/past-the-loop", "uneven-inputs/past-a-loop-further-down"),
)
#: What its variables hold says it: it holds on one side and not on the other.
BY_VALUE = Signature(
    "rank-conditional-collective",
    "condition-by-value",
    "strong",
    beats=("skipped-collective/usual-block-left-out",),
)
#: It has had as many iterations, but has counted something else.
OWN_COUNT = Signature(
    "rank-conditional-collective", "own-count", "strong", beats=("skipped-collective/as-many-iterations",)
)
#: Its last operation was of the same row: what decides is what the row goes over, or a condition in it.
ROW_LEFT_SOONER = Signature(
    "rank-conditional-collective",
    "row-left-sooner",
    "strong",
    beats=(
        "skipped-collective/early",
        "skipped-collective/early-by-count",
        "skipped-collective/early-by-a-guard",
        "uneven-inputs/past-the-loop",
        "uneven-inputs/past-a-loop-further-down",
    ),
)
#: It comes to that place after one operation less: the one that it returned before, and no step.
HELPER_RETURNED = Signature(
    "rank-conditional-collective",
    "returned-from-a-helper",
    "strong",
    beats=(
        "skipped-collective/early-by-count",
        "skipped-collective/early-by-a-guard",
        "skipped-collective/left-mid-iteration",
    ),
)
#: Something there refers to the object still.
NOT_DESTROYED = Signature("rank-conditional-collective", "not-destroyed", "strong", beats=("skipped-collective",))
ON_CULPRIT = Signature("rank-conditional-collective", "condition-on-the-culprit", "likely")
ON_A_TIE = Signature("rank-conditional-collective", "condition-on-a-tie", "likely")
#: The others have gone through that loop to its end, and on to its next round.
NEW_PLACE_IN_LOOP = Signature(
    "rank-conditional-collective",
    "new-place-in-a-loop",
    "strong",
    beats=("uneven-inputs/past-the-loop", "uneven-inputs/past-a-loop-further-down"),
)
NEW_PLACE = Signature("rank-conditional-collective", "new-place", "likely")
#: The other side was never in that loop, or not for data.
NEVER_IN_LOOP = Signature("rank-conditional-collective", "never-in-the-loop", "likely", beats=("uneven-inputs",))
#: The same.
KEYED_LOOP = Signature("rank-conditional-collective", "loop-over-keys", "likely", beats=("uneven-inputs",))
ON_OTHERS = Signature("rank-conditional-collective", "condition-on-the-others", "likely")
#: The same.
OWN_WHILE = Signature("rank-conditional-collective", "while-loop-of-its-own", "likely", beats=("uneven-inputs",))
#: The same.
PAST_GUARD = Signature("rank-conditional-collective", "past-a-guard", "likely", beats=("uneven-inputs",))
LEFT_OUT_BEHIND_UNREAD = Signature("rank-conditional-collective", "left-out-behind-a-loop-unread", "likely")
#: It came sooner by that condition, or only once before.
BELOW = Signature("rank-conditional-collective", "condition-further-down", "possible", beats=("skipped-collective",))
#: Those who wait are in a pipeline's schedule, which all ranks follow.
OUT_OF_A_PIPELINE = Signature("rank-conditional-collective", "out-of-a-pipeline", "likely")
LATER_ITERATION = Signature("rank-conditional-collective", "holds-on-later-iterations", "possible")
#: Who has left out a collective would be ahead in its iterations.
COUNTED_OTHERWISE = Signature("rank-conditional-collective", "iterations-counted-otherwise", "likely")
#: Of so many conditions around a call, the innermost: which of them decides is not known.
_NAMED = 3
_DESTRUCTOR = "__del__"


#: A function that keeps what it has found: ``if key in self.tables: return``.
_KEPT = re.compile(r"if [^:]* in [\w.]+: return$")


def conditional(case: Case) -> Match | None:
    """One side is under a condition that does not hold on the other."""
    fork = case.fork
    if fork is None:
        return None
    dying = next((f for f in fork.theirs.tail if bare(f) == _DESTRUCTOR), None)
    if dying is not None and case.blame.waiting and all(bare(f) != _DESTRUCTOR for f in fork.mine.tail):
        said = (
            f"Rank {fork.theirs.rank} calls a collective as an object is destroyed, in `{dying.function}`; rank {fork.mine.rank} "
            f"has not: something there refers to the object still."
        )
        return _match(case, NOT_DESTROYED, said, replace(fork, block=None))
    own = [b for b in own_blocks(fork.mine, fork.theirs) if b.kind in CONDITIONS and is_decisive(b)]
    mine = case.views.get(fork.mine.rank)
    sends = mine is not None and in_point_to_point(mine)  # which is meant to differ by rank
    if own and not sends and called_in_addition(case, fork):
        said = (
            f"Rank {fork.mine.rank} has called a collective under {' and '.join(named(b) for b in own[-_NAMED:])} that rank "
            f"{fork.theirs.rank} has not, and both are in the same iteration by now: nobody has skipped one."
        )
        return _match(case, IN_ADDITION, said, replace(fork, block=own[-1], only=fork.mine.rank))
    loop, partly = case.loop, _evaluated_in_part(case, fork)
    ranked = partly is not None and by_rank(partly[1].source or "")
    if not ranked and (part := _row_left_sooner(case, fork)) is not None:
        said = (
            f"Rank {fork.mine.rank} has called fewer collectives in `{part.text}` than rank {fork.theirs.rank}, which is in that "
            f"loop still: one of them was not called on every rank."
        )
        return _match(case, ROW_LEFT_SOONER, said, replace(fork, block=None))
    if (left := _left_a_helper(case, fork)) is not None:
        return _match(case, HELPER_RETURNED, left, replace(fork, block=None))
    if loop is not None and loop.inside is fork.mine and loop.behind_in_rounds and _alone_in_a_place(case, fork, loop):
        return _new_place(case, fork, NEW_PLACE_IN_LOOP)
    if loop is not None and not ranked:
        return _conditional_in_loop(case, fork, loop)
    if partly is not None:
        side, frame = partly
        how = "by what it says of the rank" if ranked else "depending on what comes before it"
        said = f"Rank {side.rank} is in `{frame.source}`, where a collective is called or not {how}; the other side is not."
        return _match(case, EXPRESSION_BY_RANK if ranked else EXPRESSION, said, replace(fork, block=None))
    if (fork.relation == "order" or tests_guard(fork)) and _alone_in_a_place(case, fork):
        return _new_place(case, fork, NEW_PLACE)
    if left_schedule(case):
        return _out_of_a_pipeline(case, fork)
    if fork.relation != "branch" or fork.block is None or calls_it_elsewhere(case, fork):
        return None
    waits = [v.wait for side in (fork.mine, fork.theirs) if (v := case.views.get(side.rank)) is not None]
    under = case.views.get(fork.only) if fork.only is not None else None
    if any(w is not None and w.kind == "store" for w in waits) or (under is not None and in_point_to_point(under)):
        return None  # sends and receives are meant to differ by rank, and so are a store's set and get
    if fork.ranked:
        row = BY_RANK if fork.sure else BY_RANK_BELOW
    else:
        # Of two sides that are both to blame, which one is called mine says nothing.
        by_side = ON_A_TIE if not case.blame.waiting else ON_CULPRIT if fork.only == fork.mine.rank else ON_OTHERS
        by_value = any(v.plain for v in deciding_values(case, fork))
        row = BY_VALUE if by_value else by_side if fork.sure else BELOW
    whose = "the condition speaks of the rank" if fork.ranked else "it does not hold on every rank"
    under_it, _ = fork.sides
    what, where_is = ("came past", "did not, it seems") if fork.block.kind == "guard" else ("is under", "is not")
    lies = "behind" if fork.block.kind == "guard" else "in"
    said = f"Rank {under_it.rank} {what} `{fork.block.text}`, the other side {where_is}: {whose}, and a collective is {lies} it."
    deeper = _decisive_below(under_it, fork.block) if not fork.ranked else None
    if holds_on_later_iterations(case, fork):
        row = LATER_ITERATION  # it holds for all on later iterations
        if case.blame.waiting and under_it.rank == fork.theirs.rank:
            row = COUNTED_OTHERWISE
            said += f" Rank {fork.mine.rank} has called as many collectives, and counts fewer iterations."
    if not fork.ranked and (tried := next((b for b in own_blocks(*fork.sides) if catches(b)), None)) is not None:
        said += f" Or the `try` in line {tried.line} has caught an exception on the other side."
    if deeper is not None:
        said += f" What decides is likely `{deeper.text}` (line {deeper.line}), which it is past."
    return _match(case, row, said, fork)


def _match(case: Case, row: Signature, said: str, fork: Fork) -> Match:
    """The match, with what the condition's variables hold on both sides."""
    return Match(row, said + tell_values(case, fork), at_fork(case, fork))


def _out_of_a_pipeline(case: Case, fork: Fork) -> Match | None:
    """The culprit calls a collective under a condition, and the others are in the next step of the pipeline."""
    mine, theirs = fork.mine, fork.theirs
    if in_schedule(case.views[mine.rank]):  # one against one: which of them is called mine says nothing
        mine, theirs = theirs, mine
    own = (b for b in reversed(own_blocks(mine, theirs)) if b.kind in CONDITIONS)
    block = next((b for b in own if not depends_only_on_loop_variable(b, mine.path)), None)
    if block is None:
        return None
    said = (
        f"Rank {mine.rank} is under `{block.text}` in a collective of all ranks, and the others are in the next step of the "
        f"pipeline."
    )
    return _match(case, OUT_OF_A_PIPELINE, said, replace(fork, block=block, only=mine.rank))


def _evaluated_in_part(case: Case, fork: Fork) -> tuple[Side, Frame] | None:
    """The side inside an expression that may be left half-way (``and``, ``or``, ``any``, ``.. if .. else ..``), and its line."""
    for side, other in ((fork.theirs, fork.mine), (fork.mine, fork.theirs)):
        view = case.views.get(side.rank)
        if view is not None and in_point_to_point(view):
            continue  # sends and receives are meant to differ by rank
        frames = [f for f in side.tail if is_program(f)]
        # What the deepest of them calls is a library's.
        libraries = side.tail[: side.tail.index(frames[0])] if frames else ()
        for callee, frame in pairwise((*libraries[-1:], *frames)):
            partly = is_called_in_part(frame.source or "", bare(callee))
            if partly and not any((f.file, f.line) == (frame.file, frame.line) for f in other.path):
                return side, frame
    return None


def _row_left_sooner(case: Case, fork: Fork) -> Block | None:
    """A loop over keys, or over parameters with a condition, that calls a collective for each: the others are in it, and the
    culprit's last operation was of it, called together with them."""
    before = steps_of(case, fork.mine.rank, fork.mine.path, fork.theirs.rank).before if case.blame.waiting else None
    if before is None:
        return None
    for frame in side_path(case, fork.theirs.rank)[: len(fork.theirs.tail)]:
        for index, block in enumerate(frame.blocks):
            over_some = over_keys(frame, block) or (
                block.kind == "for"
                and is_parameter_loop(block.text)
                and any(b.kind in CONDITIONS for b in frame.blocks[index + 1 :])
            )
            mine = inside(fork.mine.path, frame, block) is not None
            if over_some and not mine and inside(before.frames or (), frame, block) is not None:
                return block
    return None


def _new_place(case: Case, fork: Fork, row: Signature) -> Match:
    said = f"Rank {fork.mine.rank} is in a collective at a place where none was called before, on any rank."
    below = next((b for b in reversed(own_blocks(fork.mine, fork.theirs)) if b.kind in CONDITIONS), None)
    if below is not None:
        said += f" It is under `{below.text}` (line {below.line}) there."
    return _match(case, row, said, fork)


def _alone_in_a_place(case: Case, fork: Fork, loop: Loop | None = None) -> bool:
    """Whether the culprit's call is from a place that is new to all ranks, and the others' from one that is not.

    Of a backward on NCCL the latter is no place, but an operation: one that ends a ``loop`` on the others may come before it.
    """
    mine, theirs = fork.mine.rank, call_site(fork.theirs.path)
    usual = (
        any(call_site(o.frames or ()) == theirs for o in case.history.of(mine) if o.completed) and theirs is not None
    )
    usual = usual or (loop is not None and calls_usual_operation(case, fork.theirs.rank, mine))
    return bool(case.blame.waiting) and usual and is_new_place(case, mine, call_site(fork.mine.path))


def _decisive_below(side: Side, block: Block) -> Block | None:
    """A condition further down, where this one speaks only of loop variables, which are the same on every rank."""
    if not depends_only_on_loop_variable(block, side.path):
        return None
    below = (b for f in reversed(side.tail[:-1]) if is_program(f) for b in f.blocks)
    return next((b for b in below if b != block and (b.kind in CONDITIONS or b.kind == "guard")), None)


def _left_a_helper(case: Case, fork: Fork) -> str | None:
    """What there is to say where one side has returned from a function that calls one collective before that, and gone on."""
    if (guard := _returned_from_a_helper(case, fork)) is not None:
        return (
            f"Rank {fork.theirs.rank} is past `{guard.text}`, in a function that calls one collective and returns; rank "
            f"{fork.mine.rank} has called one less, and has gone on with the iteration."
        )
    if (guard := _kept_by_the_others(case, fork)) is not None:
        return (
            f"Rank {fork.mine.rank} is past `{guard.text}`, in a function that calls one collective and returns; the other side "
            f"has returned there before that."
        )
    return None


def _returned_from_a_helper(case: Case, fork: Fork) -> Block | None:
    """The guard that the others are past in a function further down, no step, where the culprit is ahead by its one call, or has
    left the loop in that iteration."""
    loop = case.loop
    if fork.relation == "loop" and loop is not None and loop.mid_iteration and loop.past is fork.mine:
        helped = case.blame.waiting and not is_of_a_step(loop.inside.tail)
        return returning_guard(loop.inside.tail[:-1]) if helped else None
    if fork.relation not in {"order", "skip"} or not case.blame.waiting or is_of_a_step(fork.theirs.tail):
        return None
    guard = returning_guard(fork.theirs.tail[:-1])
    early = early_visit(case, fork.mine.rank, fork.theirs.rank, repeats=False) if guard is not None else None
    return guard if early is not None and early.by == 1 else None


def _kept_by_the_others(case: Case, fork: Fork) -> Block | None:
    """The guard of a function that keeps what it has found, which the culprits alone are past, at its one call: the others had
    it still."""
    if fork.relation != "branch" or fork.sure or fork.only != fork.mine.rank or not case.blame.waiting:
        return None
    guard = returning_guard(fork.mine.tail[:-1])
    if guard is None or guard != fork.block or _KEPT.match(guard.text) is None:
        return None
    return guard if early_visit(case, fork.theirs.rank, fork.mine.rank) is not None else None


def _conditional_in_loop(case: Case, fork: Fork, loop: Loop) -> Match | None:
    """Only one side is in a loop still, at a collective under a condition there that the other never was under."""
    if in_point_to_point(case.views[loop.inside.rank]):
        return None
    why = returning_guard(loop.past.tail[:-1])
    if why is not None and comes_as_ever(case, loop.past.rank, loop.inside.rank):
        said = (
            f"Rank {loop.past.rank} has come past `{why.text}` to a collective after as many operations as ever, and rank "
            f"{loop.inside.rank} has gone on in `{loop.block.text}` without that."
        )
        return _match(case, AS_EVER, said, replace(fork, block=why, only=loop.past.rank))
    block = loop.ranked or loop.failed or loop.unmet
    row = IN_LOOP if loop.visited is not None else IN_LOOP_UNRECORDED
    if block is None and (behind := loop.behind) is not None:
        said = (
            f"Rank {loop.past.rank} is under `{behind.text}`, where rank {loop.inside.rank} has never been: that one is in the "
            f"next round of `{loop.block.text}`."
        )
        row = BEHIND_LOOP_BY_RANK if by_rank(behind.text) else BEHIND_LOOP
        return _match(case, row, said, replace(fork, block=behind, only=loop.past.rank))
    if block is None and (called := loop.called) is not None:
        said = (
            f"Rank {loop.inside.rank} is in `{loop.block.text}`, called under `{called.text}`, and rank {loop.past.rank} has "
            f"not come there with it."
        )
        return _match(case, LOOP_CALLED, said, replace(fork, block=called))
    if block is None and loop.visited is False and loop.conditions:
        block, row = loop.conditions[0], NEVER_IN_LOOP
    if block is None and (loop.fixed or loop.not_begun) and (guard := _guarded(loop.past)) is not None:
        said = (
            f"Rank {loop.past.rank} is past `{guard.text}` on its way to the collective; rank {loop.inside.rank} has left that "
            f"function, it seems, and has gone on."
        )
        return _match(case, PAST_GUARD, said, replace(fork, block=None))
    if block is None and loop.ahead:
        why = condition_of(loop.past, loop.inside)
        said = (
            f"Rank {loop.inside.rank} is in `{loop.block.text}` again; rank {loop.past.rank} is behind that loop still, in a "
            f"collective that the other has not called{f' (`{why.text}`)' if why is not None else ''}."
        )
        row = LEFT_OUT_BEHIND if why is not None else LEFT_OUT_BEHIND_UNREAD
        return _match(case, row, said, replace(fork, block=why))
    count = loop.iteration_count
    if (
        block is None
        and count is not None
        and count.fewer <= 0
        and (counted := _counts_its_own(loop.inside)) is not None
    ):
        said = (
            f"Rank {loop.inside.rank} is in a collective by `{counted.text}`, and rank {loop.past.rank}, which has had as many "
            f"iterations, has counted differently."
        )
        return _match(case, OWN_COUNT, said, fork)
    own = case.blame.waiting and fork.only == fork.mine.rank
    if block is None and own and loop.visited is False and loop.block.kind == "while":
        said = f"Rank {loop.inside.rank} is in `{loop.block.text}`, where rank {loop.past.rank} has never called a collective."
        return _match(case, OWN_WHILE, said, fork)
    if block is None and loop.keyed:
        more = f"`{loop.block.text}`, with a collective in each, than rank {loop.past.rank}"
        said = f"Rank {loop.inside.rank} has more iterations of {more}."
        return _match(case, KEYED_LOOP, said, fork)
    if block is None:
        return None
    said = (
        f"Rank {loop.inside.rank} is under {named(block)} in the loop `{loop.block.text}`, and the others have gone through "
        f"that loop without the collective in it."
    )
    return _match(case, row, said, replace(fork, block=block))


def _counts_its_own(side: Side) -> Block | None:
    """A condition further down on every so many of what no loop counts: ``if self.updates % self.every: return``."""
    frames = [f for f in side.tail[:-1] if is_program(f) and package_of(f) is None]
    blocks = (b for f in frames for b in f.blocks if b.kind in CONDITIONS or returns(b))
    return next((b for b in blocks if " % " in b.text and not depends_only_on_loop_variable(b, side.path)), None)


def _guarded(side: Side) -> Block | None:
    """A guard (``if ..: return``) in a function below the fork that the side has passed."""
    return next((b for f in side.tail[:-1] if is_program(f) for b in f.blocks if b.kind == "guard"), None)
