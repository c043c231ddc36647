"""Sharded models (ZeRO-3, FSDP): every forward is a collective, so every rank has to go the same way through the model."""

from __future__ import annotations

from collections.abc import Sequence

from hangwatch.analysis.case import Case
from hangwatch.causes.forks import find_fork
from hangwatch.causes.frames import calls, where
from hangwatch.causes.hypothesis import Hypothesis, Knowledge
from hangwatch.causes.observations import at_fork
from hangwatch.causes.parted import parted
from hangwatch.model.incident import Evidence
from hangwatch.model.stacks import Frame

GENERATE = Knowledge(
    id="generate-length-divergence",
    title="Generation ended at different lengths on a sharded model",
    remedy=(
        "Pass synced_gpus=True to generate(): ranks that are done keep calling forward until all are.",
        "Or generate on a gathered copy of the model (GatheredParameters, summon_full_params).",
    ),
)
SHARDED_FORWARD = Knowledge(
    id="sharded-forward-divergence",
    title="The ranks take different ways through a sharded model",
    remedy=(
        "Run the same submodules on every rank in every step; give a skipped one a dummy input multiplied by zero.",
        "For mixture-of-experts layers under ZeRO-3 call deepspeed.utils.set_z3_leaf_modules(model, [ExpertLayer]).",
    ),
)

_SHARDING = (
    "torch/distributed/fsdp",
    "torch/distributed/_composable/fsdp",
    "deepspeed/runtime/zero",
    "fairscale/nn/data_parallel",
)


def _under_sharding(path: Sequence[Frame]) -> Frame | None:
    return next((f for part in _SHARDING if (f := calls(path, part)) is not None), None)


def _generation(path: Sequence[Frame]) -> Frame | None:
    return calls(path, "transformers/generation/", "generate")


def generate_length(case: Case) -> Hypothesis | None:
    """One side is in ``generate`` on a sharded model, the other has left it (or is in another turn of it)."""
    fork = find_fork(case) if parted(case) else None
    if fork is None:
        return None
    for side, other in ((fork.mine, fork.theirs), (fork.theirs, fork.mine)):
        inside, sharding = _generation(side.path), _under_sharding(side.path)
        if inside is None or sharding is None or _generation(other.path) is not None:
            continue
        said = f"Rank {side.rank} still generates on a sharded model, rank {other.rank} is done and calls no forward any more."
        evidence = (Evidence(side.rank, "stack", f"in {where(sharding)} below {where(inside)}"), *at_fork(case, fork))
        return Hypothesis(GENERATE, 0.88, said, evidence)
    return None


def _module(path: Sequence[Frame]) -> Frame | None:
    return calls(path, "torch/nn/modules/module.py", "_call_impl", "_wrapped_call_impl", "inner")


def sharded_forward(case: Case) -> Hypothesis | None:
    """The paths part below a module's ``forward``, or one side gathers shards in a forward the other is through with."""
    fork = find_fork(case) if parted(case) else None
    if fork is None or fork.relation == "same":
        return None
    shared = fork.mine.path[len(fork.mine.tail) - 1 :]
    sharding = _under_sharding(fork.mine.tail) or _under_sharding(fork.theirs.tail)
    if sharding is not None and _module(shared) is not None:
        said = f"The ranks part inside the model's forward, and {where(sharding)} needs the parameters' shards of every rank."
        return Hypothesis(SHARDED_FORWARD, 0.87, said, at_fork(case, fork))
    if fork.relation != "order" or fork.mine.at is None or fork.theirs.at is None:
        return None
    behind, ahead = (fork.mine, fork.theirs) if fork.mine.at.line < fork.theirs.at.line else (fork.theirs, fork.mine)
    sharding = _under_sharding(behind.tail)
    if sharding is None or _module(behind.tail) is None or _generation(behind.path) is not None:
        return None
    said = (
        f"Rank {behind.rank} still gathers shards in a forward that rank {ahead.rank} is through with: it runs more "
        f"modules than the other."
    )
    return Hypothesis(SHARDED_FORWARD, 0.6, said, at_fork(case, fork))
