"""The ranks diverged: one side has left out a step, or a part of one, and is ahead of the others by it ever since."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hangwatch.analysis.case import Case
from hangwatch.analysis.divergence.both_sides import counts_as_many, held_for_both, holds_on_later_iterations
from hangwatch.analysis.divergence.call_sites import early_visit, is_new_place
from hangwatch.analysis.divergence.frames import by_rank, call_site, function_of, is_program
from hangwatch.analysis.divergence.iterations import (
    LOOPS,
    around,
    has_called_inside,
    inside,
    is_of_a_step,
    iterations_ahead,
    steps_of,
)
from hangwatch.analysis.divergence.loop import ends_data
from hangwatch.analysis.divergence.relate import (
    CONDITIONS,
    Fork,
    Side,
    catches,
    caught_around,
    decisive_blocks,
    depends_only_on_loop_variable,
    only_by_iteration,
    own_blocks,
    returning_guard,
    returns,
    rounds_between,
    tests_guard,
)
from hangwatch.analysis.places import package_of
from hangwatch.causes.evidence import at_fork, tell_values
from hangwatch.causes.rules.diverged.checkpoint import orientations
from hangwatch.causes.rules.diverged.groups import in_point_to_point
from hangwatch.causes.signature import Match, Signature
from hangwatch.model.stacks import Block, Frame

#: Rows that say only that a side is past a loop, or under a condition around it: less than how it left an iteration.
_SAYS_LESS_OF_A_LOOP = (
    "uneven-inputs/past-the-loop",
    "uneven-inputs/past-a-loop-further-down",
    "rank-conditional-collective/in-a-loop-unrecorded",
    "rank-conditional-collective/left-out-behind-a-loop",
    "rank-conditional-collective/loop-called-under-a-condition",
    "rank-conditional-collective/behind-a-loop",
)
#: Its data had not ended, and iterations that are counted say more than where a condition is.
AS_MANY_ITERATIONS = Signature(
    "skipped-collective",
    "as-many-iterations",
    "strong",
    beats=_SAYS_LESS_OF_A_LOOP,
)
#: The same line in two iterations: one was left out, whatever its tensors are like.
ITERATION_AHEAD = Signature("skipped-collective", "iteration-ahead", "certain")
#: The loop has a way out by which an iteration is cut short, and batches are even as a rule.
CAUGHT = Signature(
    "skipped-collective",
    "exception-caught-in-the-loop",
    "strong",
    beats=_SAYS_LESS_OF_A_LOOP,
)
#: The loop has a way out by which an iteration is cut short, and batches are even as a rule.
LEFT_OUT_BY_DATA = Signature(
    "skipped-collective",
    "left-out-by-data",
    "strong",
    beats=_SAYS_LESS_OF_A_LOOP,
)
#: Its data had not ended.
LEFT_MID_ITERATION = Signature(
    "skipped-collective",
    "left-mid-iteration",
    "strong",
    beats=_SAYS_LESS_OF_A_LOOP,
)
#: It always came there with the others, after as many operations: no condition made the difference.
EARLY_BY_SKIP = Signature(
    "skipped-collective",
    "early-by-a-guard",
    "strong",
    beats=(
        "rank-conditional-collective/expression",
        "checkpoint-on-some-ranks/under-a-condition",
        "checkpoint-on-some-ranks/on-one-way",
        "group-order-inversion/opposite-order",
    ),
)
#: It always came there with the others, after as many operations: no condition made the difference.
EARLY_BY_COUNT = Signature(
    "skipped-collective",
    "early-by-count",
    "strong",
    beats=(
        "rank-conditional-collective/expression",
        "checkpoint-on-some-ranks/under-a-condition",
        "checkpoint-on-some-ranks/on-one-way",
        "group-order-inversion/opposite-order",
    ),
)
#: What was left out is usual on both sides.
USUAL_BLOCK = Signature(
    "skipped-collective", "usual-block-left-out", "strong", beats=("rank-conditional-collective/expression",)
)
#: What was left out is usual on both sides.
JUMPED = Signature("skipped-collective", "jumped-a-guard", "strong", beats=("rank-conditional-collective/expression",))
PASSED_BY = Signature("skipped-collective", "passed-by", "strong")
#: It was under the condition too, so that made no difference.
LEFT_IN_AN_EARLIER_ITERATION = Signature("skipped-collective", "left-in-an-earlier-iteration", "strong")
#: Nothing else leads past the call.
CAUGHT_ON_THE_WAY = Signature(
    "skipped-collective",
    "exception-caught-on-the-way",
    "strong",
    beats=("checkpoint-on-some-ranks/on-one-way", "rank-conditional-collective/expression"),
)
CAUGHT_BEFORE_NEXT_ROUND = Signature("skipped-collective", "exception-caught-before-the-next-round", "strong")
#: It has been under that condition before, with the others.
EARLY = Signature("skipped-collective", "early", "likely", beats=("rank-conditional-collective",))
LATER_ITERATION = Signature("skipped-collective", "holds-on-later-iterations", "likely")
LATER_ITERATION_BEHIND = Signature("skipped-collective", "holds-on-later-iterations-behind", "possible")
#: The loop has a way out by which an iteration is cut short, and batches are even as a rule.
IN_THE_TRAINER = Signature("skipped-collective", "in-the-trainer", "likely", beats=("uneven-inputs",))
JUMPED_ON_A_TIE = Signature("skipped-collective", "jumped-a-guard-on-a-tie", "likely")
UNSYNCED = Signature("skipped-collective", "under-no-sync", "likely")
GUARDED = Signature("skipped-collective", "guard-in-the-loop", "likely")
#: The iteration goes on: a condition decided of one collective, and not of the step.
BESIDE_THE_STEP = Signature("skipped-collective", "left-out-beside-the-step", "possible")
EARLY_ANOTHER_WAY = Signature("skipped-collective", "early-by-another-way", "possible")
EARLY_ONCE = Signature("skipped-collective", "early-once", "possible")


#: ``if step % self.every:``, however it goes on.
_EVERY = re.compile(r"^(?:el)?if (?:not )?[^(]*%[^(]*:")
#: A loop that may begin at another number on each rank: ``range(start, 100)``.
_RESUMES = re.compile(r"\brange\((?!\d+,)[^(),]+,|\bstart=(?!\d+\))")
#: ``if step % log_every == 0:``, with nothing that is called.
_PERIODIC = re.compile(r"^[^(]*%[^(]*==\s*\w+\s*:$")


def skipped(case: Case) -> Match | None:
    """One side skipped part of an iteration of the loop, or reached a place sooner than ever before."""
    fork = case.fork
    if fork is None or (fork.ranked and fork.relation != "skip"):
        return None
    if fork.relation == "loop":
        return _skipped_iteration(case, fork)
    if fork.relation == "same":
        return _iteration_ahead(case, fork)
    mine = case.views.get(fork.mine.rank)
    if mine is not None and in_point_to_point(mine):
        return None  # it is no operation of all that it has reached
    inside, outside = fork.sides
    if fork.block is not None and holds_on_later_iterations(case, fork):
        said = (
            f"Rank {inside.rank} is at what `{fork.block.text}` brings to every rank on its own iteration, rank "
            f"{outside.rank} is not: "
            f"one of them has left out an operation before."
        )
        # Who has left one out is ahead in its iterations, and not behind.
        is_behind = bool(case.blame.waiting) and outside.rank == fork.mine.rank
        return Match(LATER_ITERATION_BEHIND if is_behind else LATER_ITERATION, said, at_fork(case, fork))
    later = fork.block is not None and held_for_both(case, fork) and only_by_iteration(inside, outside)
    if later and fork.block is not None and not _returns_early(fork):
        caught = caught_around(inside, outside)
        how = f"; the `try` in line {caught.line} may have caught an exception" if caught is not None else ""
        said = (
            f"Rank {outside.rank} has been under `{fork.block.text}` too, as it is in a later iteration, and has left out what "
            f"rank {inside.rank} is in{how}."
        )
        return Match(LEFT_IN_AN_EARLIER_ITERATION, said, at_fork(case, fork))
    left_out = fork.relation == "branch" and fork.only == fork.theirs.rank and _usual(case, fork)
    if left_out and fork.block is not None and not _returns_early(fork):
        said = (
            f"Rank {fork.mine.rank} has left out what is under `{fork.block.text}`, where it has been with the others in "
            f"iterations before, and is ahead of them."
        )
        thrown = _caught_every_so_often(fork)
        said += _tell_caught(thrown)
        row = USUAL_BLOCK if is_of_a_step(fork.theirs.tail) or thrown is not None else BESIDE_THE_STEP
        return Match(row, said + tell_values(case, fork), at_fork(case, fork))
    for side, other in orientations(case, fork):
        early = early_visit(case, side.rank, other.rank, repeats=_own_loop(side, other))
        if early is None or counts_as_many(case, side, other):
            continue
        lead = f" by {early.by} operation{'s' if early.by > 1 else ''}" if early.by else ""
        before = "once" if early.visits == 1 else f"{early.visits} times"
        said = (
            f"Rank {side.rank} has reached {early.place} too early{lead}: {before} before, "
            f"both sides reached it at the same number."
        )
        row = EARLY_BY_SKIP if fork.relation == "skip" else EARLY_BY_COUNT if early.by else EARLY
        own = fork.block if fork.relation == "branch" and fork.only == side.rank else None
        if not early.by and own is not None and not depends_only_on_loop_variable(own, side.path):
            row = EARLY_ONCE  # once before is no habit, and it came by a condition of its own
        if early.visits == 1 and not early.by and _in_next_round(fork, other, side):
            row = EARLY_ONCE
        if _took_another_way(fork, side):
            row = EARLY_ANOTHER_WAY
        if not early.by and _is_new_behind_a_guard(case, fork):
            row = EARLY_ONCE  # so far all have left by that guard, and now one side has not
        return Match(row, said, at_fork(case, fork))
    passed = _caught_on_the_way(case, fork)
    if passed is not None:
        ahead, behind, caught = passed
        said = (
            f"Rank {ahead} is past what rank {behind} is in, under no condition, and the `try` in line {caught.line} is around "
            f"that: an exception there may have been caught."
        )
        return Match(CAUGHT_ON_THE_WAY, said, at_fork(case, fork))
    if (fork.relation == "order" or _may_have_left(fork)) and _passed_by(case, fork):
        said = (
            f"Rank {fork.mine.rank} is past the place rank {fork.theirs.rank} is at without the operation there, which it has "
            f"called together with the others before."
        )
        return Match(PASSED_BY, said + _tell_caught(_caught_every_so_often(fork)), at_fork(case, fork))
    if fork.relation != "skip" or fork.block is None:
        return None
    past, jumped = fork.sides
    if tests_guard(fork) and is_new_place(case, fork.mine.rank, call_site(fork.mine.path)):
        return None  # it has not jumped it yet: what it is in is called for the test
    said = (
        f"Rank {past.rank} is past `{fork.block.text}` in its iteration of the loop, rank {jumped.rank} is not there: it has "
        f"skipped the rest of an iteration and is ahead."
    )
    return Match(JUMPED if fork.sure else JUMPED_ON_A_TIE, said + tell_values(case, fork), at_fork(case, fork))


def _tell_caught(block: Block | None) -> str:
    return f" The `{block.kind}` in line {block.line} may have caught an exception there." if block is not None else ""


def _caught_every_so_often(fork: Fork) -> Block | None:
    """What catches exceptions around the others' call, under nothing else than conditions on every so many iterations."""
    decisive = decisive_blocks(fork.theirs, fork.mine)
    if not all(_EVERY.match(b.text) or depends_only_on_loop_variable(b, fork.theirs.path) for b in decisive):
        return None
    return next((b for b in own_blocks(fork.theirs, fork.mine) if catches(b)), None)


