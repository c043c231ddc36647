"""A loop that one side is in and the other has left: an iteration cut short, or a part of it that only one does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, takewhile

from msgspec.structs import replace

from hangwatch.analysis.divergence.frames import by_rank, frame_in, function_of, is_program, same_function
from hangwatch.analysis.divergence.iterations import (
    LOOPS,
    Steps,
    batch_loop,
    count_iterations,
    inside,
    item_of,
    iterations_ahead,
    steps_of,
)
from hangwatch.analysis.divergence.relate import CONDITIONS, Fork, Side, depends_only_on_loop_variable
from hangwatch.analysis.divergence.values import fewer_iterations
from hangwatch.analysis.places import package_of
from hangwatch.analysis.situation import Situation
from hangwatch.model.stacks import Block, Frame

_TESTED = re.compile(r"(?:el)?if (?P<name>[A-Za-z_]\w*)(?P<none> is not None)?:")
_NAME = re.compile(r"[A-Za-z_]\w*")
#: A description of a text; names are no longer than this.
_TEXT, _NAME_LENGTH = re.compile(r"str\((?P<length>\d+)\)"), 24
#: A loop that counts from one.
_FROM_ONE = re.compile(r"\brange\(1, |\benumerate\(.*, (?:start=)?1\)")
_FIXED = re.compile(r" in range\(\d+\):$")
#: What goes over the distinct values of something, as over keys.
_DISTINCT = re.compile(r"(?:sorted\(|list\(|enumerate\()*(?:\{[^:{}]* for |set\(|[\w.]+\.unique\()")
_ENDS_DATA = re.compile(r"except \(?(?:\w+, )*Stop(?:Async)?Iteration\b")
_EMPTY = frozenset({"list[]", "tuple[]", "dict[]", "str(0)", "None"})


@dataclass(frozen=True)
class IterationCount:
    """How many ``fewer`` iterations the side past a loop has begun; ``breaks``: a break or return may have ended it."""

    counter: str
    fewer: int
    breaks: bool


@dataclass(frozen=True)
class Loop:
    """A fork of relation ``loop``, seen from the side that is still in it.

    ``frame`` and ``block``: the innermost loop over batches that its path is in; the other side has left that too.
    """

    case: Situation
    inside: Side
    past: Side
    frame: Frame
    block: Block
    steps: Steps

    @property
    def around(self) -> tuple[Block, ...]:
        """The blocks around the line inside the loop, and the guards before it there."""
        blocks = self.frame.blocks
        return blocks[blocks.index(self.block) + 1 :] if self.block in blocks else ()

    @property
    def conditions(self) -> tuple[Block, ...]:
        """The conditions inside the loop that the pending operation is under, those of called functions included.

        The ``else`` of a ``try`` is one.
        """
        deeper = self.inside.path[: self.inside.path.index(self.frame)]
        below = (b for f in reversed(deeper) if is_program(f) for b in f.blocks)
        return tuple(b for b in (*self.around, *below) if _is_condition(b) or _parts_ranks(b))

    @property
    def ranked(self) -> Block | None:
        """A condition inside the loop that speaks of the rank; the side past the loop never took its other branch."""
        for block in self.conditions:
            if by_rank(block.text) and not self._took_other_branch(block):
                return block
        return None

    @property
    def behind(self) -> Block | None:
        """A condition behind the loop that the side past it is under, and the side in it has never been.

        It tells that this side has gone there by itself, and that the other is in the next round of what is around the loop.
        """
        at = self.past.at
        if at is None or self.inside.at is None or self.rounds_ahead == 0:
            return None
        shared = {(b.kind, b.line) for b in self.inside.at.blocks}
        frames = [f for f in reversed(self.past.tail) if is_program(f)]
        own = (
            (f, b)
            for f in frames
            for b in f.blocks
            if b.kind in CONDITIONS and (f != at or (b.kind, b.line) not in shared)
        )
        done = self.case.history.of(self.inside.rank)
        for frame, block in own:
            if (by_rank(block.text) or self.fixed) and all(inside(o.frames or (), frame, block) is None for o in done):
                return block
        return None

    @property
    def failed(self) -> Block | None:
        """A condition inside the loop on a variable that is empty on the side past the loop."""
        theirs = self.past_frame
        for block in self.conditions:
            found = _TESTED.fullmatch(block.text)
            described = (theirs.locals or {}).get(found["name"]) if theirs is not None and found is not None else None
            if described == "None" or (described in _EMPTY and found is not None and not found["none"]):
                return block
        return None

    @property
    def unmet(self) -> Block | None:
        """A condition inside the loop under which the side past the loop has never called anything, though it has begun the very
        iteration that the other is in: it was the condition that it skipped, and not the iteration."""
        done = [o.frames or () for o in self.case.history.of(self.past.rank)] if self.mid_iteration else []
        own = (
            b for b in self.around if b.kind in CONDITIONS and not depends_only_on_loop_variable(b, self.inside.path)
        )
        return next((b for b in own if done and all(inside(frames, self.frame, b) is None for frames in done)), None)

    @property
    def visited(self) -> bool | None:
        """Whether the side past the loop has ever called a collective in it; None where its call sites are not known."""
        operations = self.case.history.of(self.past.rank)
        if sum(bool(o.frames) for o in operations) * 2 <= len(operations):
            return None
        return any(inside(o.frames or (), self.frame, self.block) is not None for o in operations)

    @property
    def alone(self) -> bool:
        """Whether only one side has been in the loop: ever, or this time, when both had just been somewhere else together."""
        before = self.steps.before
        entered = before is None or inside(before.frames or (), self.frame, self.block) is not None
        return self.visited is False or not entered

    @property
    def fixed(self) -> bool:
        """Whether the loop has the same number of iterations wherever it is run: ``for _ in range(5)``."""
        return _FIXED.search(self.block.text) is not None

    @property
    def called(self) -> Block | None:
        """The condition under which the function with the loop was called, where only one side has called it."""
        if not self.alone or self.inside.at is None or self.frame == self.inside.at:
            return None
        index = self.inside.path.index(self.frame)
        above = [f for f in reversed(self.inside.path[index + 1 : len(self.inside.tail)]) if is_program(f)]
        shared = {(b.kind, b.line) for b in self.past.at.blocks} if self.past.at is not None else set()
        own = (b for f in above for b in reversed(f.blocks) if f != self.inside.at or (b.kind, b.line) not in shared)
        return next((b for b in own if b.kind in CONDITIONS), None)

    @property
    def keyed(self) -> bool:
        """Whether the loop goes over the keys of a dictionary, and not over batches."""
        view = self.case.views.get(self.inside.rank)
        # The recorder keeps no variables.
        seen = next((f for f in view.frames if same_function(f, self.frame)), None) if view is not None else None
        frame = (
            replace(self.frame, locals=seen.locals) if seen is not None and self.frame.locals is None else self.frame
        )
        return over_keys(frame, self.block)

    @property
    def left_out(self) -> Block | None:
        """The last way to skip an iteration of the loop, by what its data are like: ``if batch is None: continue``.

        Or a ``return`` in a function that does the iteration, if there is no condition behind it.

        A condition on numbers alone is one on which iteration it is, as a rule, and the same on every rank.
        """
        below = self.inside.path[: self.inside.path.index(self.frame)]
        deeper = [
            f for f in below if is_program(f) and package_of(f) is None and function_of(f) != function_of(self.frame)
        ]
        decisive = ((f, b) for f in deeper for b in reversed(f.blocks) if _is_condition(b) or b.kind == "guard")
        ways = [(f, b) for f, b in islice(decisive, 1) if b.kind == "guard" and b.text.endswith(" return")]
        ways += [(self.frame, b) for b in reversed(self.around) if b.kind == "guard" and b.text.endswith(" continue")]
        ways = [(frame, way) for frame, way in ways if not by_rank(way.text) and not ends_data(way)]
        return next((way for frame, way in ways if _on_data(frame, way)), None)

    @property
    def iteration_count(self) -> IterationCount | None:
        """How many iterations the side past the loop has begun, against the other, in the same round of what is
        around it; None where nothing counts them."""
        theirs = self.past_frame
        if theirs is None or self.rounds_ahead:
            return None
        counted = self.block.iterations
        if (around := self._count_around(theirs)) is not None or counted is None or counted.resumed:
            return around
        if any(b.kind in LOOPS and b.iterations is None for b in self._left()):
            return None  # it may have been in this one in another round
        mine, last = count_iterations(self.frame, self.block), count_iterations(theirs, self.block)
        if mine is None or last is None:
            return None
        fewer = fewer_iterations(self.block, self.frame, theirs, mine, last)
        if fewer is None:
            return None
        return IterationCount(counted.counter, fewer, counted.breaks)

    def _left(self) -> Iterator[Block]:
        """What is around this loop in its function and the other side has left too, outermost first."""
        outer = takewhile(lambda block: block != self.block, self.frame.blocks)
        return (b for b in outer if inside(self.past.path, self.frame, b) is None)

    def _count_around(self, theirs: Frame) -> IterationCount | None:
        """The count of the outermost loop around this one that the other side has left too, in another iteration of it."""
        for block in self._left():
            ahead = iterations_ahead(self.frame, theirs, block)
            if block.iterations is not None and ahead:
                return IterationCount(block.iterations.counter, ahead, block.iterations.breaks)
        return None

    @property
    def rounds_ahead(self) -> int | None:
        """By how many rounds of the loops around both the side in this one is ahead of the other; None where nothing counts them.

        Ahead, it is in the loop again, and the other still behind it.
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
        """Whether something counts the side in this loop as rounds ahead."""
        return (self.rounds_ahead or 0) > 0 or self.anew or (self.rounds_ahead is None and self.in_another_round)

    @property
    def in_another_round(self) -> bool:
        """Whether the two sides are in two items of a loop around, and all other ranks there in one of these: an item of a rank's
        own would be another on each. Who is in this loop is the later one, as the other has left out no more than an operation.
        """
        for mine in self.inside.path[self.inside.path.index(self.frame) :]:
            for block in (b for b in mine.blocks if b.kind in LOOPS and b != self.block):
                theirs = inside(self.past.path, mine, block)
                both = {item_of(mine, block), item_of(theirs, block) if theirs is not None else ()}
                frames = (inside(view.frames, mine, block) for view in self.case.views.values())
                items = [item_of(frame, block) for frame in frames if frame is not None]
                if len(both) == 2 and () not in both and len(items) > 2 and both.issuperset(items):
                    return True
        return False

    @property
    def not_begun(self) -> bool:
        """Whether the other side is in the same round of what is around, and no further down than where this loop is called."""
        here, there = self.inside.at, self.past.at
        return self.rounds_ahead == 0 and here is not None and there is not None and there.line <= here.line

    @property
    def behind_in_rounds(self) -> bool:
        """Whether something counts the other side as rounds ahead: it has gone through this loop to its end, or never into it."""
        return (self.rounds_ahead or 0) < 0

    @property
    def anew(self) -> bool:
        """Whether the side in this loop is in its first iteration, and both had called something in it just before, in the round
        before; the other is still in all that is around the loop."""
        before = self.steps.before
        if before is None or inside(before.frames or (), self.frame, self.block) is None or self.mid_iteration:
            return False
        first = 1 if _FROM_ONE.search(self.block.text) else 0
        index = self.inside.path.index(self.frame)
        outer = [(f, b) for f in self.inside.path[index:] for b in f.blocks if b.kind in LOOPS and b != self.block]
        around = [(f, b) for f, b in outer if f != self.frame or b.line < self.block.line]
        stays = all(inside(self.past.path, f, b) is not None for f, b in around)
        return stays and count_iterations(self.frame, self.block) == first

    @property
    def begun_again(self) -> bool:
        """Whether the side in this loop has begun its next round: by a counter, or as it has as many iterations everywhere."""
        return self.ahead or self.fixed

    @property
    def past_frame(self) -> Frame | None:
        """The frame of the side past the loop in the function that it is in."""
        return frame_in(self.past.path, self.frame)

    @property
    def mid_iteration(self) -> bool:
        """Whether the side past the loop has begun the iteration that the other is in: it joined what came before.

        Batches that run out end a loop between two iterations.
        """
        return self.steps.earlier_in_iteration(self.frame, self.block)

    def _took_other_branch(self, block: Block) -> bool:
        other = {"if": "else", "else": "if"}.get(block.kind)
        return any(
            (b.kind, b.line) == (other, block.line)
            for o in self.case.history.of(self.past.rank)
            for f in o.frames or ()
            for b in f.blocks
        )


