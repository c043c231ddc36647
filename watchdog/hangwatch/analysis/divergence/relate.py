"""How two call paths relate where they diverge: by a branch or a loop that only one is in. Pure: frames in, a fork out.

The blocks around the lines (``Frame.blocks``) decide where the source was read; without them only the order of lines is
left, which says little.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from hangwatch.analysis.divergence.iterations import LOOPS, count_iterations, in_backward, item_of, iterations_ahead
from hangwatch.analysis.operations.alignment import GroupKey
from hangwatch.analysis.places import bare, is_program, package_of, same_function
from hangwatch.model.stacks import Block, Frame
from hangwatch.program.lines import arguments_of_calls, header_of

CONDITIONS = frozenset({"if", "else", "except", "case"})

#: A call reaches the function that it names within so many frames: torch's collectives have a wrapper, and so has a function
#: under ``@torch.no_grad()``.
_WRAPPED = 2

Relation = Literal["branch", "loop", "skip", "order", "same", "unknown"]


@dataclass(frozen=True)
class Side:
    """One rank's call path, deepest first, and its part below the fork (the frame that diverges included)."""

    rank: int
    path: tuple[Frame, ...]
    tail: tuple[Frame, ...]

    @property
    def at(self) -> Frame | None:
        """The frame in which the path leaves the common path; None if it does not leave it."""
        return self.tail[-1] if self.tail else None


@dataclass(frozen=True)
class Difference:
    """The call paths of two ranks at a sequence number that each used at another place in the program."""

    key: GroupKey
    seq: int
    ours: tuple[Frame, ...]
    theirs: tuple[Frame, ...]


@dataclass(frozen=True)
class Fork:
    """Two sides and how they relate: the ``culprit``'s and an ``other``; on a tie either may be called the culprit's.

    ``branch``: only the rank ``only`` is under the condition ``block``. ``loop``: only it is in that loop, the other is
    past it (or not in it yet). ``skip``: only it is past the ``if ..: continue`` (or raise) ``block`` in a loop both
    are in. ``order``: two lines of one straight piece of code. ``same``: one and the same line. ``ranked``: the
    condition speaks of the rank. ``sure``: the fork itself shows it, and not a function further down. ``difference``:
    where the two first called from two places, if that was before where they are now.
    """

    culprit: Side
    other: Side
    relation: Relation
    block: Block | None = None
    only: int | None = None
    ranked: bool = False
    sure: bool = False
    difference: Difference | None = None

    @property
    def sides(self) -> tuple[Side, Side]:
        """Both sides, that of the rank ``only`` first."""
        return (self.culprit, self.other) if self.only == self.culprit.rank else (self.other, self.culprit)

    @property
    def both_ways(self) -> tuple[tuple[Side, Side], tuple[Side, Side]]:
        """Both orders of the two sides, the culprit first in the first: for a question that is asked of each."""
        return (self.culprit, self.other), (self.other, self.culprit)

    @property
    def one_function(self) -> bool:
        """True if the paths diverge in one function, at two lines."""
        a, b = self.culprit.at, self.other.at
        return a is not None and b is not None and same_function(a, b)

    @property
    def opposite(self) -> bool:
        """True if the sides are in the two branches of one ``if``; what follows an ``if`` that returns is its other branch."""
        a, b = self.culprit.at, self.other.at
        if a is None or b is None or not self.one_function:
            return False
        mine, theirs = ({("else" if returns(k) else k.kind, k.line) for k in f.blocks} for f in (a, b))
        return any(("else" if kind == "if" else "if", line) in theirs for kind, line in mine if kind in {"if", "else"})


def _own(frame: Frame, other: Frame) -> tuple[Block, ...]:
    """Return the blocks around one line and not the other that may decide. Guards count if they speak of the rank."""
    shared = _around(other, frame)
    skips = _guards(frame, other)
    return tuple(b for b in frame.blocks if (b.kind, b.line) not in shared and _decides(b) and b not in skips)


def _around(frame: Frame, other: Frame) -> set[tuple[str, int]]:
    """Return the kind and line of each block around a line.

    A side that is in the header of a ``for``, to take the next item, is in the loop only if an iteration was counted.
    """
    begun = (
        b for b in other.blocks if b.kind == "for" and b.line == frame.line and count_iterations(frame, b) is not None
    )
    return {(b.kind, b.line) for b in (*frame.blocks, *begun)}


def _guards(frame: Frame, other: Frame) -> tuple[Block, ...]:
    """Return the guards in the innermost loop around both lines that only ``frame`` is past.

    The rank of ``other`` may have jumped over ``frame`` by one of them.
    """
    shared = {(b.kind, b.line) for b in other.blocks}
    loops = [i for i, b in enumerate(frame.blocks) if b.kind in LOOPS and (b.kind, b.line) in shared]
    inside = frame.blocks[loops[-1] + 1 :] if loops else ()
    return tuple(b for b in inside if b.kind == "guard" and (b.kind, b.line) not in shared)