def _took_another_way(fork: Fork, side: Side) -> bool:
    """Whether the others are under a condition in a function that this side has called as well, and gone through another way: it
    has left out nothing but what the condition is there for."""
    called = fork.relation == "branch" and fork.only != side.rank and not fork.sure
    if not called or fork.block is None or fork.block.kind not in CONDITIONS:
        return False
    return not depends_only_on_loop_variable(fork.block, side.path)


def _is_new_behind_a_guard(case: Case, fork: Fork) -> bool:
    """Whether one side is past a guard of the fork behind which neither has called anything before."""
    one, other = fork.sides
    block = fork.block
    if fork.relation != "branch" or block is None or block.kind != "guard":
        return False
    frame = around(one.path, block)
    return frame is not None and not any(has_called_inside(case, s.rank, frame, block) for s in (one, other))


def _own_loop(side: Side, other: Side) -> bool:
    """Whether a side is, or without its source may be, in a loop at the fork or below that the other is not in."""
    if side.at is None or other.at is None:
        return True
    shared = {(b.kind, b.line) for b in other.at.blocks}
    own = any(b.kind in LOOPS and (b.kind, b.line) not in shared for b in side.at.blocks)
    below = [f for f in side.tail[:-1] if is_program(f)]
    unread = any(f.source is None for f in (side.at, *below) if is_program(f))
    return own or unread or any(b.kind in LOOPS for f in below for b in f.blocks)


