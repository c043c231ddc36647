"""Sharded models (ZeRO-3, FSDP): every forward is a collective, so every rank has to go the same way through the model."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hangwatch.analysis.case import Case
from hangwatch.analysis.divergence.call_sites import early_visit
from hangwatch.analysis.divergence.frames import is_program, same_function, where
from hangwatch.analysis.divergence.iterations import begins_again, in_backward, steps_of
from hangwatch.analysis.divergence.relate import CONDITIONS, Fork
from hangwatch.analysis.places import bare, calls, package_of
from hangwatch.causes.evidence import at_fork
from hangwatch.causes.signature import Match, Signature
from hangwatch.model.incident import Evidence
from hangwatch.model.stacks import Block, Frame

#: What the loop is of.
GENERATES = Signature(
    "generate-length-divergence",
    "generates",
    "strong",
    beats=("uneven-inputs", "rank-conditional-collective", "skipped-collective"),
    decides=True,
)
#: What the loop is of, unless its iterations are counted.
OWN_DECODING = Signature(
    "generate-length-divergence",
    "own-decoding-loop",
    "strong",
    beats=(
        "uneven-inputs/past-the-loop",
        "uneven-inputs/past-a-loop-further-down",
        "rank-conditional-collective",
        "skipped-collective",
    ),
)
GENERATES_BY_RANK = Signature("generate-length-divergence", "generates-by-rank", "likely")
#: Each module gathers its shards: what was left out is a module.
INSIDE_FORWARD = Signature(
    "sharded-forward-divergence",
    "inside-the-forward",
    "strong",
    beats=("skipped-collective", "rank-conditional-collective", "uneven-inputs"),
    decides=True,
)
#: Each module gathers its shards: what was left out is a module.
OTHER_MODULES = Signature(
    "sharded-forward-divergence",
    "other-modules",
    "strong",
    beats=("skipped-collective", "rank-conditional-collective", "dtype-mismatch", "shape-mismatch"),
)
#: Each module gathers its shards: what was left out is a module.
BEHIND_A_FORWARD = Signature(
    "sharded-forward-divergence",
    "behind-in-the-forward",
    "strong",
    beats=("skipped-collective", "rank-conditional-collective"),
)
#: Of a module that has its weights on every rank the same may be called a collective that was left out.
BEHIND_IN_A_BACKWARD = Signature("sharded-forward-divergence", "behind-in-the-backward", "likely")
#: The experts are spread over the ranks, and so is what takes their gradients back: without tokens there was none to take.
EXCHANGE_LEFT_OUT = Signature(
    "sharded-forward-divergence",
    "exchange-left-out-of-the-backward",
    "strong",
    beats=("skipped-collective", "rank-conditional-collective"),
)
BEHIND_ELSEWHERE = Signature("sharded-forward-divergence", "behind-others-elsewhere", "likely")
#: The experts are spread over the ranks: what a rank without tokens left out is a module's.
EXPERTS_LEFT_OUT = Signature(
    "sharded-forward-divergence",
    "experts-left-out",
    "strong",
    beats=("skipped-collective", "rank-conditional-collective", "group-order-inversion"),
)
FORWARD_BY_RANK = Signature("sharded-forward-divergence", "forward-by-rank", "possible")

_SHARDING = (
    "torch/distributed/fsdp",
    "torch/distributed/_composable/fsdp",
    "deepspeed/runtime/zero",
    "fairscale/nn/data_parallel",
    "torch/distributed/tensor/",
    "torch/distributed/_functional_collectives.py",
)


#: What ends a loop that takes its batches by ``next``.
_OUT_OF_DATA = re.compile(r"if (?:not \w+|\w+ is None): break")


#: A module's forward that gathers what it keeps a part of: ``dist.all_gather(parts, self.shard)``, ``Gathered.apply(self.part)``.
_GATHERS_ITS_OWN = re.compile(
    r"(?:all_gather\w*|\.apply)\(.*\bself\.\w+(?:\.(?:detach|contiguous|clone|flatten|view)\(|(?![\w.]*\())"
)


def _under_sharding(path: Sequence[Frame]) -> Frame | None:
    by_a_library = next((f for part in _SHARDING if (f := calls(path, part)) is not None), None)
    return by_a_library or _gathers_its_own(path)


def _gathers_its_own(path: Sequence[Frame]) -> Frame | None:
    """The line of a module that spreads its weights over the ranks by code of its own, and gathers them for each use."""
    entry = next((i for i, f in enumerate(path) if _module((f,)) is not None), 0)
    return _gathers_a_part(path[:entry])


def _gathers_a_part(path: Sequence[Frame]) -> Frame | None:
    """The line of an object that gathers what it has a part of."""
    if calls(path, "torch/distributed/distributed_c10d.py", "all_gather", "all_gather_into_tensor") is None:
        return None
    return next((f for f in path if is_program(f) and _GATHERS_ITS_OWN.search(f.source or "")), None)


def _exchanges(path: Sequence[Frame]) -> bool:
    """Whether a path is in an exchange between experts, which a program has spread over the ranks itself."""
    return calls(path, "torch/distributed/distributed_c10d.py", "all_to_all", "all_to_all_single") is not None


def _gathers_and_scatters(case: Case, rank: int, path: Sequence[Frame]) -> bool:
    """Whether a path is in a function with a backward of its own, of a layer that gathers from all ranks and scatters to them, or
    sums over them, what it makes of that: another way to exchange. A loss gathers only."""
    apply = calls(path, "torch/autograd/function.py", "apply")
    own = next((f for f in path[path.index(apply) :] if is_program(f)), None) if apply is not None else None
    if own is None:
        return False
    called = {o.op for o in case.history.of(rank) if any(same_function(f, own) for f in o.frames or ())}
    return "all_gather" in called and not called.isdisjoint({"reduce_scatter", "all_reduce"})


def _exchanges_its_own(path: Sequence[Frame]) -> Frame | None:
    """What a backward pass calls that takes gradients back between experts."""
    if not _exchanges(path) or calls(path, "torch/autograd/function.py", "apply") is None:
        return None
    return next((f for f in path if is_program(f)), None)


def _generation(path: Sequence[Frame]) -> Frame | None:
    """The call of a ``generate``, of transformers or of the program's own."""
    return calls(path, "transformers/generation/", "generate") or next(
        (f for f in path if is_program(f) and bare(f) == "generate"), None
    )


