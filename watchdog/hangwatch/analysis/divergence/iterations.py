"""What a rank did just before its operation, and whether in the same visit of a block or iteration of a loop."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hangwatch.analysis.divergence.frames import call_site, function_of, is_parameter_loop, is_program
from hangwatch.analysis.places import bare, calls
from hangwatch.analysis.situation import Situation
from hangwatch.model.collectives import Operation
from hangwatch.model.stacks import Block, Frame

LOOPS = frozenset({"for", "while"})
#: Modules, and collectives that a backward goes through.
_STEP_FILES = ("torch/nn/modules/module.py", "torch/distributed/nn/functional.py", "torch/autograd/")


@dataclass(frozen=True)
class Steps:
    """One rank's operations up to the one at which it diverged from another rank, which is at ``path``.

    ``before`` is the operation issued before that, where the other rank took part in it from the same place; else None.
    """

    operations: tuple[Operation, ...]
    path: tuple[Frame, ...]
    before: Operation | None

    def in_same_visit(self, frame: Frame, block: Block) -> bool:
        """Whether ``before`` was issued in the same visit of a block around ``frame`` as the diverging operation.

        Two visits have something else between them: it has been seen before this one, or lies in the same function.
        """
        last = inside(self.before.frames or (), frame, block) if self.before is not None else None
        if last is None or (last.line > frame.line and _loops(frame)):
            return False  # it is further down in the block: that was the iteration before
        index = len(self.operations)
        while index > 0 and inside(self.operations[index - 1].frames or (), frame, block) is not None:
            index -= 1
        if index == 0:
            return False
        apart = self.operations[index - 1].frames or ()
        beside = any(function_of(f) == function_of(frame) for f in apart)
        return beside or any(inside(o.frames or (), frame, block) is not None for o in self.operations[:index])

    def earlier_in_iteration(self, frame: Frame, loop: Block) -> bool:
        """Whether ``before`` was issued at an earlier line of the same iteration of the loop around ``frame``."""
        theirs_in = inside(self.before.frames or (), frame, loop) if self.before is not None else None
        if self.before is None or theirs_in is None or frame not in self.path:
            return False
        frames = self.before.frames or ()
        theirs = [f for f in frames[: frames.index(theirs_in) + 1] if is_program(f)]
        mine = [f for f in self.path[: self.path.index(frame) + 1] if is_program(f)]
        for left, right in zip(reversed(theirs), reversed(mine), strict=False):
            if function_of(left) != function_of(right):
                return False
            if left.line != right.line:
                # Within a loop further in, an earlier line may be of an earlier iteration of that one.
                shared = _loops(left) & _loops(right)
                return left.line < right.line and shared <= _loops(frame)
        return False

    def run_length(self) -> int:
        """How many operations in a row, up to the diverging one and without it, were issued from the place it was."""
        here = call_site(self.path)
        count = 0
        for operation in reversed(self.operations):
            if call_site(operation.frames or ()) != here:
                break
            count += 1
        return count


def begins_again(case: Situation, rank: int, frame: Frame) -> bool:
    """Whether the last operation of a rank is the first of another call from the line of ``frame``: the same as the one that the
    row of operations from that line has begun with."""

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


def begins_iteration_alone(case: Situation, rank: int, other: int, frame: Frame) -> bool:
    """Whether the last operation that two ranks issued by one and the same path was in the function of ``frame``, and the
    rank's next one is at that line of it or further up: it has begun another iteration there, and the other has not."""

    def path_of(operation: Operation) -> list[tuple[str, str, int]]:
        return [(*function_of(f), f.line) for f in operation.frames or () if is_program(f)]

    def line_of(operation: Operation) -> int | None:
        return next((f.line for f in operation.frames or () if function_of(f) == function_of(frame)), None)

    following: Operation | None = None
    for operation in reversed(case.history.of(rank)):
        theirs = case.history.at(operation.group.key, operation.seq).get(other) if not operation.p2p else None
        if theirs is not None and operation.frames and path_of(theirs) == path_of(operation):
            last, now = line_of(operation), line_of(following) if following is not None else None
            return last is not None and now is not None and now <= last
        following = operation
    return False


def steps_of(case: Situation, rank: int, path: tuple[Frame, ...], other: int) -> Steps:
    """The steps of a rank that diverged from ``other`` at ``path``. Without call sites nothing comes before."""
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
    """Whether two ranks may have diverged here: it is in flight, or the other used its number at another call site."""
    if not operation.completed:
        return True
    theirs = case.history.at(operation.group.key, operation.seq).get(other)
    return theirs is None or (
        bool(theirs.frames) and call_site(theirs.frames or ()) != call_site(operation.frames or ())
    )


