"""How two call paths relate where they diverge: by a branch or a loop that only one is in. Pure: frames in, a fork out.

The blocks around the lines (``Frame.blocks``) decide where the source was read; without them only the order of lines is
left, which says little.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from hangwatch.analysis.divergence.expressions import arguments_of_calls
from hangwatch.analysis.divergence.frames import by_rank, is_parameter_loop, is_program, same_function
from hangwatch.analysis.divergence.iterations import LOOPS, count_iterations, in_backward, item_of, iterations_ahead
from hangwatch.analysis.places import bare, package_of
from hangwatch.model.stacks import Block, Frame

CONDITIONS = frozenset({"if", "else", "except", "case"})

#: What a number is taken modulo of, where it is an attribute.
_EVERY = re.compile(r"% (\w+(?:\.\w+)+)(?![\w(])")
_NAME = re.compile(r"[A-Za-z_]\w*")

#: What is so on every rank of a job: a file is run and not imported, the groups are there.
_ALIKE = re.compile(r"__name__|^(?:el)?if (?:torch\.)?(?:dist|distributed)\.is_(?:initialized|available)\(\):$")

#: What formats a message, or does not.
_LOGGING = "logging/__init__.py"

#: By so many functions a call goes to the one that it names, at the most: torch's collectives have a wrapper, and so has what is
#: under ``@torch.no_grad()``.
_WRAPPED = 2

#: How a guard's text ends.
_LEAVING = re.compile(r": (?:return|continue|break|raise)$")

Relation = Literal["branch", "loop", "skip", "order", "same", "unknown"]


@dataclass(frozen=True)
class Side:
    """One rank's call path, deepest first, and its part below the fork (the frame that diverges included)."""

    rank: int
    path: tuple[Frame, ...]
    tail: tuple[Frame, ...]

    @property
    def at(self) -> Frame | None:
        """The frame in which the path leaves the common one."""
        return self.tail[-1] if self.tail else None


@dataclass(frozen=True)
class Fork:
    """Two sides and how they relate.

    ``branch``: only the rank ``only`` is under the condition ``block``; ``loop``: only it is in that loop, the other is
    past it (or not in it yet); ``skip``: only it is past the ``if ..: continue`` (or raise) ``block`` in a loop both are
    in; ``order``: two lines of one straight piece of code; ``same``: one and the same line.
    ``ranked``: the condition speaks of the rank. ``sure``: the fork itself shows it, and not a function further down.
    """

    mine: Side
    theirs: Side
    relation: Relation
    block: Block | None = None
    only: int | None = None
    ranked: bool = False
    sure: bool = False

    @property
    def sides(self) -> tuple[Side, Side]:
        """The side that alone is under the block (in it, past it: as ``relation`` says), and the other."""
        return (self.mine, self.theirs) if self.only == self.mine.rank else (self.theirs, self.mine)

    @property
    def one_function(self) -> bool:
        """Whether the paths diverge in one function, at two lines."""
        a, b = self.mine.at, self.theirs.at
        return a is not None and b is not None and same_function(a, b)

    @property
    def opposite(self) -> bool:
        """Whether the sides are in the two branches of one ``if``; what comes behind one that returns is its other branch."""
        a, b = self.mine.at, self.theirs.at
        if a is None or b is None or not self.one_function:
            return False
        mine, theirs = ({("else" if returns(k) else k.kind, k.line) for k in f.blocks} for f in (a, b))
        return any(("else" if kind == "if" else "if", line) in theirs for kind, line in mine if kind in {"if", "else"})


def _own(frame: Frame, other: Frame) -> tuple[Block, ...]:
    """The blocks that are around one line and not around the other. Guards count where they speak of the rank."""
    shared = _around(other, frame)
    skips = _guards(frame, other)
    return tuple(b for b in frame.blocks if (b.kind, b.line) not in shared and _decides(b) and b not in skips)