def _decoding(path: Sequence[Frame]) -> Frame | None:
    """The program's frame with a loop around a forward without gradients that its outcome ends: a decoding loop of its own.

    Batches of an evaluation come from a ``for``, or end a ``while`` where there is none any more.
    """
    entry = next((i for i, f in enumerate(path) if _module((f,)) is not None and _module(path[i + 1 :]) is None), None)
    if entry is None or in_backward(path[:entry]):
        return None
    for index, frame in enumerate(path[entry:], entry):
        if is_program(frame) and any(ends_by_outcome(b) for b in frame.blocks):
            if any(b.kind == "guard" and _OUT_OF_DATA.fullmatch(b.text) for b in frame.blocks):
                return None
            blocks = [b.text for f in path[index:] for b in f.blocks if b.kind == "with"]
            context = any("no_grad" in text or "inference_mode" in text for text in blocks)
            decorated = calls(path[index + 1 : index + 3], "torch/utils/_contextlib.py", "decorate_context")
            return frame if context or decorated is not None else None
    return None


def _choosing(path: Sequence[Frame], generation: Frame | None) -> Frame | None:
    """The program's frame with a loop that its outcome ends, in which what is chosen from that is the next input, or which is
    called ``generate``."""
    chosen = (f for f in path if is_program(f) and (f is generation or any(b.kind == "chosen" for b in f.blocks)))
    return next((f for f in chosen if any(map(ends_by_outcome, f.blocks))), None)


def ends_by_outcome(loop: Block) -> bool:
    """Whether a loop goes on for as long as something holds, or so many times at most."""
    breaks = loop.iterations is not None and loop.iterations.breaks
    return loop.kind == "while" or (loop.kind == "for" and breaks and " in range(" in loop.text)