def over_keys(frame: Frame, loop: Block) -> bool:
    """Whether a loop goes over the keys of a dictionary: its variable is a short string, or one of any length in a library.

    So do those that an object has collected and sorts, and a loop over the distinct values of something. A list of names is
    data as well as any: of files, say.
    """
    target, _, over = loop.text.removeprefix("for ").partition(" in ")
    known = frame.locals or {}
    texts = [found for name in _NAME.findall(target) if (found := _TEXT.fullmatch(known.get(name, "")))]
    keys = any(part in over for part in ("items(", "keys(", "sorted(self.")) or any(
        "dict" in known.get(n, "") for n in _NAME.findall(over)
    )
    short = texts if package_of(frame) is not None else [t for t in texts if int(t["length"]) <= _NAME_LENGTH]
    return loop.kind == "for" and (_DISTINCT.match(over) is not None or (keys and bool(short)))


def ends_data(way: Block) -> bool:
    """Whether a way out of an iteration is the end of the data: ``except StopIteration:``."""
    return _ENDS_DATA.match(way.text) is not None


def _is_condition(block: Block) -> bool:
    return block.kind in CONDITIONS or (block.kind == "after" and block.text == "try:")


def _parts_ranks(block: Block) -> bool:
    """Whether this is a guard that speaks of the rank, and leaves in good order."""
    return block.kind == "guard" and by_rank(block.text) and not block.text.endswith(" raise")


def _on_data(frame: Frame, way: Block) -> bool:
    """Whether a way out of an iteration is taken by what data are like, or by what an exception says of them."""
    known = frame.locals or {}
    data = {known.get(name, "").partition("=")[0] for name in _NAME.findall(way.text)} - {"", "bool"}
    return any(not text.startswith("int") for text in data) or "(" in way.text or way.text.startswith("except")


def loop_of(case: Situation, fork: Fork) -> Loop | None:
    """The loop that only one of the two sides is in."""
    if fork.relation != "loop" or fork.block is None:
        return None
    side, past = fork.sides
    found = batch_loop(side.tail)
    if found is None:
        found = next(((f, fork.block) for f in reversed(side.tail) if fork.block in f.blocks), None)
    if found is None:
        return None
    return Loop(case, side, past, *found, steps_of(case, side.rank, side.path, past.rank))