def _around(frame: Frame, other: Frame) -> set[tuple[str, int]]:
    """What is around a line: also the ``for`` in whose own line a side takes its next item, once an item of it is counted."""
    begun = (
        b for b in other.blocks if b.kind == "for" and b.line == frame.line and count_iterations(frame, b) is not None
    )
    return {(b.kind, b.line) for b in (*frame.blocks, *begun)}


def _guards(frame: Frame, other: Frame) -> tuple[Block, ...]:
    """The guards of a loop both lines are in that only one of them is past: the other's rank may have jumped over it."""
    shared = {(b.kind, b.line) for b in other.blocks}
    loops = [i for i, b in enumerate(frame.blocks) if b.kind in LOOPS and (b.kind, b.line) in shared]
    inside = frame.blocks[loops[-1] + 1 :] if loops else ()
    return tuple(b for b in inside if b.kind == "guard" and (b.kind, b.line) not in shared)


def _decides(block: Block) -> bool:
    if block.kind == "guard":
        return by_rank(block.text) and not block.text.endswith(" raise")
    if block.kind == "with":
        return "process_first" in block.text
    return block.kind in LOOPS or (block.kind in CONDITIONS and is_decisive(block))


def is_decisive(block: Block) -> bool:
    """Whether a condition may differ by rank at all."""
    return _ALIKE.search(block.text) is None


def _before_loop(blocks: Sequence[Block]) -> tuple[Block, ...]:
    """The conditions up to the first loop: what lies inside a loop is the loop's affair."""
    end = next((i for i, b in enumerate(blocks) if b.kind in LOOPS), len(blocks))
    return tuple(blocks[:end])


def relate(mine: Side, theirs: Side, *, tie: bool = False) -> Fork:
    """How two sides relate. ``tie``: it is not known which of them is in the wrong."""
    a, b = mine.at, theirs.at
    if a is None or b is None:
        return Fork(mine, theirs, "same" if a is b else "unknown")
    if not (is_program(a) or is_program(b)):
        return Fork(mine, theirs, "same")
    one_function = Fork(mine, theirs, "unknown").one_function
    if (a.source is None) != (b.source is None):
        # The file was read for one side only: what is around the other line is not known, and nothing may follow from it.
        return Fork(mine, theirs, "order" if one_function else "unknown")
    own, other = (_own(a, b), _own(b, a)) if one_function else ((), ())
    loop = _relate_loops(mine, theirs, own, other)
    found = (
        _relate_ranked(mine, theirs, _before_loop(own), _before_loop(other), sure=True)
        or (loop if loop is not None and loop.sure else None)
        or _relate_ranked(mine, theirs, _tail_conditions(mine), _tail_conditions(theirs), sure=False)
        or loop
        or _relate_branches(mine, theirs, own, other)
        or (_relate_guards(mine, theirs, a, b, tie=tie) if one_function else None)
        or (_relate_tails(mine, theirs) if one_function else None)
    )
    if found is not None:
        return found
    return Fork(mine, theirs, "order" if one_function else "unknown", sure=bool(a.blocks or b.blocks))


def tests_guard(fork: Fork) -> bool:
    """Whether one side is in the test of the guard that the other is past, and not beyond what that leaves out."""
    at = fork.mine.at
    return fork.relation == "skip" and fork.block is not None and at is not None and at.line == fork.block.line


def _relate_ranked(
    mine: Side, theirs: Side, own: Sequence[Block], other: Sequence[Block], *, sure: bool
) -> Fork | None:
    """A condition that speaks of the rank, on either side."""
    for side, blocks in ((mine, own), (theirs, other)):
        for block in blocks:
            if by_rank(block.text) or block.kind == "with":
                return Fork(mine, theirs, "branch", block, side.rank, ranked=True, sure=sure)
    return None


