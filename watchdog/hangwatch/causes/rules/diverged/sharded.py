"""Sharded models (ZeRO-3, FSDP): every forward is a collective, so every rank has to go the same way through the model."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hangwatch.analysis.case import Case
from hangwatch.analysis.divergence.call_sites import early_visit
from hangwatch.analysis.divergence.iterations import begins_again, in_backward
from hangwatch.analysis.divergence.relate import CONDITIONS, Fork
from hangwatch.analysis.places import bare, calls, is_program, package_of, same_function, where
from hangwatch.causes.evidence import at_fork
from hangwatch.causes.match import Level, Match
from hangwatch.model.incident import Evidence
from hangwatch.model.stacks import Block, Frame
from hangwatch.program.lines import header_of

_SHARDING = (
    "torch/distributed/fsdp",
    "torch/distributed/_composable/fsdp",
    "deepspeed/runtime/zero",
    "fairscale/nn/data_parallel",
    "torch/distributed/tensor/",
    "torch/distributed/_functional_collectives.py",
)


#: What ends a loop that takes its batches by ``next``.
_OUT_OF_DATA = re.compile(r"not \w+|\w+ is None")


#: A module's forward that gathers what it keeps a part of: ``dist.all_gather(parts, self.shard)``, ``Gathered.apply(self.part)``.
_GATHERS_ITS_OWN = re.compile(
    r"(?:all_gather\w*|\.apply)\(.*\bself\.\w+(?:\.(?:detach|contiguous|clone|flatten|view)\(|(?![\w.]*\())"
)


def _under_sharding(path: Sequence[Frame]) -> Frame | None:
    by_a_library = next((f for part in _SHARDING if (f := calls(path, part)) is not None), None)
    return by_a_library or _gathers_its_own(path)


def _gathers_its_own(path: Sequence[Frame]) -> Frame | None:
    """Return the line of a module that shards its weights by its own code and gathers them for each use; else None."""
    entry = next((i for i, f in enumerate(path) if _module((f,)) is not None), 0)
    return _gathers_a_part(path[:entry])


def _gathers_a_part(path: Sequence[Frame]) -> Frame | None:
    """Return the line of an object that gathers what it has a part of; None if there is none."""
    if calls(path, "torch/distributed/distributed_c10d.py", "all_gather", "all_gather_into_tensor") is None:
        return None
    return next((f for f in path if is_program(f) and _GATHERS_ITS_OWN.search(f.source or "")), None)


def _exchanges(path: Sequence[Frame]) -> bool:
    """True if a path is in an all-to-all, as between experts that a program has spread over the ranks itself."""
    return calls(path, "torch/distributed/distributed_c10d.py", "all_to_all", "all_to_all_single") is not None


def _gathers_and_scatters(case: Case, rank: int, path: Sequence[Frame]) -> bool:
    """True inside a custom autograd function that gathers from all ranks and scatters or sums its result.

    This is an all-to-all by hand. A loss gathers only.
    """
    apply = calls(path, "torch/autograd/function.py", "apply")
    own = next((f for f in path[path.index(apply) :] if is_program(f)), None) if apply is not None else None
    if own is None:
        return False
    called = {o.op for o in case.history.of(rank) if any(same_function(f, own) for f in o.frames or ())}
    return "all_gather" in called and not called.isdisjoint({"reduce_scatter", "all_reduce"})


def _exchanges_its_own(path: Sequence[Frame]) -> Frame | None:
    """Return the program's frame in a backward pass that takes gradients back between experts; None if in none."""
    if not _exchanges(path) or calls(path, "torch/autograd/function.py", "apply") is None:
        return None
    return next((f for f in path if is_program(f)), None)


def _generation(path: Sequence[Frame]) -> Frame | None:
    """Return the call of a ``generate``, of transformers or of the program's own; None if there is none."""
    return calls(path, "transformers/generation/", "generate") or next(
        (f for f in path if is_program(f) and bare(f) == "generate"), None
    )


