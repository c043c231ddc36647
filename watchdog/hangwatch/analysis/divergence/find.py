"""Where the call paths of the culprits' side and the others' part, by the stacks and records of a case."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import msgspec

from hangwatch.analysis.divergence.both_sides import holds_on_later_iterations
from hangwatch.analysis.divergence.call_sites import first_difference
from hangwatch.analysis.divergence.frames import call_site, function_of, is_program
from hangwatch.analysis.divergence.iterations import LOOPS, above_model, over_modules, steps_of
from hangwatch.analysis.divergence.loop import Loop, loop_of
from hangwatch.analysis.divergence.relate import CONDITIONS, Fork, Side, is_given, relate
from hangwatch.analysis.situation import Situation
from hangwatch.model.stacks import Block, Frame


def _part(ours: Sequence[Frame], theirs: Sequence[Frame]) -> tuple[tuple[Frame, ...], tuple[Frame, ...]]:
    """The parts of two paths below the last frame they share, each with its diverging frame last."""
    depth = 0
    for left, right in zip(reversed(ours), reversed(theirs), strict=False):
        if (function_of(left), left.line) != (function_of(right), right.line):
            break
        depth += 1
    return tuple(ours[: len(ours) - depth]), tuple(theirs[: len(theirs) - depth])


@dataclass(frozen=True)
class PathDivergence:
    """The fork between the culprits' side and the others', at the first operation that was issued from two places.

    ``loop``: the loop that only one of them is in, seen from that side; None where the fork is no such one.
    """

    case: Situation
    fork: Fork

    @cached_property
    def loop(self) -> Loop | None:
        """See above; asked for by few, so found when it is."""
        return loop_of(self.case, self.fork)

    @cached_property
    def holds_on_later_iterations(self) -> bool:
        """Whether the condition of the fork holds for every rank on its own iteration; see the function of this name."""
        return holds_on_later_iterations(self.case, self.fork)


def find_divergence(case: Situation) -> PathDivergence | None:
    """Where the two representatives' paths diverge; None where one of the paths is unknown."""
    one, other = case.representatives
    fork = fork_of(case, one, other) if one is not None and other is not None else None
    return PathDivergence(case, fork) if fork is not None else None


def fork_of(case: Situation, one: int, other: int) -> Fork | None:
    """The fork between two ranks; None where one of the paths is unknown."""
    ours, theirs = side_path(case, one), side_path(case, other)
    earlier = first_difference(case, one, other)
    if earlier is not None:
        ours, theirs = annotated(case, earlier.ours), annotated(case, earlier.theirs)
    if not ours or not theirs:
        return None
    my_tail, their_tail = _part(ours, theirs)
    if _one_is_an_argument(ours[len(my_tail) :], my_tail, their_tail):
        # What a call is given is worked out before it: they diverge in the line that they share.
        my_tail, their_tail = ours[: len(my_tail) + 1], theirs[: len(their_tail) + 1]
    mine = _decisive(case, one, ours, other, my_tail, their_tail)
    them = _decisive(case, other, theirs, one, their_tail, my_tail)
    sides = (Side(one, (*mine, *ours[len(mine) :]), mine), Side(other, (*them, *theirs[len(them) :]), them))
    return relate(*sides, tie=not case.blame.waiting)


def _one_is_an_argument(shared: Sequence[Frame], mine: Sequence[Frame], theirs: Sequence[Frame]) -> bool:
    """Whether one side is in a function whose result the other's is called with, by their line: ``reduce(evaluate(model))``."""
    if not shared or not mine or not theirs or shared[0].source is None:
        return False
    return is_given(mine, theirs, shared[0].source) or is_given(theirs, mine, shared[0].source)


def _decisive(
    case: Situation, rank: int, path: tuple[Frame, ...], other: int, tail: tuple[Frame, ...], others: tuple[Frame, ...]
) -> tuple[Frame, ...]:
    """The tail without the blocks that explain nothing: conditions the other rank was under too in this very visit of them,
    and loops over the parts of the model. ``others``: its tail; one that is in the other branch now has come to it anew."""
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
    """Whether others are in the other branch of an ``if`` by now."""
    branch = {"if": "else", "else": "if"}.get(block.kind)
    there = (b for f in others if function_of(f) == function_of(frame) for b in f.blocks)
    return any((b.kind, b.line) == (branch, block.line) for b in there)


def side_path(case: Situation, rank: int) -> tuple[Frame, ...]:
    """A rank's call path at the divergence. The live stack is preferred where it is the same place: it knows more."""
    recorded = case.side_frames(rank)
    now = case.views[rank].frames if rank in case.views else ()
    if recorded and call_site(now) == call_site(recorded):
        return now
    return _with_callers(annotated(case, recorded), now)


def _with_callers(recorded: tuple[Frame, ...], now: Sequence[Frame]) -> tuple[Frame, ...]:
    """A recorded path whose callers are taken from the stack, where it is in the same function still: a stack knows more."""
    below, live = _part(recorded, now)
    if not below or not live or function_of(below[-1]) != function_of(live[-1]):
        return recorded
    return (*below, *now[len(live) :])


def annotated(case: Situation, path: Sequence[Frame]) -> tuple[Frame, ...]:
    """A recorded call path with the text and blocks of its lines, where any rank's live stack stands in the same line."""
    if all(f.source is not None for f in path):
        return tuple(path)
    read = {(f.file, f.line): f for v in case.views.values() for f in v.frames if f.source is not None}
    known = ((f, read.get((f.file, f.line))) for f in path)
    return tuple(msgspec.structs.replace(f, source=k.source, blocks=k.blocks) if k else f for f, k in known)