def _relate_loops(mine: Side, theirs: Side, own: Sequence[Block], other: Sequence[Block]) -> Fork | None:
    """A loop that only one is in, and the other past it; before any condition, which may lie behind the loop."""
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
    """Whether a side that is before a loop in its function may have been in it: there is a loop around both sides.

    Not where they are in one and the same iteration of that. Of frames whose source was not read it is not known.
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
    """In which iterations of each loop around both lines of a function the two are."""
    return [{_iteration_of(at, loop) for at in (one, other)} for loop in _shared_loops(one, other)]


def _iteration_of(frame: Frame, loop: Block) -> int | tuple[tuple[str, str], ...] | None:
    """Which iteration a frame is in, by its number or by what it is about, which all processes of a node tell alike."""
    count = count_iterations(frame, loop)
    return count if count is not None else item_of(frame, loop) or None


def _without_parameters(blocks: Sequence[Block], side: Side) -> tuple[Block, ...]:
    """Loops over parameters and the like are part of one step: being in one says nothing of whose step it is.

    One around a backward is of steps, whatever it goes over.
    """
    if in_backward(side.tail):
        return tuple(blocks)
    return tuple(b for b in blocks if not (b.kind in LOOPS and is_parameter_loop(b.text)))


def _relate_branches(mine: Side, theirs: Side, own: Sequence[Block], other: Sequence[Block]) -> Fork | None:
    """Any other condition that only one is under."""
    own, other = _without_parameters(own, mine), _without_parameters(other, theirs)
    found = [
        Fork(mine, theirs, "branch", _telling(blocks, side.path), side.rank, sure=True)
        for side, across, blocks in ((mine, theirs.at, own), (theirs, mine.at, other))
        if blocks and blocks[0].kind not in LOOPS and not _of_a_trainer(side.at, across, blocks[0])
    ]
    # Which iteration it is, is the same on every rank: another condition says more.
    return min(
        found,
        key=lambda f: f.block is not None and depends_only_on_loop_variable(f.block, f.sides[0].path),
        default=None,
    )


def _telling(blocks: Sequence[Block], path: Sequence[Frame]) -> Block:
    """Of the conditions up to the first loop, the outermost that says more than which iteration it is.

    Of an ``if .. elif ..`` it is the branch that was taken, and not the ``else`` of those before it.
    """
    arms = [
        b for b, inner in pairwise((*blocks, blocks[-1])) if not (b.kind == "else" and inner.text.startswith("elif "))
    ]
    conditions = (b for b in _before_loop(arms) if b.kind in CONDITIONS and not depends_only_on_loop_variable(b, path))
    return next(conditions, blocks[0])


def _of_a_trainer(frame: Frame | None, across: Frame | None, block: Block) -> bool:
    """Whether the condition is an installed trainer's, and the sides may only be an iteration apart: it is in a loop of
    it, or the other side has not reached it yet."""
    if frame is None or across is None or package_of(frame) is None or block not in frame.blocks:
        return False
    return across.line < block.line or any(b.kind in LOOPS for b in frame.blocks[: frame.blocks.index(block)])


def _relate_guards(mine: Side, theirs: Side, a: Frame, b: Frame, *, tie: bool) -> Fork | None:
    """A guard in a loop both are in. The others are past it and I am not: I jumped. I alone am past it: a branch."""
    own, other = _guards(a, b), _guards(b, a)
    if other and not own:
        return Fork(mine, theirs, "skip", other[-1], theirs.rank, ranked=by_rank(other[-1].text), sure=not tie)
    if own and not other:
        ranked = by_rank(own[-1].text)
        relation: Relation = "skip" if tie and not ranked else "branch"
        return Fork(mine, theirs, relation, own[-1], mine.rank, ranked=ranked, sure=not tie)
    return None


def _tail_blocks(side: Side) -> tuple[Block, ...]:
    """The blocks of the program's functions below the fork, outermost first."""
    return tuple(b for f in reversed(side.tail[:-1]) if is_program(f) for b in f.blocks if _decides(b))