def inside(frames: Sequence[Frame], frame: Frame, block: Block) -> Frame | None:
    """The frame of a path that is in the function of ``frame`` and in this block of it."""
    place = function_of(frame)
    wanted = (block.kind, block.line)
    return next(
        (f for f in frames if function_of(f) == place and any((b.kind, b.line) == wanted for b in f.blocks)), None
    )


def around(path: Sequence[Frame], block: Block) -> Frame | None:
    """The frame of a path that a block is around."""
    return next((f for f in path if (block.kind, block.line) in {(b.kind, b.line) for b in f.blocks}), None)


def has_called_inside(case: Situation, rank: int, frame: Frame, block: Block) -> bool:
    """Whether a rank has completed an operation that it called in a block of the function of ``frame``."""
    return any(o.completed and inside(o.frames or (), frame, block) is not None for o in case.history.of(rank))


def batch_loop(tail: Sequence[Frame]) -> tuple[Frame, Block] | None:
    """The innermost loop of a path (deepest first) that may be one over batches: not over the model's parts or parameters."""
    below = len(tail) - len(above_model(tail))
    for index in range(below, len(tail)):
        frame = tail[index]
        for block in reversed(frame.blocks if is_program(frame) else ()):
            if block.kind not in LOOPS or over_modules(tail, index, block):
                continue
            if not is_parameter_loop(block.text) or in_backward(tail[:index]):
                return frame, block
    return None


def count_iterations(frame: Frame, loop: Block) -> int | None:
    """The iteration of a loop that a rank is in, or was last in."""
    described = (frame.locals or {}).get(loop.iterations.counter, "") if loop.iterations is not None else ""
    if loop.iterations is None or not described.startswith("int="):
        return None
    # An iteration that is counted further down than the line in it is not counted yet.
    within = inside((frame,), frame, loop) is not None
    uncounted = within and loop.line < loop.iterations.line and frame.line < loop.iterations.line
    return int(described.removeprefix("int=")) + uncounted


def item_of(frame: Frame, loop: Block) -> tuple[tuple[str, str], ...]:
    """What the iteration of a loop that a rank is in is about, as all processes of a node tell it alike; empty if not known."""
    return tuple((p.variable, p.digest) for p in frame.positions if p.loop == loop.line)


def iterations_ahead(one: Frame, other: Frame | None, loop: Block) -> int | None:
    """By how many iterations of a loop a rank is ahead of another in its function; None where nothing counts them for both."""
    mine, theirs = count_iterations(one, loop), count_iterations(other, loop) if other is not None else None
    return mine - theirs if mine is not None and theirs is not None else None


def in_backward(path: Sequence[Frame]) -> bool:
    """Whether a path is in a backward: a loop around that is one of steps, and not over the parts of a model."""
    return any(bare(f) in {"backward", "_engine_run_backward"} for f in path)


def is_of_a_step(path: Sequence[Frame]) -> bool:
    """Whether a path is in what a step of training is made of: a model, its backward or an optimizer.

    What is called without gradients is none: ``LightningModule.all_gather`` goes by the collectives that have some.
    """
    without = next((i for i, f in enumerate(path) if any(map(_is_without_gradients, f.blocks))), 0)
    rest = path[without:]
    return in_backward(rest) or any(bare(f) == "step" or any(part in f.file for part in _STEP_FILES) for f in rest)


def _is_without_gradients(block: Block) -> bool:
    return block.kind == "with" and "no_grad(" in block.text


def above_model(path: Sequence[Frame]) -> Sequence[Frame]:
    """The frames above the outermost call of a module: loops inside a model's forward are no training loops."""
    called = [i for i, f in enumerate(path) if _calls_module(f)]
    return path[called[-1] :] if called else path


def over_modules(path: Sequence[Frame], index: int, loop: Block) -> bool:
    """Whether a loop around a frame of the path calls its own variable, which is a module: ``for block in self.blocks``."""
    frame = path[index]
    target = loop.text.partition(" in ")[0].removeprefix("for ").rpartition(",")[2].strip(" ()")
    called = bool(target) and re.search(rf"(?<![\w.]){re.escape(target)}\(", frame.source or "") is not None
    return called and index > 0 and _calls_module(path[index - 1])


def _calls_module(frame: Frame) -> bool:
    return calls((frame,), "torch/nn/modules/module.py", "_call_impl", "_wrapped_call_impl") is not None


def _loops(frame: Frame) -> set[tuple[str, int]]:
    return {(b.kind, b.line) for b in frame.blocks if b.kind in LOOPS}