def _may_have_left(fork: Fork) -> bool:
    """Whether the others are past a guard by which the culprit may have left the function they are in."""
    return fork.block is not None and fork.block.kind == "guard" and not fork.sure and fork.only == fork.theirs.rank


def _caught_on_the_way(case: Case, fork: Fork) -> tuple[int, int, Block] | None:
    """The rank further down in one function, which it may have come to by an exception, the other, and what may have caught it.

    Of two sides that are both to blame it may be either; else it is the culprit's.
    """
    sides = [(fork.mine, fork.theirs), *([(fork.theirs, fork.mine)] if not case.blame.waiting else [])]
    for ahead, behind in sides if fork.relation == "order" else ():
        caught = caught_around(behind, ahead)
        if caught is not None and ahead.at is not None and behind.at is not None and ahead.at.line > behind.at.line:
            return ahead.rank, behind.rank, caught
    return None


def _passed_by(case: Case, fork: Fork) -> bool:
    """Whether the culprit is further down in one function, and has often been where the other is."""
    mine, theirs, there = fork.mine.at, fork.theirs.at, call_site(fork.theirs.path)
    if not case.blame.waiting or mine is None or theirs is None or there is None:
        return False
    if is_new_place(case, fork.mine.rank, call_site(fork.mine.path)):
        return False  # it has not reached the next thing too early: it is where no rank has ever been
    if mine.line <= theirs.line:
        # It may be in the next iteration of a loop already, having left out the rest of the one before.
        before = steps_of(case, fork.mine.rank, fork.mine.path, fork.theirs.rank).before
        last = next((f for f in (before.frames or () if before else ()) if function_of(f) == function_of(mine)), None)
        if last is None or not mine.line <= last.line < theirs.line:
            return False
    done = case.history.of(fork.mine.rank)
    return sum(o.completed and call_site(o.frames or ()) == there for o in done) >= 2