def _relate_tails(mine: Side, theirs: Side) -> Fork | None:
    """The same for what the two lines of one function call: loops and conditions further down, on one side only."""
    if mine.at is None or theirs.at is None:
        return None
    own, other = _tail_blocks(mine), _tail_blocks(theirs)
    given = mine.at.line == theirs.at.line and is_given(mine.tail[:-1], theirs.tail[:-1], mine.at.source or "")
    ahead = mine.at.line > theirs.at.line or given
    their_loop, my_loop = _batch_loop(other), _batch_loop(own)
    in_loop = any(b.kind in LOOPS for f in (mine.at, theirs.at) for b in f.blocks)
    # In one line what one side is past may be an argument of what it is in.
    again = in_loop and (mine.at.line == theirs.at.line or _comes_back(mine, theirs))
    if their_loop is not None and (ahead or (again and my_loop is None)):
        return Fork(mine, theirs, "loop", their_loop, theirs.rank, sure=ahead)
    if my_loop is not None and (not ahead or (again and their_loop is None)):
        return Fork(mine, theirs, "loop", my_loop, mine.rank, sure=not ahead)
    mine_under, they_are_under = _own_conditions(mine), _own_conditions(theirs)
    if bool(mine_under) != bool(they_are_under):
        block, only = (mine_under[-1], mine) if mine_under else (they_are_under[-1], theirs)
        return Fork(mine, theirs, "branch", block, only.rank)
    # The side at the earlier line is blocked there, by something the other did not do, unless it is there for the next time.
    rounds = rounds_between(mine.at, theirs.at)
    blocked, behind = (other, theirs) if rounds > 0 or (ahead and not rounds) else (own, mine)
    conditions = (b for b in _before_loop(blocked) if b.kind in CONDITIONS)
    if rounds:
        conditions = (b for b in conditions if not depends_only_on_loop_variable(b, behind.path))
    condition = next(conditions, None) or _guard_come_past(behind)
    return Fork(mine, theirs, "branch", condition, behind.rank) if condition is not None else None


def rounds_between(one: Frame, other: Frame) -> int:
    """By how many iterations of the outermost loop around both, of those that are counted and differ, a side is ahead."""
    return next(filter(None, (iterations_ahead(one, other, b) for b in _shared_loops(one, other))), 0)


def is_given(outer: Sequence[Frame], inner: Sequence[Frame], line: str) -> bool:
    """Whether one side is in a function that is called with the result of the one that the other is in, by the line of both
    calls: ``reduce(evaluate(model))``."""
    nested = arguments_of_calls(line)
    return any((bare(a), bare(b)) in nested for a in outer[-_WRAPPED:] for b in inner[-_WRAPPED:])


def _own_conditions(side: Side) -> tuple[Block, ...]:
    """The conditions of the user's own functions below the fork, outermost first, but for those on loop variables."""
    frames = [f for f in reversed(side.tail[:-1]) if is_program(f) and package_of(f) is None]
    blocks = (b for f in frames for b in _before_loop(f.blocks) if b.kind in CONDITIONS or returns(b))
    blocks = (b for b in blocks if is_decisive(b))
    return tuple(b for b in blocks if not depends_only_on_loop_variable(b, side.path))


def depends_only_on_loop_variable(block: Block, path: Sequence[Frame]) -> bool:
    """Whether a condition speaks only of variables of the loops a path is in, and constants: the same on every rank.

    A setting is one: ``step % self.config.every``.
    """
    loops = [b for f in path for b in f.blocks if b.kind in LOOPS]
    headers = (b.text.removeprefix("for ").partition(" in ")[0] for b in loops if b.kind == "for")
    variables = {name for text in headers for name in _NAME.findall(text)} | {
        b.iterations.counter for b in loops if b.iterations
    }
    text = _LEAVING.sub(":", block.text).partition(" ")[2]
    for setting in _EVERY.findall(text):
        text = text.replace(setting, "")
    named = {name for name in _NAME.findall(text) if not name.isupper()}
    return bool(named) and variables.issuperset(named)