def generate_length(case: Case) -> Match | None:
    """One side is in ``generate`` on a sharded model, the other has left it (or is in another iteration of it)."""
    fork = case.fork
    if fork is None:
        return None
    for side, other in ((fork.mine, fork.theirs), (fork.theirs, fork.mine)):
        inside, sharding = _generation(side.path), _under_sharding(side.path)
        own = fork.relation == "loop" and (inside is None or sharding is None)
        if own and (choosing := _choosing(side.path, inside)) is not None:
            inside, sharding = choosing, sharding or _gathers_a_part(side.path[: side.path.index(choosing)])
        elif own and inside is None:
            inside = _decoding(side.path)
        if inside is None or sharding is None or _generation(other.path) is not None:
            continue
        said = f"Rank {side.rank} still generates on a sharded model, rank {other.rank} is done and calls no forward any more."
        evidence = (Evidence(side.rank, "stack", f"in {where(sharding)} below {where(inside)}"), *at_fork(case, fork))
        return Match(GENERATES_BY_RANK if fork.ranked else OWN_DECODING if own else GENERATES, said, evidence)
    return None


def _module(path: Sequence[Frame]) -> Frame | None:
    return calls(path, "torch/nn/modules/module.py", "_call_impl", "_wrapped_call_impl", "inner")


def sharded_forward(case: Case) -> Match | None:
    """The paths diverge inside the model's forward or backward, where at least one side needs shards of all ranks."""
    fork = case.fork
    if fork is None:
        return None
    shared = fork.mine.path[len(fork.mine.tail) - 1 :]
    sharding = _under_sharding(fork.mine.tail) or _under_sharding(fork.theirs.tail)
    if sharding is not None and _module(shared) is not None and fork.relation != "same":
        said = f"The ranks part inside the model's forward, and {where(sharding)} needs the parameters' shards of every rank."
        return Match(INSIDE_FORWARD, said, at_fork(case, fork))
    for side, other in ((fork.mine, fork.theirs), (fork.theirs, fork.mine)):
        spread = _exchanges(side.path) or _gathers_and_scatters(case, side.rank, side.path)
        chosen = chosen_modules(side.path, spread=spread) if spread and not in_backward(side.path) else None
        if chosen is None:
            continue
        frame, block = chosen
        # It may be in the next layer of the same kind.
        again = block.kind == "guard" and any(same_function(f, frame) and f.line < block.line for f in other.path)
        if _module(other.path) is not None and not again:
            continue
        if block.kind == "guard":
            how, left = "past", "has returned from it before"
        elif block.kind == "if" and _module(side.path[: side.path.index(frame)]) is not None:
            how, left = "under", "has left that module out"
        else:
            continue
        said = (
            f"Rank {side.rank} exchanges tokens with the experts of other ranks, {how} `{block.text}` in {bare(frame)}; "
            f"rank {other.rank} {left}."
        )
        return Match(EXPERTS_LEFT_OUT, said, at_fork(case, fork))
    both = all(_computing(side.path) is not None or _in_engine(side.path) for side in (fork.mine, fork.theirs))
    if (
        (fork.relation == "same" or _is_in_its_backward(case, fork))
        and both
        and not _of_one_module(case)
        and (sharding := sharding or _under_sharding(fork.mine.path)) is not None
    ):
        said = (
            f"The ranks are in one and the same step of the program, at different operations of the model; {where(sharding)} "
            f"needs every rank, and not all of them run the same modules."
        )
        shown = tuple(
            Evidence(s.rank, "stack", where(f)) for s in (fork.mine, fork.theirs) if (f := _computing(s.path))
        )
        return Match(OTHER_MODULES, said, (*shown, *at_fork(case, fork)))
    if fork.relation == "branch" and fork.ranked and sharding is not None:
        under, _ = fork.sides
        if _module(under.tail) is None or _generation(under.path) is not None:
            return None
        said = f"Rank {under.rank} alone is in a forward of the sharded model, which needs every rank, in {where(sharding)}."
        return Match(FORWARD_BY_RANK, said, at_fork(case, fork))
    inside = fork.relation == "branch" and not (fork.sure or fork.ranked)  # a condition further down, in the model
    if not (fork.relation == "order" or inside) or fork.mine.at is None or fork.theirs.at is None:
        return None
    behind, ahead = (fork.mine, fork.theirs) if fork.mine.at.line < fork.theirs.at.line else (fork.theirs, fork.mine)
    backward = in_backward(behind.tail)
    exchange = _exchanges_its_own(behind.tail) if backward else None
    sharding = _under_sharding(behind.tail) or exchange
    if sharding is None or not (backward or _module(behind.tail)) or _generation(behind.path) is not None:
        return None
    early = early_visit(case, ahead.rank, behind.rank)
    left_out_a_part = early is not None  # less than a step has
    if not left_out_a_part and behind.at is not None and begins_again(case, behind.rank, behind.at):
        return None  # it is in the forward of another step
    said = (
        f"Rank {behind.rank} is still in a {'backward' if backward else 'forward'} that rank {ahead.rank} is through with, in "
        f"{where(sharding)}: it runs more modules than the other."
    )
    in_the_step = left_out_a_part or _computing(ahead.path) is not None
    row = BEHIND_A_FORWARD if in_the_step else BEHIND_ELSEWHERE
    if backward:
        row = EXCHANGE_LEFT_OUT if exchange is not None else BEHIND_IN_A_BACKWARD
    return Match(row, said, at_fork(case, fork))


