"""Where the call paths of the culprits and of the others part, by the stacks and records of a case."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import msgspec

from hangwatch.analysis.divergence.call_sites import first_difference
from hangwatch.analysis.divergence.iterations import LOOPS, above_model, over_modules, steps_of
from hangwatch.analysis.divergence.loop import Loop, loop_of
from hangwatch.analysis.divergence.relate import CONDITIONS, Fork, Side, is_given, relate
from hangwatch.analysis.places import call_site, function_of, is_program
from hangwatch.analysis.situation import Situation
from hangwatch.model.stacks import Block, Frame


def _part(ours: Sequence[Frame], theirs: Sequence[Frame]) -> tuple[tuple[Frame, ...], tuple[Frame, ...]]:
    """Return the parts of two paths below the last frame they share, each with its diverging frame last."""
    depth = 0
    for left, right in zip(reversed(ours), reversed(theirs), strict=False):
        if (function_of(left), left.line) != (function_of(right), right.line):
            break
        depth += 1
    return tuple(ours[: len(ours) - depth]), tuple(theirs[: len(theirs) - depth])


@dataclass(frozen=True)
class PathDivergence:
    """The fork between the culprits and the others, at the first operation that was issued from two places."""

    case: Situation
    fork: Fork

    @cached_property
    def loop(self) -> Loop | None:
        """Return the loop that only one of the two sides is in, seen from that side; None if the fork is no such one."""
        return loop_of(self.case, self.fork)


def find_divergence(case: Situation) -> PathDivergence | None:
    """Return where the paths of the two representatives diverge; None if one of the paths is unknown."""
    one, other = case.representatives
    fork = fork_of(case, one, other) if one is not None and other is not None else None
    return PathDivergence(case, fork) if fork is not None else None


def fork_of(case: Situation, one: int, other: int) -> Fork | None:
    """Return the fork between two ranks; None if one of the paths is unknown."""
    ours, theirs = side_path(case, one), side_path(case, other)
    earlier = first_difference(case, one, other)
    if earlier is not None:
        ours, theirs = _earlier(case, one, earlier.ours), _earlier(case, other, earlier.theirs)
    if not ours or not theirs:
        return None
    my_tail, their_tail = _part(ours, theirs)
    if _one_is_an_argument(ours[len(my_tail) :], my_tail, their_tail):
        # An argument is evaluated before the call: the two diverge in the line that they share.
        my_tail, their_tail = ours[: len(my_tail) + 1], theirs[: len(their_tail) + 1]
    mine = _decisive(case, one, ours, other, my_tail, their_tail)
    them = _decisive(case, other, theirs, one, their_tail, my_tail)
    mine, them = _in_loop(case, one, mine, them), _in_loop(case, other, them, mine)
    sides = (Side(one, (*mine, *ours[len(mine) :]), mine), Side(other, (*them, *theirs[len(them) :]), them))
    return replace(relate(*sides, tie=not case.blame.waiting), difference=earlier)


def _in_loop(case: Situation, rank: int, tail: tuple[Frame, ...], others: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """Return the tail in a loop whose header its last line is, if the rank has called an operation in it before.

    It takes the next item there, and the other side is not in the loop. ``others``: the other side's tail.
    """
    at, there = tail[-1] if tail else None, others[-1] if others else None
    if at is None or there is None or any(b.line == at.line for b in there.blocks):
        return tail
    inner = (f for o in case.history.of(rank) for f in o.frames or () if function_of(f) == function_of(at))
    loop = next((b for f in inner for b in f.blocks if b.kind in LOOPS and b.line == at.line), None)
    return (*tail[:-1], msgspec.structs.replace(at, blocks=(*at.blocks, loop))) if loop is not None else tail


def _one_is_an_argument(shared: Sequence[Frame], mine: Sequence[Frame], theirs: Sequence[Frame]) -> bool:
    """True if the shared line calls one side's function with the result of the other's: ``reduce(evaluate(model))``."""
    if not shared or not mine or not theirs or shared[0].source is None:
        return False
    return is_given(mine, theirs, shared[0].source) or is_given(theirs, mine, shared[0].source)


def _decisive(
    case: Situation, rank: int, path: tuple[Frame, ...], other: int, tail: tuple[Frame, ...], others: tuple[Frame, ...]
) -> tuple[Frame, ...]:
    """Return the tail without the blocks that explain nothing.

    These are loops over the parts of the model, and conditions that the other rank was under too in the very same
    visit. ``others``: the other rank's tail. A condition counts after all if that rank is in its other branch by now.
    """
    steps = steps_of(case, rank, path, other)
    model = len(path) - len(above_model(path))

    def decides(index: int, frame: Frame, block: Block) -> bool:
        if block.kind in LOOPS:
            return index >= model and not over_modules(path, index, block)
        return not (block.kind in CONDITIONS and steps.in_same_visit(frame, block)) or _is_left(frame, block, others)

    return tuple(
        msgspec.structs.replace(f, blocks=tuple(b for b in f.blocks if decides(i, f, b))) if is_program(f) else f
        for i, f in enumerate(tail)
    )


def _is_left(frame: Frame, block: Block, others: Sequence[Frame]) -> bool:
    """True if the other rank is in the other branch of an ``if`` by now."""
    branch = {"if": "else", "else": "if"}.get(block.kind)
    there = (b for f in others if function_of(f) == function_of(frame) for b in f.blocks)
    return any((b.kind, b.line) == (branch, block.line) for b in there)


def side_path(case: Situation, rank: int) -> tuple[Frame, ...]:
    """Return a rank's call path at the divergence: its live stack if that is at the same place, as it tells more."""
    recorded = case.side_frames(rank)
    now = case.views[rank].frames if rank in case.views else ()
    if recorded and call_site(now) == call_site(recorded):
        return now
    return _earlier(case, rank, recorded)


def _earlier(case: Situation, rank: int, path: Sequence[Frame]) -> tuple[Frame, ...]:
    """Return a rank's path of before, in the iterations in which the rank is now as far as it still is in the same calls."""
    return _with_callers(annotated(case, path), case.views[rank].frames if rank in case.views else ())


def _with_callers(recorded: tuple[Frame, ...], now: Sequence[Frame]) -> tuple[Frame, ...]:
    """Return a recorded path with its callers from the stack, if that is still in the same function: it tells more."""
    below, live = _part(recorded, now)
    if not below or not live or function_of(below[-1]) != function_of(live[-1]):
        return recorded
    return (*below, *now[len(live) :])


def annotated(case: Situation, path: Sequence[Frame]) -> tuple[Frame, ...]:
    """Return a recorded call path with the text and blocks of each line that any rank's live stack is in as well."""
    if all(f.source is not None for f in path):
        return tuple(path)
    read = {(f.file, f.line): f for v in case.views.values() for f in v.frames if f.source is not None}
    known = ((f, read.get((f.file, f.line))) for f in path)
    return tuple(
        msgspec.structs.replace(f, source=k.source, blocks=k.blocks, facts=k.facts) if k else f for f, k in known
    )
