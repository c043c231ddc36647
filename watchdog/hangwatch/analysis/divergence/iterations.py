"""What a rank did just before its operation, and whether in the same visit of a block or iteration of a loop."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hangwatch.analysis.places import bare, call_site, calls, function_of, is_program
from hangwatch.analysis.situation import Situation
from hangwatch.model.collectives import Operation
from hangwatch.model.stacks import Block, Frame
from hangwatch.program.lines import header_of

LOOPS = frozenset({"for", "while"})


@dataclass(frozen=True)
class Steps:
    """One rank's operations before the one at which it diverged from another rank, which it issued at ``path``.

    ``before``: the last of them, if the other rank took part in it from the same place; else None.
    """

    operations: tuple[Operation, ...]
    path: tuple[Frame, ...]
    before: Operation | None

    def in_same_visit(self, frame: Frame, block: Block) -> bool:
        """True if ``before`` was issued in the same visit of a block around ``frame`` as the diverging operation.

        Two visits have something else between them: it has been seen before this one, or lies in the same function.
        """
        last = inside(self.before.frames or (), frame, block) if self.before is not None else None
        if last is None or (last.line > frame.line and frame.loops):
            return False  # further down in the block: that was in the iteration before
        index = len(self.operations)
        while index > 0 and inside(self.operations[index - 1].frames or (), frame, block) is not None:
            index -= 1
        if index == 0:
            return False
        apart = self.operations[index - 1].frames or ()
        beside = any(function_of(f) == function_of(frame) for f in apart)
        return beside or any(inside(o.frames or (), frame, block) is not None for o in self.operations[:index])

    def run_length(self) -> int:
        """Return how many operations in a row, right before the diverging one, were issued from its place."""
        here = call_site(self.path)
        count = 0
        for operation in reversed(self.operations):
            if call_site(operation.frames or ()) != here:
                break
            count += 1
        return count


def begins_again(case: Situation, rank: int, frame: Frame) -> bool:
    """True if a rank's last operation begins another call from the line of ``frame``.

    So it is if it equals the first in the unbroken row of operations called from that line.
    """

    def path_of(operation: Operation) -> tuple[tuple[str, str, int], ...]:
        return tuple((f.file, bare(f), f.line) for f in operation.frames or ())

    here = (frame.file, bare(frame), frame.line)
    row: list[Operation] = []
    for operation in reversed(case.history.of(rank)):
        if here not in path_of(operation):
            break
        row.append(operation)
    if len(row) < 2:
        return False
    last, first = row[0], row[-1]
    return path_of(last) == path_of(first) and (last.op, last.input_sizes) == (first.op, first.input_sizes)


def steps_of(case: Situation, rank: int, path: tuple[Frame, ...], other: int) -> Steps:
    """Return the steps of a rank that diverged from ``other`` at ``path``; none without call sites."""
    operations = case.history.of(rank)
    here = call_site(path)
    end = next(
        (
            i
            for i, o in enumerate(operations)
            if o.frames and call_site(o.frames) == here and _may_diverge_at(case, o, other)
        ),
        None,
    )
    if not end:
        return Steps((), path, None)
    before = operations[end - 1]
    theirs = case.history.at(before.group.key, before.seq).get(other) if not before.p2p else None
    joined = (
        bool(before.frames) and theirs is not None and call_site(theirs.frames or ()) == call_site(before.frames or ())
    )
    return Steps(operations[:end], path, before if joined else None)


def _may_diverge_at(case: Situation, operation: Operation, other: int) -> bool:
    """True if two ranks may have diverged here: it is in flight, or the other used its number at another call site."""
    if not operation.completed:
        return True
    theirs = case.history.at(operation.group.key, operation.seq).get(other)
    return theirs is None or (
        bool(theirs.frames) and call_site(theirs.frames or ()) != call_site(operation.frames or ())
    )


def inside(frames: Sequence[Frame], frame: Frame, block: Block) -> Frame | None:
    """Return the frame of a path that is in the function of ``frame`` and in this block of it; None if there is none."""
    place = function_of(frame)
    wanted = (block.kind, block.line)
    return next(
        (f for f in frames if function_of(f) == place and any((b.kind, b.line) == wanted for b in f.blocks)), None
    )


def around(path: Sequence[Frame], block: Block) -> Frame | None:
    """Return the frame of a path that a block is around; None if there is none."""
    return next((f for f in path if (block.kind, block.line) in {(b.kind, b.line) for b in f.blocks}), None)


def batch_loop(tail: Sequence[Frame]) -> tuple[Frame, Block] | None:
    """Return the innermost loop around a path that may be over batches, not over the model's parts; None if there is none.

    The path is deepest first. The loop comes with its frame.
    """
    below = len(tail) - len(above_model(tail))
    for index in range(below, len(tail)):
        frame = tail[index]
        for block in reversed(frame.blocks if is_program(frame) else ()):
            if block.kind not in LOOPS or over_modules(tail, index, block):
                continue
            if not header_of(block).of_model or in_backward(tail[:index]):
                return frame, block
    return None


def count_iterations(frame: Frame, loop: Block) -> int | None:
    """Return the iteration of a loop that a rank is in, or was last in; None if it is not known."""
    described = (frame.locals or {}).get(loop.iterations.counter, "") if loop.iterations is not None else ""
    if loop.iterations is None or not described.startswith("int="):
        return None
    # The counter does not count this iteration yet if the rank is above the line that counts.
    within = inside((frame,), frame, loop) is not None
    uncounted = within and loop.line < loop.iterations.line and frame.line < loop.iterations.line
    return int(described.removeprefix("int=")) + uncounted


def item_of(frame: Frame, loop: Block) -> tuple[tuple[str, str], ...]:
    """Return the variables and digests of the item a rank's loop is at, which compare across a node; empty if not known."""
    return tuple((p.variable, p.digest) for p in frame.positions if p.loop == loop.line)


def iterations_ahead(one: Frame, other: Frame | None, loop: Block) -> int | None:
    """Return by how many iterations of a loop ``one`` is ahead of ``other``; None if they are not counted for both."""
    mine, theirs = count_iterations(one, loop), count_iterations(other, loop) if other is not None else None
    return mine - theirs if mine is not None and theirs is not None else None


def in_backward(path: Sequence[Frame]) -> bool:
    """True if a path is in a backward: a loop around it is one of steps, and not over the parts of a model."""
    return any(bare(f) in {"backward", "_engine_run_backward"} for f in path)


def above_model(path: Sequence[Frame]) -> Sequence[Frame]:
    """Return the frames above the outermost call of a module: loops inside a model's forward are no training loops."""
    called = [i for i, f in enumerate(path) if _calls_module(f)]
    return path[called[-1] :] if called else path


def over_modules(path: Sequence[Frame], index: int, loop: Block) -> bool:
    """True if a loop around a frame of the path calls its own variable as a module: ``for block in self.blocks``."""
    frame = path[index]
    target = header_of(loop).binds[-1:]
    called = any(re.search(rf"(?<![\w.]){name}\(", frame.source or "") for name in target)
    return called and index > 0 and _calls_module(path[index - 1])


def _calls_module(frame: Frame) -> bool:
    return calls((frame,), "torch/nn/modules/module.py", "_call_impl", "_wrapped_call_impl") is not None