def _decides(block: Block) -> bool:
    if block.kind == "guard":
        return header_of(block).by_rank and header_of(block).leaves != "raise"
    if block.kind == "with":
        return any(name.endswith("process_first") for name in header_of(block).names)
    return block.kind in LOOPS or (block.kind in CONDITIONS and not header_of(block).alike)


def _before_loop(blocks: Sequence[Block]) -> tuple[Block, ...]:
    """Return the blocks up to the first loop: what lies inside a loop is the loop's affair."""
    end = next((i for i, b in enumerate(blocks) if b.kind in LOOPS), len(blocks))
    return tuple(blocks[:end])


def relate(mine: Side, theirs: Side, *, tie: bool = False) -> Fork:
    """Return how two sides relate. ``tie``: it is not known which of them is in the wrong."""
    a, b = mine.at, theirs.at
    if a is None or b is None:
        return Fork(mine, theirs, "same" if a is b else "unknown")
    if not (is_program(a) or is_program(b)):
        return Fork(mine, theirs, "same")
    one_function = Fork(mine, theirs, "unknown").one_function
    if (a.source is None) != (b.source is None):
        # The file was read for one side only, so the blocks around the other line are not known: draw no conclusion.
        return Fork(mine, theirs, "order" if one_function else "unknown")
    own, other = (_own(a, b), _own(b, a)) if one_function else ((), ())
    loop = _relate_loops(mine, theirs, own, other)
    found = (
        _relate_ranked(mine, theirs, _before_loop(own), _before_loop(other), sure=True)
        or (loop if loop is not None and loop.sure else None)
        or _relate_ranked(mine, theirs, _tail_conditions(mine), _tail_conditions(theirs), sure=False)
        or loop
        or (_relate_own(mine, theirs) if package_of(a) is not None else None)
        or _relate_branches(mine, theirs, own, other)
        or (_relate_guards(mine, theirs, a, b, tie=tie) if one_function else None)
        or (_relate_tails(mine, theirs) if one_function else None)
    )
    if found is not None:
        return found
    return Fork(mine, theirs, "order" if one_function else "unknown", sure=bool(a.blocks or b.blocks))


def _relate_ranked(
    mine: Side, theirs: Side, own: Sequence[Block], other: Sequence[Block], *, sure: bool
) -> Fork | None:
    """Return the fork by a condition that speaks of the rank, on either side; None if there is none."""
    for side, blocks in ((mine, own), (theirs, other)):
        for block in blocks:
            if header_of(block).by_rank or block.kind == "with":
                return Fork(mine, theirs, "branch", block, side.rank, ranked=True, sure=sure)
    return None


def _relate_loops(mine: Side, theirs: Side, own: Sequence[Block], other: Sequence[Block]) -> Fork | None:
    """Return the fork by a loop that only one side is in and the other is past; None if there is none.

    It comes before any condition, which may lie behind the loop.
    """
    own, other = _without_parameters(own, mine), _without_parameters(other, theirs)
    first, second = (own[0] if own else None), (other[0] if other else None)
    my_line, their_line = mine.at.line if mine.at else 0, theirs.at.line if theirs.at else 0
    comes_back = _comes_back(mine, theirs)
    if second is not None and second.kind in LOOPS and (my_line > second.line or (first is None and comes_back)):
        return Fork(mine, theirs, "loop", second, theirs.rank, sure=my_line > second.line)
    if first is not None and first.kind in LOOPS and (their_line > first.line or (second is None and comes_back)):
        return Fork(mine, theirs, "loop", first, mine.rank, sure=their_line > first.line)
    return None


def _comes_back(mine: Side, theirs: Side) -> bool:
    """True if a side before a loop may have been in it already, because a loop around both sides may have gone round.

    False if they are in one and the same iteration of that. If the source of a frame was not read, it is not known:
    True.
    """
    if mine.at is None or theirs.at is None:
        return True
    above, across = mine.path[len(mine.tail) :], theirs.path[len(theirs.tail) :]
    rounds = _rounds(mine.at, theirs.at)
    if rounds:
        further_out = [both for f, g in zip(above, across, strict=False) for both in _rounds(f, g)]
        return any(len(both) > 1 or None in both for both in rounds) or any(
            len(both) > 1 and None not in both for both in further_out
        )
    return any(b.kind in LOOPS for f in above for b in f.blocks) or any(
        f.source is None for f in above if is_program(f)
    )


