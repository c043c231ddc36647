"""A loop that one side is in and the other has left: an iteration cut short, or a part that only one side does."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, takewhile

from hangwatch.analysis.divergence.iterations import (
    LOOPS,
    batch_loop,
    count_iterations,
    inside,
    iterations_ahead,
)
from hangwatch.analysis.divergence.relate import CONDITIONS, Fork, Side
from hangwatch.analysis.divergence.values import fewer_iterations
from hangwatch.analysis.places import frame_in, function_of, is_program, package_of
from hangwatch.analysis.situation import Situation
from hangwatch.model.stacks import Block, Frame
from hangwatch.program.lines import header_of


@dataclass(frozen=True)
class IterationCount:
    """By how many iterations the side past a loop has begun ``fewer``, and the variable that counts them."""

    counter: str
    fewer: int


@dataclass(frozen=True)
class Loop:
    """A fork of relation ``loop``, seen from the side that is still in it.

    ``frame`` and ``block``: the innermost loop over batches on its path, which the other side has left too.
    """

    case: Situation
    inside: Side
    past: Side
    frame: Frame
    block: Block

    @property
    def around(self) -> tuple[Block, ...]:
        """The blocks between the loop and its line, and the guards before that line."""
        blocks = self.frame.blocks
        return blocks[blocks.index(self.block) + 1 :] if self.block in blocks else ()

    @property
    def visited(self) -> bool | None:
        """True if the side past the loop has ever called a collective in it; None if its call sites are not known."""
        operations = self.case.history.of(self.past.rank)
        if sum(bool(o.frames) for o in operations) * 2 <= len(operations):
            return None
        return any(inside(o.frames or (), self.frame, self.block) is not None for o in operations)

    @property
    def fixed(self) -> bool:
        """True if the loop has the same number of iterations wherever it is run: ``for _ in range(5)``."""
        match header_of(self.block).tree:
            case ast.Call(func=ast.Name(id="range"), args=[ast.Constant()]):
                return True
        return False

    @property
    def left_out(self) -> Block | None:
        """The last statement that may skip an iteration because of its data (``if batch is None: continue``); None if none.

        Or a ``return`` in a function that does the iteration, if there is no condition behind it. A condition on
        numbers alone usually asks which iteration it is, which is the same on every rank.
        """
        below = self.inside.path[: self.inside.path.index(self.frame)]
        deeper = [
            f for f in below if is_program(f) and package_of(f) is None and function_of(f) != function_of(self.frame)
        ]
        decisive = ((f, b) for f in deeper for b in reversed(f.blocks) if _is_condition(b) or b.kind == "guard")
        ways = [(f, b) for f, b in islice(decisive, 1) if b.kind == "guard" and header_of(b).leaves == "return"]
        ways += [(self.frame, b) for b in reversed(self.around) if header_of(b).leaves == "continue"]
        ways = [(frame, way) for frame, way in ways if not header_of(way).by_rank and not ends_data(way)]
        return next((way for frame, way in ways if _on_data(frame, way)), None)

    @property
    def iteration_count(self) -> IterationCount | None:
        """How many fewer iterations the side past the loop has begun; None if they are not counted.

        Both sides must be in the same round of the loops around it.
        """
        theirs = self.past_frame
        if theirs is None or self.rounds_ahead:
            return None
        counted = self.block.iterations
        if (around := self._count_around(theirs)) is not None or counted is None or counted.resumed:
            return around
        if any(b.kind in LOOPS and b.iterations is None for b in self._left()):
            return None  # it may have been in this loop in another round
        mine, last = count_iterations(self.frame, self.block), count_iterations(theirs, self.block)
        if mine is None or last is None:
            return None
        fewer = fewer_iterations(self.block, self.frame, theirs, mine, last)
        if fewer is None:
            return None
        return IterationCount(counted.counter, fewer)

    def _left(self) -> Iterator[Block]:
        """Yield the blocks around this loop in its function that the other side has left too, outermost first."""
        outer = takewhile(lambda block: block != self.block, self.frame.blocks)
        return (b for b in outer if inside(self.past.path, self.frame, b) is None)

    def _count_around(self, theirs: Frame) -> IterationCount | None:
        """Return the count of the outermost such loop in which the other side was in another iteration; None if in none."""
        for block in self._left():
            ahead = iterations_ahead(self.frame, theirs, block)
            if block.iterations is not None and ahead:
                return IterationCount(block.iterations.counter, ahead)
        return None

    @property
    def rounds_ahead(self) -> int | None:
        """How many rounds of the enclosing loops the side in this loop is ahead; None if they are not counted.

        If it is ahead, it is in the loop again, and the other is still behind it.
        """
        counted = None
        for mine in reversed(self.inside.path):
            for block in mine.blocks:
                ahead = iterations_ahead(mine, inside(self.past.path, mine, block), block)
                if ahead:
                    return ahead
                counted = ahead if counted is None else counted
        return counted

    @property
    def ahead(self) -> bool:
        """True if the side in this loop is counted as one or more rounds ahead."""
        return (self.rounds_ahead or 0) > 0

    @property
    def begun_again(self) -> bool:
        """True if the side in this loop has begun its next round, by a counter or because the number of iterations is fixed."""
        return self.ahead or self.fixed

    @property
    def past_frame(self) -> Frame | None:
        """The other side's frame in the function of this loop; None if it has left that function."""
        return frame_in(self.past.path, self.frame)


def ends_data(way: Block) -> bool:
    """True if a way out of an iteration is the end of the data: ``except StopIteration:``."""
    header = header_of(way)
    return header.word == "except" and not header.names.isdisjoint({"StopIteration", "StopAsyncIteration"})


def _is_condition(block: Block) -> bool:
    return block.kind in CONDITIONS or (block.kind == "after" and header_of(block).word == "try")


def _on_data(frame: Frame, way: Block) -> bool:
    """True if a way out of an iteration depends on what data are like, or on an exception."""
    known, header = frame.locals or {}, header_of(way)
    data = {known.get(name, "").partition("=")[0] for name in header.names} - {"", "bool"}
    return any(not text.startswith("int") for text in data) or "(" in header.said or header.word == "except"


def loop_of(case: Situation, fork: Fork) -> Loop | None:
    """Return the loop that only one of the two sides is in; None if the fork is no such one."""
    if fork.relation != "loop" or fork.block is None:
        return None
    side, past = fork.sides
    found = batch_loop(side.tail)
    if found is None:
        found = next(((f, fork.block) for f in reversed(side.tail) if fork.block in f.blocks), None)
    if found is None:
        return None
    return Loop(case, side, past, *found)
