"""Evaluation loops that gather what differs in structure between ranks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from hangwatch.analysis.case import Case
from hangwatch.causes.forks import Fork, find_fork
from hangwatch.causes.frames import bare, calls, where
from hangwatch.causes.hypothesis import Hypothesis, Knowledge
from hangwatch.causes.observations import at_fork
from hangwatch.causes.parted import parted
from hangwatch.model.incident import Evidence
from hangwatch.model.stacks import Frame

TUPLE_LABELS = Knowledge(
    id="tuple-labels-gather",
    title="Evaluation gathers labels whose structure differs between the ranks",
    remedy=(
        "Keep `labels` one tensor of fixed structure on every rank.",
        "Drop the extra name from `label_names` in TrainingArguments, and carry metadata in the batch or in the model.",
        "Run once with ACCELERATE_DEBUG_MODE=1 to have accelerate name the shapes that differ.",
        "As a stopgap set eval_use_gather_object=True: it ends the hang, but flattens `label_ids`.",
    ),
    references=("https://huggingface.co/docs/accelerate/basic_tutorials/troubleshooting",),
)

_LOOPS = ("evaluation_loop", "prediction_loop")
_OPERATIONS = "accelerate/utils/operations.py"
_GATHERS = ("gather", "_gpu_gather", "pad_across_processes", "recursively_apply", "gather_object")
_LABELS = re.compile(r"\blabels?\b")
_NESTED_LOCAL = re.compile(r"^(?:tuple|list|dict)\b")


def _labels_gather(path: Sequence[Frame]) -> Frame | None:
    """The line of the evaluation loop that gathers or pads labels, if the path goes through one."""
    gather = calls(path, _OPERATIONS, *_GATHERS)
    loop = next((f for f in path if bare(f) in _LOOPS), None)
    if gather is None or loop is None:
        return None
    return loop if _LABELS.search(loop.source or "labels") else None


def _nested(path: Sequence[Frame], loop: Frame) -> str | None:
    """What shows that the labels are a container: the recursion over them, or their description."""
    for frame in (loop, *path):
        told = (frame.locals or {}).get("labels") or (
            (frame.locals or {}).get("data") if _OPERATIONS in frame.file else None
        )
        if told and _NESTED_LOCAL.match(told):
            return f"the labels are {told}"
    depth = sum(_OPERATIONS in f.file and bare(f) in {"recursively_apply", "_pad_across_processes"} for f in path)
    return f"recursively_apply is {depth} calls deep" if depth > 1 else None


def tuple_labels(case: Case) -> Hypothesis | None:
    """One side gathers labels that are a container, and the other is anywhere else."""
    fork = find_fork(case) if parted(case) else None
    if fork is None:
        return None
    for side, other in ((fork.mine, fork.theirs), (fork.theirs, fork.mine)):
        loop = _labels_gather(side.path)
        if loop is None:
            continue
        theirs = next((f for f in other.path if bare(f) in _LOOPS), None)
        nested = _nested(side.path, loop)
        if nested is None and not _labels_absent(fork, loop, theirs):
            continue
        told = nested or "the labels are there on one side and absent on the other"
        confidence = 0.92 if nested else 0.7
        said = (
            f"Rank {side.rank} gathers labels in the evaluation loop while rank {other.rank} does not: {told}, and the "
            f"number of tensors in them differs between the ranks, so one called more gathers than the other."
        )
        # Which branch of the trainer's own loop they are in explains nothing here.
        evidence = (Evidence(side.rank, "stack", f"{where(loop)}; {told}"), *at_fork(case, replace(fork, block=None)))
        return Hypothesis(TUPLE_LABELS, confidence, said, evidence)
    return None


def _labels_absent(fork: Fork, loop: Frame, theirs: Frame | None) -> bool:
    """Whether the other side is in the same evaluation loop, at a line without labels: it had none to gather."""
    return theirs is not None and fork.relation != "loop" and theirs.line != loop.line