def _rounds(one: Frame, other: Frame) -> list[set[object]]:
    """Return, for each loop around both lines of a function, the iterations that the two are in."""
    return [{_iteration_of(at, loop) for at in (one, other)} for loop in _shared_loops(one, other)]


def _iteration_of(frame: Frame, loop: Block) -> int | tuple[tuple[str, str], ...] | None:
    """Return which iteration a frame is in, by its number or its item, which compare across a node; None if not known."""
    count = count_iterations(frame, loop)
    return count if count is not None else item_of(frame, loop) or None


def _without_parameters(blocks: Sequence[Block], side: Side) -> tuple[Block, ...]:
    """Return the blocks without loops over parameters and the like, which are part of one step and tell nothing.

    A loop around a backward is one of steps, whatever it goes over.
    """
    if in_backward(side.tail):
        return tuple(blocks)
    return tuple(b for b in blocks if not (b.kind in LOOPS and header_of(b).of_model))


def _relate_branches(mine: Side, theirs: Side, own: Sequence[Block], other: Sequence[Block]) -> Fork | None:
    """Return the fork by any other condition that only one side is under; None if there is none."""
    own, other = _without_parameters(own, mine), _without_parameters(other, theirs)
    found = [
        Fork(mine, theirs, "branch", _telling(blocks, side.path), side.rank, sure=True)
        for side, across, blocks in ((mine, theirs.at, own), (theirs, mine.at, other))
        if blocks and blocks[0].kind not in LOOPS and not _of_a_trainer(side.at, across, blocks[0])
    ]
    # The iteration is the same on every rank: any other condition says more.
    return min(
        found,
        key=lambda f: f.block is not None and depends_only_on_loop_variable(f.block, f.sides[0].path),
        default=None,
    )


def _telling(blocks: Sequence[Block], path: Sequence[Frame]) -> Block:
    """Return the outermost condition before the first loop that says more than which iteration it is.

    Of an ``if .. elif ..`` it is the branch that was taken, and not the ``else`` of those before it.
    """
    pairs = pairwise((*blocks, blocks[-1]))
    arms = [b for b, inner in pairs if not (b.kind == "else" and header_of(inner).word == "elif")]
    conditions = (b for b in _before_loop(arms) if b.kind in CONDITIONS and not depends_only_on_loop_variable(b, path))
    return next(conditions, blocks[0])


def _of_a_trainer(frame: Frame | None, across: Frame | None, block: Block) -> bool:
    """True if the condition is an installed trainer's, and the sides may only be an iteration apart.

    The condition is in a loop of the trainer, or the other side has not reached it yet.
    """
    if frame is None or across is None or package_of(frame) is None or block not in frame.blocks:
        return False
    return across.line < block.line or any(b.kind in LOOPS for b in frame.blocks[: frame.blocks.index(block)])


def _relate_guards(mine: Side, theirs: Side, a: Frame, b: Frame, *, tie: bool) -> Fork | None:
    """Return the fork by a guard in a loop that both lines are in; None if there is none.

    Only ``theirs`` is past it: ``mine`` has skipped.
    """
    own, other = _guards(a, b), _guards(b, a)
    if other and not own:
        return Fork(mine, theirs, "skip", other[-1], theirs.rank, ranked=header_of(other[-1]).by_rank, sure=not tie)
    return None


def _tail_blocks(side: Side) -> tuple[Block, ...]:
    """Return the blocks of the program's functions below the fork, outermost first."""
    return tuple(b for f in reversed(side.tail[:-1]) if is_program(f) for b in f.blocks if _decides(b))


def _relate_tails(mine: Side, theirs: Side) -> Fork | None:
    """Return the fork by loops and conditions further down, in what the two lines of one function call; None if by none."""
    if mine.at is None or theirs.at is None:
        return None
    own, other = _tail_blocks(mine), _tail_blocks(theirs)
    given = mine.at.line == theirs.at.line and is_given(mine.tail[:-1], theirs.tail[:-1], mine.at.source or "")
    ahead = mine.at.line > theirs.at.line or given
    their_loop, my_loop = _batch_loop(other), _batch_loop(own)
    in_loop = any(b.kind in LOOPS for f in (mine.at, theirs.at) for b in f.blocks)
    # Within one line a side may be past a call that is an argument of the one that it is in.
    again = in_loop and (mine.at.line == theirs.at.line or _comes_back(mine, theirs))
    if their_loop is not None and (ahead or (again and my_loop is None)):
        return Fork(mine, theirs, "loop", their_loop, theirs.rank, sure=ahead)
    if my_loop is not None and (not ahead or (again and their_loop is None)):
        return Fork(mine, theirs, "loop", my_loop, mine.rank, sure=not ahead)
    if (own_condition := _relate_own(mine, theirs)) is not None:
        return own_condition
    # The side at the earlier line is blocked in what the other did not do, unless it has come back in the next iteration.
    rounds = rounds_between(mine.at, theirs.at)
    behind = theirs if rounds > 0 or (ahead and not rounds) else mine
    condition = next(iter(_own_conditions(behind)), None)
    return Fork(mine, theirs, "branch", condition, behind.rank) if condition is not None else None


