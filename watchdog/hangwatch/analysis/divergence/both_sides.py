"""Whether what one side of a fork is under, or in, held on the other side too or was called there. Pure.

Both come by the same code, in one iteration or in the next: what decides is which of them has begun how many.
"""

from __future__ import annotations

from hangwatch.analysis.divergence.frames import call_site, frame_in, is_program, same_function
from hangwatch.analysis.divergence.iterations import (
    LOOPS,
    begins_iteration_alone,
    count_iterations,
    has_called_inside,
    inside,
    iterations_ahead,
    steps_of,
)
from hangwatch.analysis.divergence.relate import Fork, Side, depends_only_on_loop_variable
from hangwatch.analysis.situation import Situation
from hangwatch.model.stacks import Frame


def holds_on_later_iterations(case: Situation, fork: Fork) -> bool:
    """Whether a side is under a condition on the iteration of a loop that a rank at another place has not reached yet:
    it holds for all on later iterations, and is not what they diverged by."""
    inside, outside = fork.sides
    at = inside.at
    if (
        fork.relation != "branch"
        or fork.block is None
        or at is None
        or counts_as_many(case, inside, outside)
        or not depends_only_on_loop_variable(fork.block, inside.path)
    ):
        return False
    loops = [(b, count) for b in at.blocks if (count := count_iterations(at, b)) is not None]
    for rank in (*case.blame.culprits, *case.blame.waiting) if loops else ():
        path = case.views[rank].frames if rank in case.views else ()
        called = call_site(case.side_frames(rank) or path)  # on NCCL its stack is further on
        there = frame_in(path, at) if called != call_site(inside.path) else None
        counts = [(count, count_iterations(there, b)) for b, count in loops] if there is not None else []
        if counts and all(theirs is not None and theirs <= mine for mine, theirs in counts):
            return True
    return False


def held_for_both(case: Situation, fork: Fork) -> bool:
    """Whether the other side was under the condition of the fork as well: that speaks of nothing but the iteration of a loop,
    and the other side is in a later one."""
    one, other = fork.sides
    at = one.at
    if fork.relation != "branch" or fork.block is None or at is None:
        return False
    there = frame_in(other.path, at)
    if there is None or not depends_only_on_loop_variable(fork.block, one.path):
        return False
    known = [ahead for b in at.blocks if (ahead := iterations_ahead(there, at, b)) is not None]
    if known:
        return next((ahead > 0 for ahead in known if ahead), False)
    around = {(b.kind, b.line) for b in there.blocks}
    if not all((b.kind, b.line) in around for b in at.blocks if b.kind in LOOPS):
        return False
    # Of a recorded call nothing counts the iteration. But they came from one call together, and the other is further down,
    # or it is to blame, in the next iteration already, and has called what is under the condition before.
    if there.line < at.line:
        again = other is fork.mine and begins_iteration_alone(case, other.rank, one.rank, there)
        return again and has_called_inside(case, other.rank, at, fork.block)
    return there.line > at.line and steps_of(case, one.rank, one.path, other.rank).before is not None


def called_in_addition(case: Situation, fork: Fork) -> bool:
    """Whether the culprit's operation is one that the other left nothing for: both are in the same iteration of all loops by now,
    the culprit has come by there, and the other has never called it. So neither has skipped an iteration, or had fewer."""
    mine, theirs = (case.views.get(side.rank) for side in (fork.mine, fork.theirs))
    site = call_site(fork.mine.path)
    if not case.blame.waiting or mine is None or theirs is None or site in {None, call_site(mine.frames)}:
        return False
    if any(call_site(o.frames or ()) == site for o in case.history.of(fork.theirs.rank)):
        return False
    rounds = [
        iterations_ahead(frame, other, block)
        for frame in mine.frames
        if is_program(frame)
        for block in frame.blocks
        if block.iterations is not None and (other := inside(theirs.frames, frame, block)) is not None
    ]
    return bool(rounds) and all(ahead == 0 for ahead in rounds)


def calls_it_elsewhere(case: Situation, fork: Fork) -> bool:
    """Whether, of two sides that wait for each other in two groups, the one outside of a condition has called what is under it.

    It was from the same place, and so by another way: the condition decides of when, and not of whether.
    """
    under, other = fork.sides
    site = call_site(under.path)
    if case.blame.shape != "cycle" or not {under.rank, other.rank} <= set(case.blame.culprits):
        return False
    if fork.relation != "branch" or fork.block is None or under.at is None or site == call_site((under.at,)):
        return False
    fronts = [case.views[side.rank].frontier for side in (under, other)]
    if len({front.group.key for front in fronts if front is not None}) < len(fronts):
        return False
    done = [o.frames or () for o in case.history.of(other.rank) if o.completed]
    return any(call_site(frames) == site and inside(frames, under.at, fork.block) is None for frames in done)


def counts_as_many(case: Situation, side: Side, other: Side) -> bool:
    """Whether a side has begun as many iterations as one that has left out nothing in between: its operation is one more.

    That is as many as the other side, where that comes to its own further down in the loop; one less where it has come by there.
    So it is against all who are where the other side is.
    """
    mine, theirs = side.at, other.at
    if mine is None or theirs is None or not same_function(mine, theirs) or case.ran_ahead(side.rank):
        return False
    shared = {(b.kind, b.line) for b in theirs.blocks}
    loops = [b for b in mine.blocks if b.iterations is not None and (b.kind, b.line) in shared]
    here = _at_line(case, side.rank, mine)
    if not loops or here is None:
        return False
    there = [
        _at_line(case, rank, theirs) for rank in {other.rank, *case.blame.waiting} - {side.rank} if rank in case.views
    ]
    ahead = {iterations_ahead(here, frame, loops[-1]) for frame in there if frame is not None}
    return ahead == {0 if mine.line < theirs.line else -1}


def _at_line(case: Situation, rank: int, frame: Frame) -> Frame | None:
    """What a rank's stack has of a function, where it is in the same line of it."""
    return next((f for f in case.views[rank].frames if f.line == frame.line and same_function(f, frame)), None)