def _decoding(path: Sequence[Frame]) -> Frame | None:
    """Return the program's frame with a decoding loop: a forward without gradients, ended by its outcome; None if in none.

    Batches of an evaluation come from a ``for``, or end a ``while`` when there are no more.
    """
    entry = next((i for i, f in enumerate(path) if _module((f,)) is not None and _module(path[i + 1 :]) is None), None)
    if entry is None or in_backward(path[:entry]):
        return None
    for index, frame in enumerate(path[entry:], entry):
        if is_program(frame) and any(ends_by_outcome(b) for b in frame.blocks):
            if any(h.leaves == "break" and _OUT_OF_DATA.fullmatch(h.said) for h in map(header_of, frame.blocks)):
                return None
            blocks = [header_of(b) for f in path[index:] for b in f.blocks if b.kind == "with"]
            context = any(not header.names.isdisjoint({"no_grad", "inference_mode"}) for header in blocks)
            decorated = calls(path[index + 1 : index + 3], "torch/utils/_contextlib.py", "decorate_context")
            return frame if context or decorated is not None else None
    return None


def ends_by_outcome(loop: Block) -> bool:
    """True if a loop goes on for as long as something holds, or so many times at most."""
    breaks = loop.iterations is not None and loop.iterations.breaks
    return loop.kind == "while" or (loop.kind == "for" and breaks and header_of(loop).over.startswith("range("))


def generate_length(case: Case) -> Match | None:
    """Return a match if one side is in ``generate`` on a sharded model, and the other has left it."""
    fork = case.fork
    if fork is None:
        return None
    for side, other in fork.both_ways:
        inside, sharding = _generation(side.path), _under_sharding(side.path)
        if fork.relation == "loop" and inside is None:
            inside = _decoding(side.path)
        elif fork.relation == "loop" and sharding is None and inside is not None and is_program(inside):
            by_outcome = any(map(ends_by_outcome, inside.blocks))
            sharding = _gathers_a_part(side.path[: side.path.index(inside)]) if by_outcome else None
        if inside is None or sharding is None or _generation(other.path) is not None:
            continue
        said = (
            f"Rank {side.rank} is still generating on a sharded model; rank {other.rank} has finished and "
            "no longer calls forward."
        )
        evidence = (Evidence(side.rank, "stack", f"in {where(sharding)} below {where(inside)}"), *at_fork(case, fork))
        level: Level = "likely" if fork.ranked else "strong"
        return Match("generate-length-divergence", level, said, evidence, side.rank if fork.ranked else other.rank)
    return None


def _module(path: Sequence[Frame]) -> Frame | None:
    return calls(path, "torch/nn/modules/module.py", "_call_impl", "_wrapped_call_impl", "inner")


def sharded_forward(case: Case) -> Match | None:
    """Return a match if the paths diverge inside the model's forward or backward, which needs the shards of all ranks."""
    fork = case.fork
    if fork is None:
        return None
    shared = fork.culprit.path[len(fork.culprit.tail) - 1 :]
    sharding = _under_sharding(fork.culprit.tail) or _under_sharding(fork.other.tail)
    if sharding is not None and _module(shared) is not None and fork.relation != "same":
        said = (
            "The ranks diverge inside the model's forward, which needs the parameter shards of every "
            f"rank, in {where(sharding)}."
        )
        left_out = fork.sides[1].rank if fork.relation == "branch" else None
        return Match("sharded-forward-divergence", "strong", said, at_fork(case, fork), left_out)
    if (experts := _exchanges_with_experts(case, fork)) is not None:
        return experts
    both = all(_computing(side.path) is not None or _in_engine(side.path) for side in (fork.culprit, fork.other))
    if fork.relation == "same" and both and (sharding := sharding or _under_sharding(fork.culprit.path)) is not None:
        said = (
            "The ranks are in the same step but run different modules of the model, which needs "
            f"every rank in {where(sharding)}."
        )
        shown = tuple(
            Evidence(s.rank, "stack", where(f)) for s in (fork.culprit, fork.other) if (f := _computing(s.path))
        )
        return Match("sharded-forward-divergence", "strong", said, (*shown, *at_fork(case, fork)))
    return _runs_more_modules(case, fork)