def _of_one_module(case: Case) -> bool:
    """Whether the operations that differ are a module's own, of batches of different length: shards of parameters have one
    dimension, and the outputs of two modules another last one."""
    diverged_at = case.blame.diverged_at
    met = [o for side in diverged_at.sides if (o := side.operation) is not None] if diverged_at is not None else []
    if len({(o.op, o.input_dtypes) for o in met}) != 1 or not all(o.input_sizes for o in met):
        return False
    shapes = {o.input_sizes[0] for o in met}
    return len(shapes) > 1 and min(map(len, shapes)) > 1 and len({(len(s), s[-1]) for s in shapes}) == 1


def chosen_modules(path: Sequence[Frame], *, spread: bool = False) -> tuple[Frame, Block] | None:
    """In a model whose parts are known to be ``spread`` over the ranks, or are by the path: the condition by which some are left
    out, and whose it is."""
    entry = next((i for i in reversed(range(len(path))) if _is_entry(path[i])), None)
    if entry is None and _exchanges(path):
        # A layer that is no module of torch's is called as one.
        entry = next((i + 1 for i, f in enumerate(path) if is_program(f) and bare(f) in {"__call__", "forward"}), None)
    if entry is None or not (spread or _exchanges(path) or _under_sharding(path)):
        return None
    program = ((f, b) for f in path[:entry] if is_program(f) and package_of(f) is None for b in f.blocks)
    return next(((f, b) for f, b in program if b.kind in CONDITIONS or b.kind == "guard"), None)


def _computing(path: Sequence[Frame]) -> Frame | None:
    """The program's frame in which a path goes into the model's forward or backward."""
    entry = next((i for i in reversed(range(len(path))) if _is_entry(path[i])), None)
    return next((f for f in path[entry:] if is_program(f)), None) if entry is not None else None


def _in_engine(path: Sequence[Frame]) -> bool:
    """Whether a backward pass has called it from a thread of its own, in which there is nothing of the program."""
    return bool(path) and not any(is_program(f) for f in path)


def _is_in_its_backward(case: Case, fork: Fork) -> bool:
    """Whether one side is in the backward, as a thread of torch's shows, of a forward that the other is in: they came to it
    together, as the operation before was of that."""
    before = steps_of(case, fork.mine.rank, fork.mine.path, fork.theirs.rank).before
    engine = [_in_engine(side.path) for side in (fork.mine, fork.theirs)]
    return sum(engine) == 1 and before is not None and _module(before.frames or ()) is not None


def _is_entry(frame: Frame) -> bool:
    called = calls((frame,), "torch/nn/modules/module.py", "_call_impl")
    return called is not None or in_backward((frame,))