def _iteration_ahead(case: Case, fork: Fork) -> Match | None:
    """Both sides are in one operation, and the culprits in a later iteration than the others: by as many they have left out."""
    mine, theirs = (case.views.get(side.rank) for side in (fork.mine, fork.theirs))
    # On NCCL hosts run ahead of their devices: where they are counts only if both have called as much since.
    if not case.blame.waiting or mine is None or theirs is None or len(mine.pending) != len(theirs.pending):
        return None
    if in_point_to_point(mine):
        return None  # stages of a pipeline are in different iterations
    counted = ((f, b) for f in mine.frames for b in f.blocks if b.iterations is not None and not b.iterations.resumed)
    for frame, block in counted:
        there = inside(theirs.frames, frame, block) if _RESUMES.search(block.text) is None else None
        ahead = iterations_ahead(frame, there, block)
        if ahead is not None and ahead > 0:
            said = (
                f"Rank {fork.mine.rank} is {ahead} ahead in `{block.text}` and calls the same operation as rank "
                f"{fork.theirs.rank}: it has left out so many iterations."
            )
            return Match(ITERATION_AHEAD, said, at_fork(case, fork))
    return None


def _skipped_iteration(case: Case, fork: Fork) -> Match | None:
    """One side left the loop an iteration early, and the loop has a way to skip one: batches may have been even."""
    loop = case.loop
    if loop is None:
        return None
    past = loop.past.rank
    if loop.mid_iteration and loop.ranked is None and loop.unmet is None:
        said = (
            f"Rank {past} has begun the iteration of `{loop.block.text}` that rank {loop.inside.rank} is in, "
            f"and left the loop in the "
            f"midst of it: its data had not ended."
        )
        return Match(LEFT_MID_ITERATION, said, at_fork(case, fork))
    tried = caught_around(loop.past, loop.inside)
    if loop.ahead and tried is not None:
        said = (
            f"Rank {loop.inside.rank} is in `{loop.block.text}` again without what rank {past} is in, which the `try` in line "
            f"{tried.line} is around: an exception there may have been caught."
        )
        return Match(CAUGHT_BEFORE_NEXT_ROUND, said, at_fork(case, fork))
    count = loop.iteration_count
    if count is not None and count.fewer <= 0 and not (loop.visited is False and loop.conditions):
        said = (
            f"Rank {past} is past the loop `{loop.block.text}` and has been in as many iterations of it as rank "
            f"{loop.inside.rank}, "
            f"by `{count.counter}`: it has left out a collective on the way."
        )
        return Match(AS_MANY_ITERATIONS, said, at_fork(case, fork))
    if count is not None and count.fewer > 0 and not count.breaks:
        return None  # it had fewer
    guards = [
        b for b in loop.around if b.kind == "guard" and not b.text.endswith((" raise", " break")) and not ends_data(b)
    ]
    below = [f for f in loop.inside.tail[:-1] if is_program(f) and package_of(f) is None]
    within = below[: below.index(loop.frame)] if loop.frame in below else below
    inner = [*loop.around, *(b for f in below if f != loop.frame for b in (f.blocks if f in within else _in_loops(f)))]
    caught = next((b for b in inner if b.kind == "try"), None)
    if not guards and caught is not None and package_of(loop.frame) is None:
        said = (
            f"Rank {past} is one iteration ahead at the end of the loop: it skipped one by an exception that the `try` in line "
            f"{caught.line} caught, or it had fewer batches."
        )
        return Match(CAUGHT, said, at_fork(case, fork))
    unsynced = next((b for b in inner if b.kind == "with" and "no_sync" in b.text), None)
    if not guards and unsynced is not None:
        said = (
            f"Rank {past} is an operation ahead at the end of the loop: it may have had fewer batches, or one more of them "
            f"under `{unsynced.text}` (line {unsynced.line}), without the collective."
        )
        return Match(UNSYNCED, said, at_fork(case, fork))
    under = [b for f in below if f != loop.frame for b in f.blocks if b.kind in CONDITIONS or returns(b)]
    under = [b for b in under if not by_rank(b.text)]
    if not guards and under and package_of(loop.frame) is not None:
        said = (
            f"Rank {past} is one iteration of the trainer's loop ahead: it may have had fewer batches, or left out what rank "
            f"{loop.inside.rank} calls only past `{under[-1].text}` (line {under[-1].line})."
        )
        return Match(IN_THE_TRAINER, said, at_fork(case, fork))
    if (way := loop.left_out) is not None and package_of(loop.frame) is None:
        said = (
            f"Rank {past} is one iteration ahead at the end of the loop: it skipped iterations by `{way.text}` "
            f"(line {way.line}), "
            f"which comes before the collective, or it had fewer batches."
        )
        return Match(LEFT_OUT_BY_DATA, said, at_fork(case, fork))
    if not guards:
        return None
    said = (
        f"Rank {past} is one iteration ahead at the end of the loop: it may have had fewer batches, or skipped iterations by "
        f"`{guards[-1].text}` (line {guards[-1].line}), which comes before the collective."
    )
    return Match(GUARDED, said, at_fork(case, fork))