def _exchanges_with_experts(case: Case, fork: Fork) -> Match | None:
    """Return a match if one side exchanges tokens with experts, and the other has skipped that module."""
    for side, other in fork.both_ways:
        spread = _exchanges(side.path) or _gathers_and_scatters(case, side.rank, side.path)
        chosen = _chosen_modules(side.path) if spread and not in_backward(side.path) else None
        if chosen is None:
            continue
        frame, block = chosen
        # It may be in the next layer of the same kind.
        again = block.kind == "guard" and any(same_function(f, frame) and f.line < block.line for f in other.path)
        if _module(other.path) is not None and not again:
            continue
        if block.kind == "guard":
            how, left = "past", "returned from it earlier"
        elif block.kind == "if" and _module(side.path[: side.path.index(frame)]) is not None:
            how, left = "under", "skipped that module"
        else:
            continue
        said = (
            f"Rank {side.rank} exchanges tokens with experts on other ranks, {how} `{block.text}` in "
            f"{bare(frame)}; rank {other.rank} {left}."
        )
        return Match("sharded-forward-divergence", "strong", said, at_fork(case, fork), other.rank)
    return None


def _runs_more_modules(case: Case, fork: Fork) -> Match | None:
    """Return a match if one side is still in a forward or a backward that the other has finished."""
    inside = fork.relation == "branch" and not (fork.sure or fork.ranked)  # a condition further down, in the model
    if not (fork.relation == "order" or inside) or fork.culprit.at is None or fork.other.at is None:
        return None
    behind, ahead = (
        (fork.culprit, fork.other) if fork.culprit.at.line < fork.other.at.line else (fork.other, fork.culprit)
    )
    backward = in_backward(behind.tail)
    exchange = _exchanges_its_own(behind.tail) if backward else None
    sharding = _under_sharding(behind.tail) or exchange
    if sharding is None or not (backward or _module(behind.tail)) or _generation(behind.path) is not None:
        return None
    early = early_visit(case, ahead.rank, behind.rank)
    left_out_a_part = early is not None  # it has left out a part of a step
    if not left_out_a_part and behind.at is not None and begins_again(case, behind.rank, behind.at):
        return None  # it is in the forward of another step
    said = (
        f"The ranks run different modules: rank {behind.rank} is in a {'backward' if backward else 'forward'}, in "
        f"{where(sharding)}; rank {ahead.rank} is not."
    )
    in_the_step = exchange is not None if backward else left_out_a_part or _computing(ahead.path) is not None
    level: Level = "strong" if in_the_step else "likely"
    return Match("sharded-forward-divergence", level, said, at_fork(case, fork), ahead.rank if exchange else None)


def _chosen_modules(path: Sequence[Frame]) -> tuple[Frame, Block] | None:
    """Return the condition that leaves out a part of a model spread over the ranks, and its frame; None if there is none."""
    entry = next((i for i in reversed(range(len(path))) if _is_entry(path[i])), None)
    if entry is None and _exchanges(path):
        # A layer that is no ``torch.nn.Module`` may be called like one.
        entry = next((i + 1 for i, f in enumerate(path) if is_program(f) and bare(f) in {"__call__", "forward"}), None)
    if entry is None:
        return None
    program = ((f, b) for f in path[:entry] if is_program(f) and package_of(f) is None for b in f.blocks)
    return next(((f, b) for f, b in program if b.kind in CONDITIONS or b.kind == "guard"), None)


def _computing(path: Sequence[Frame]) -> Frame | None:
    """Return the program's frame in which a path goes into the model's forward or backward; None if it does not."""
    entry = next((i for i in reversed(range(len(path))) if _is_entry(path[i])), None)
    return next((f for f in path[entry:] if is_program(f)), None) if entry is not None else None


def _in_engine(path: Sequence[Frame]) -> bool:
    """True if a backward pass has called from a thread of its own, in which there is nothing of the program."""
    return bool(path) and not any(is_program(f) for f in path)


def _is_entry(frame: Frame) -> bool:
    called = calls((frame,), "torch/nn/modules/module.py", "_call_impl")
    return called is not None or in_backward((frame,))
