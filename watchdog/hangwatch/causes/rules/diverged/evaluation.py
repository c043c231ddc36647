"""Evaluation loops that gather what differs in structure between ranks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from hangwatch.analysis.case import Case
from hangwatch.analysis.divergence.iterations import steps_of
from hangwatch.analysis.divergence.relate import Side
from hangwatch.analysis.places import bare, call_site, calls, where
from hangwatch.causes.evidence import at_fork
from hangwatch.causes.match import Level, Match
from hangwatch.model.incident import Evidence
from hangwatch.model.stacks import Frame

_LOOPS = ("evaluation_loop", "prediction_loop")
_OPERATIONS = "accelerate/utils/operations.py"
_GATHERS = ("gather", "_gpu_gather", "pad_across_processes", "recursively_apply", "gather_object", "reduce")
_GATHERED = ("data", "tensor", "input_data", "object")
_LABELS = re.compile(r"\blabels?\b")
_LOSS = re.compile(r"\bloss(?:es)?\b")
_NESTED_LOCAL = re.compile(r"^(?:tuple|list|dict)\b")


def _labels_gather(path: Sequence[Frame]) -> Frame | None:
    """Return the line of the evaluation loop that gathers or pads labels; None if the path goes through no such one."""
    gather = calls(path, _OPERATIONS, *_GATHERS)
    loop = next((f for f in path if bare(f) in _LOOPS), None)
    if gather is None or loop is None:
        return None
    return loop if _LABELS.search(loop.source or "labels") else None


def _nested(path: Sequence[Frame], loop: Frame) -> str | None:
    """Return what shows that the labels are a container: the recursion over them, or their description; else None."""
    for frame in (loop, *path):
        described = (frame.locals or {}).get("labels") or (
            (frame.locals or {}).get("data") if _OPERATIONS in frame.file else None
        )
        if described and _NESTED_LOCAL.match(described):
            return f"the labels are {described}"
    depth = sum(_OPERATIONS in f.file and bare(f) in {"recursively_apply", "_pad_across_processes"} for f in path)
    return f"recursively_apply is nested {depth} deep" if depth > 1 else None


def tuple_labels(case: Case) -> Match | None:
    """Return a match if one side gathers labels that are a container, or that the other has none of."""
    fork = case.fork
    if fork is None:
        return None
    for side, other in fork.both_ways:
        loop = _labels_gather(side.path)
        nested = _nested(side.path, loop) if loop is not None else None
        if loop is not None and nested is not None:
            said = (
                f"Rank {side.rank} gathers labels in the evaluation loop and rank {other.rank} does "
                f"not: {nested}, and the number of tensors differs between ranks, so one rank called "
                "more gathers than the other."
            )
            level: Level = "certain" if loop.source is not None else "likely"
            more = side.rank if _labels_gather(other.path) is None else None
            # The branch of the trainer's own loop explains nothing here.
            shown = at_fork(case, replace(fork, block=None))
            return Match(
                "tuple-labels-gather",
                level,
                said,
                (Evidence(side.rank, "stack", f"{where(loop)}; {nested}"), *shown),
                more,
            )
        gathered = _container_in_midst(case, side, other) if not fork.ranked else None
        if gathered is not None:
            container, sure = gathered
            said = (
                f"Rank {side.rank} is still gathering {container}, and the others have finished "
                "theirs: the number of tensors in it differs between ranks."
            )
            return Match("tuple-labels-gather", sure, said, at_fork(case, replace(fork, block=None)), side.rank)
        loop = loop or _loss_gather(side.path)
        if loop is None or not _labels_absent(loop, other):
            continue
        said = (
            f"Rank {side.rank} is in {where(loop)}; rank {other.rank} skipped that in the same "
            "iteration of the evaluation. Its batch had no labels, or one label was None."
        )
        shown = at_fork(case, replace(fork, block=None))
        return Match(
            "tuple-labels-gather", "strong", said, (Evidence(side.rank, "stack", where(loop)), *shown), other.rank
        )
    return None


def _gathered(gathers: Sequence[Frame]) -> str:
    """Return the type of the value passed to the outermost gather; empty if not known."""
    return next((t for f in reversed(gathers) for n in _GATHERED if (t := (f.locals or {}).get(n))), "")


def _container_in_midst(case: Case, side: Side, other: Side) -> tuple[str, Level] | None:
    """Return the container that a side is still gathering and the other has left, and how sure that is; else None.

    Both took part in the operation before, from the same line. If the container has a fixed length, that shows whether
    the call had begun. If it is built anew in each iteration, the operation may be of the call before.
    """
    outer = [f for f in side.path if _OPERATIONS in f.file and bare(f) in _GATHERS]
    described = _gathered(outer)
    here = call_site(side.path)
    if not outer or not _NESTED_LOCAL.match(described) or here is None or call_site(other.path) == here:
        return None
    steps = steps_of(case, side.rank, side.path, other.rank)
    if steps.before is None or call_site(steps.before.frames or ()) != here:
        return None
    length = described.count("Tensor") if described.startswith("tuple") and "..." not in described else 0
    if length:
        return (described, "strong") if steps.run_length() % length else None
    return described, "likely"


def _loss_gather(path: Sequence[Frame]) -> Frame | None:
    """Return the line of the evaluation loop that gathers the loss, which only batches with labels have; else None."""
    gather = calls(path, _OPERATIONS, *_GATHERS)
    loop = _loop(path)
    return loop if gather is not None and loop is not None and _LOSS.search(loop.source or "") else None


def _loop(path: Sequence[Frame]) -> Frame | None:
    return next((f for f in path if bare(f) in _LOOPS), None)


def _labels_absent(loop: Frame, other: Side) -> bool:
    """True if the other side has left out what this one gathers, by what is seen of it in the evaluation.

    Its own ``has_labels`` says so, or it is in the same iteration further down. Anywhere else tells nothing: it may
    have had fewer batches.
    """
    theirs = _loop(other.path)
    if theirs is None or theirs.file != loop.file:
        return False
    said = [(frame.locals or {}).get("has_labels") for frame in (loop, theirs)]
    if None not in said and said[0] != said[1] and said[1] == "bool=False":
        return True
    return theirs.line != loop.line and (theirs.line > loop.line or bool(_LABELS.search(loop.source or "")))
