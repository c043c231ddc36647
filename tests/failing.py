"""What is to be said of each fault of ``jobs/failing.py``: by the program, and not by what is said of it."""

from __future__ import annotations

from typing import NamedTuple


class Truth(NamedTuple):
    """The causes that are right, the ranks of which one has to be named, and the two lines, without their order."""

    causes: frozenset[str]
    culprits: frozenset[int]
    lines: tuple[str, ...]


def _truth(*causes: str, culprits: tuple[int, ...] = (0, 1), lines: tuple[str, ...] = ()) -> Truth:
    return Truth(frozenset(causes), frozenset(culprits), lines)


#: Mistakes that crash on Gloo. Where calls do not match, both sides may be named.
MISMATCHES = {
    "sizes": _truth("shape-mismatch", lines=("dist.all_reduce(losses)",)),
    "dtype": _truth("dtype-mismatch", lines=("dist.all_reduce(total)",)),
    "gathered": _truth("shape-mismatch", lines=("dist.all_gather(found, predictions)",)),
    "evaluation": _truth(
        "ranks-diverged", lines=("dist.all_reduce(loss)", "dist.all_reduce(torch.ones(64))")
    ),
    "main_process": _truth(
        "ranks-diverged", lines=("dist.all_reduce(norm)", "dist.all_reduce(torch.ones(32))")
    ),
    "order": _truth(
        "collective-mismatch", "shape-mismatch", "ranks-diverged",
        lines=("dist.all_reduce(loss)", "dist.all_reduce(weights)"),
    ),
    "parameters": _truth(
        "shape-mismatch", "ranks-diverged",
        lines=("dist.all_reduce(parameter.grad)",),
    ),
    "buckets": _truth("shape-mismatch", lines=("dist.all_reduce(bucket)",)),
    "leaves": _truth("early-exit", "ranks-diverged", culprits=(1,), lines=("dist.all_reduce(torch.ones(8))",)),
    "batches": _truth("ranks-diverged", lines=("model(batch).sum().backward()", "dist.all_reduce(seen)")),
    # Nothing comes after the loop: who has run out of items is at the end of the program.
    "items": _truth("ranks-diverged", "early-exit", culprits=(1,)),
    "skips": _truth(
        "ranks-diverged",
        lines=("dist.all_reduce(torch.ones(16))", "dist.all_reduce(torch.tensor([float(size)]))")
    ),
    "checkpoint": _truth(
        "ranks-diverged", "checkpoint-on-some-ranks",
        lines=("dist.all_reduce(seen)", "dist.all_reduce(torch.ones(64))"),
    ),
}  # fmt: skip
#: Failures of something else: no verdict.
OTHERS = ("memory", "assertion", "interrupt", "network", "value", "status", "everywhere", "missing_file")
FAULTS = (*MISMATCHES, *OTHERS)