def _in_loops(frame: Frame) -> Sequence[Block]:
    """The blocks in a loop of a frame: what is around all its loops leads out of them."""
    return frame.blocks[next((i for i, b in enumerate(frame.blocks) if b.kind in LOOPS), len(frame.blocks)) :]


def _returns_early(fork: Fork) -> bool:
    """Whether a condition that speaks of the iteration alone is around a call of the program that may return before the
    collective: then it is that one's own condition that did not hold for all."""
    inside, _ = fork.sides
    block, at = fork.block, inside.at
    if block is None or at is None or at not in inside.path:
        return False
    if _PERIODIC.search(block.text) is None and not depends_only_on_loop_variable(block, inside.path):
        return False
    return returning_guard(inside.path[: inside.path.index(at)]) is not None


def _in_next_round(fork: Fork, ahead: Side, behind: Side) -> bool:
    """Whether one side is in the next iteration of a loop around both, by what counts it."""
    if ahead.at is None or behind.at is None or not fork.one_function:
        return False
    return rounds_between(ahead.at, behind.at) == 1


def _usual(case: Case, fork: Fork) -> bool:
    """Whether the side that is not under the condition was so in earlier iterations, and called what is under it.

    What returns from a function that does an iteration skips it as well.
    """
    inside, outside = fork.sides
    block = fork.block
    if block is None or inside.at is None:
        return False
    at = around(inside.path, block) if block.kind == "guard" and returns(block) else inside.at
    if at is None or (at != inside.at and package_of(at) is not None):
        return False  # a library's guard
    return has_called_inside(case, outside.rank, at, block)