def _relate_own(mine: Side, theirs: Side) -> Fork | None:
    """Return the fork by a condition of the user's functions below it, as in a callback, on one side only; else None."""
    mine_under, they_are_under = _own_conditions(mine), _own_conditions(theirs)
    if bool(mine_under) == bool(they_are_under):
        return None
    block, only = (mine_under[-1], mine) if mine_under else (they_are_under[-1], theirs)
    return Fork(mine, theirs, "branch", block, only.rank)


def rounds_between(one: Frame, other: Frame) -> int:
    """Return by how many iterations ``one`` is ahead in the outermost counted loop around both where they differ; else 0."""
    return next(filter(None, (iterations_ahead(one, other, b) for b in _shared_loops(one, other))), 0)


def is_given(outer: Sequence[Frame], inner: Sequence[Frame], line: str) -> bool:
    """True if ``line`` calls a function of ``outer`` with the result of one of ``inner``: ``reduce(evaluate(model))``."""
    nested = arguments_of_calls(line)
    return any((bare(a), bare(b)) in nested for a in outer[-_WRAPPED:] for b in inner[-_WRAPPED:])


def _own_conditions(side: Side) -> tuple[Block, ...]:
    """Return the conditions of the user's functions below the fork, outermost first, without those on loop variables."""
    frames = [f for f in reversed(side.tail[:-1]) if is_program(f) and package_of(f) is None]
    blocks = (b for f in frames for b in _before_loop(f.blocks) if b.kind in CONDITIONS or returns(b))
    blocks = (b for b in blocks if not header_of(b).alike)
    return tuple(b for b in blocks if not depends_only_on_loop_variable(b, side.path))


def depends_only_on_loop_variable(block: Block, path: Sequence[Frame]) -> bool:
    """True if a condition speaks only of constants and of variables of the loops around: it is the same on every rank.

    A setting is a constant: ``step % self.config.every``.
    """
    loops = [b for f in path for b in f.blocks if b.kind in LOOPS]
    variables = {name for b in loops for name in header_of(b).binds}
    variables |= {b.iterations.counter for b in loops if b.iterations}
    named = header_of(block).varies_by
    return bool(named) and named <= variables


def returns(block: Block) -> bool:
    """True if a block is a guard by which a function may be left early while the program goes on."""
    return block.kind == "guard" and header_of(block).leaves == "return"


def catches(block: Block) -> bool:
    """True if an exception that is raised inside a block is caught there, and the program goes on behind it."""
    return block.kind == "try" or (block.kind == "with" and "suppress" in header_of(block).names)


def own_blocks(side: Side, other: Side) -> tuple[Block, ...]:
    """Return the blocks of the user's functions that a side is in and the other is not, outermost first."""
    shared = {(b.kind, b.line) for b in other.at.blocks} if other.at is not None else set()
    frames = [f for f in reversed(side.tail) if is_program(f) and package_of(f) is None]
    return tuple(b for f in frames for b in f.blocks if f != side.at or (b.kind, b.line) not in shared)


def shared_loop(one: Frame, other: Frame) -> Block | None:
    """Return the innermost loop of a function around both of its lines; None if there is none."""
    return next(reversed(_shared_loops(one, other)), None)


def _shared_loops(one: Frame, other: Frame) -> list[Block]:
    """Return the loops of a function around both of its lines, outermost first."""
    here, there = _around(one, other), _around(other, one)
    both = {(b.kind, b.line): b for f in (one, other) for b in f.blocks if b.kind in LOOPS}
    return [b for place, b in both.items() if place in here & there]


def _tail_conditions(side: Side) -> tuple[Block, ...]:
    """Return the conditions of each function below the fork, up to its own first loop.

    A loop of an installed trainer around a call (over callbacks, say) does not hide the condition inside what it calls.
    A loop of the user's own does: what lies inside is the loop's affair.
    """
    found: list[Block] = []
    for frame in reversed(side.tail[:-1]):
        if not is_program(frame):
            continue
        blocks = tuple(b for b in frame.blocks if _decides(b))
        before = _before_loop(blocks)
        found += before
        if len(before) < len(blocks) and package_of(frame) is None:
            break
    return tuple(found)


def _batch_loop(blocks: Sequence[Block]) -> Block | None:
    return next((b for b in blocks if b.kind in LOOPS and not header_of(b).of_model), None)