def returns(block: Block) -> bool:
    """Whether this is a guard by which a function may be left early, and the program go on."""
    return block.kind == "guard" and not block.text.endswith((" raise", " continue", " break"))


def returning_guard(path: Sequence[Frame]) -> Block | None:
    """The first ``if ..: return`` that a path is past in the program's own functions; one that speaks of the rank is meant so."""
    own = (f for f in path if is_program(f) and package_of(f) is None)
    return next((b for f in own for b in f.blocks if returns(b) and not by_rank(b.text)), None)


def condition_of(side: Side, other: Side) -> Block | None:
    """The innermost condition that a side is under and the other is not."""
    shared = {(b.kind, b.line) for b in other.at.blocks} if other.at is not None and side.at is not None else set()
    frames = (f for f in side.tail if is_program(f))
    own = (b for f in frames for b in reversed(f.blocks) if f != side.at or (b.kind, b.line) not in shared)
    return next((b for b in own if b.kind in CONDITIONS or returns(b)), None)


def catches(block: Block) -> bool:
    """Whether an exception that is raised inside is caught there, and the program goes on behind it."""
    return block.kind == "try" or (block.kind == "with" and "suppress(" in block.text)


def own_blocks(side: Side, other: Side) -> tuple[Block, ...]:
    """The blocks of the user's own functions that a side is in and the other is not, outermost first."""
    shared = {(b.kind, b.line) for b in other.at.blocks} if other.at is not None else set()
    frames = [f for f in reversed(side.tail) if is_program(f) and package_of(f) is None]
    return tuple(b for f in frames for b in f.blocks if f != side.at or (b.kind, b.line) not in shared)


def only_by_iteration(side: Side, other: Side) -> bool:
    """Whether nothing on a side's own way may differ by rank: there are no conditions but on the iteration of a loop, and none
    is left early but by an exception. A logger has a level of its own."""
    logged = any(f.file.endswith(_LOGGING) for f in side.tail)
    return not logged and all(depends_only_on_loop_variable(b, side.path) for b in decisive_blocks(side, other))


def decisive_blocks(side: Side, other: Side) -> list[Block]:
    """The conditions on a side's own way, and the guards that it has come past; a check that raises parts no ranks."""
    return [
        b
        for b in own_blocks(side, other)
        if b.kind in CONDITIONS or (b.kind == "guard" and not b.text.endswith(" raise"))
    ]


def shared_loop(one: Frame, other: Frame) -> Block | None:
    """The innermost loop of a function around both of its lines."""
    return next(reversed(_shared_loops(one, other)), None)


def _shared_loops(one: Frame, other: Frame) -> list[Block]:
    """The loops of a function around both of its lines, outermost first."""
    here, there = _around(one, other), _around(other, one)
    both = {(b.kind, b.line): b for f in (one, other) for b in f.blocks if b.kind in LOOPS}
    return [b for place, b in both.items() if place in here & there]


def caught_around(side: Side, other: Side) -> Block | None:
    """What catches an exception raised where a side is, and does not lead out of where the other is; None where there is no
    such block, or something else may lead past the place."""
    caught = next((b for b in own_blocks(side, other) if catches(b)), None)
    return caught if only_by_iteration(side, other) else None


def _guard_come_past(side: Side) -> Block | None:
    """The last ``if ..: return`` a side has come past in the functions below the fork, outside any loop.

    A side that has already left the call may have done so there. A check that raises is none: it would have ended it.
    """
    blocks = (b for f in side.tail[:-1] if is_program(f) for b in reversed(_before_loop(f.blocks)))
    return next(
        (b for b in blocks if b.kind == "guard" and not b.text.endswith((" raise", " continue", " break"))), None
    )


def _tail_conditions(side: Side) -> tuple[Block, ...]:
    """The conditions of each function below the fork, up to its own first loop.

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
    return next((b for b in blocks if b.kind in LOOPS and not is_parameter_loop(b.text)), None)
