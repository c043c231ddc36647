"""Evaluation loops that gather what differs in structure between ranks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from hangwatch.analysis.case import Case
from hangwatch.analysis.divergence.frames import call_site, where
from hangwatch.analysis.divergence.iterations import steps_of
from hangwatch.analysis.divergence.relate import Side
from hangwatch.analysis.places import bare, calls, package_of
from hangwatch.causes.evidence import at_fork
from hangwatch.causes.signature import Match, Signature
from hangwatch.model.incident import Evidence
from hangwatch.model.stacks import Frame

#: What is gathered shows what differs.
NESTED_LABELS = Signature("tuple-labels-gather", "nested-labels", "certain", beats=("checkpoint-on-some-ranks",))
#: The line was not read, so what is gathered there may be something else than labels.
NESTED_UNREAD = Signature("tuple-labels-gather", "nested-unread", "likely")
#: Why the tensors differ.
OTHER_ELEMENTS = Signature(
    "tuple-labels-gather", "other-elements", "strong", beats=("dtype-mismatch", "shape-mismatch")
)
#: It was left in the midst of one call.
MIDST_OF_TUPLE = Signature(
    "tuple-labels-gather", "midst-of-a-tuple", "strong", beats=("uneven-inputs", "skipped-collective")
)
#: The same; the loader deals out as many batches to each.
MIDST_OF_EVEN_BATCHES = Signature(
    "tuple-labels-gather", "midst-of-even-batches", "strong", beats=("uneven-inputs", "skipped-collective")
)
#: Why the call was left out.
LABELS_ABSENT = Signature("tuple-labels-gather", "labels-absent", "strong", beats=("skipped-collective",))
#: The condition is the trainer's own: on there being labels, or a loss, which there is with labels only.
LABELS_NEVER_MET = Signature(
    "tuple-labels-gather", "labels-never-met", "strong", beats=("rank-conditional-collective", "skipped-collective")
)
MIDST_OF_BATCH = Signature("tuple-labels-gather", "midst-of-a-batch", "likely")

_LOOPS = ("evaluation_loop", "prediction_loop")
_OPERATIONS = "accelerate/utils/operations.py"
_GATHERS = ("gather", "_gpu_gather", "pad_across_processes", "recursively_apply", "gather_object", "reduce")
_GATHERED = ("data", "tensor", "input_data", "object")
_LABELS = re.compile(r"\blabels?\b")
_LOSS = re.compile(r"\bloss(?:es)?\b")
#: ``accelerate/data_loader.py`` (1.15): ``even_batches`` is true unless the user says otherwise.
_EVEN_LOADERS = frozenset({"DataLoaderShard", "DataLoaderDispatcher"})
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
        described = (frame.locals or {}).get("labels") or (
            (frame.locals or {}).get("data") if _OPERATIONS in frame.file else None
        )
        if described and _NESTED_LOCAL.match(described):
            return f"the labels are {described}"
    depth = sum(_OPERATIONS in f.file and bare(f) in {"recursively_apply", "_pad_across_processes"} for f in path)
    return f"recursively_apply is {depth} calls deep" if depth > 1 else None


def tuple_labels(case: Case) -> Match | None:
    """One side gathers labels that are a container or that the other has none of, and the other is anywhere else."""
    fork = case.fork
    if fork is None:
        return None
    for side, other in ((fork.mine, fork.theirs), (fork.theirs, fork.mine)):
        loop = _labels_gather(side.path)
        nested = _nested(side.path, loop) if loop is not None else None
        if loop is not None and nested is not None:
            said = (
                f"Rank {side.rank} gathers labels in the evaluation loop while rank {other.rank} does not: {nested}, and the "
                f"number of tensors in them differs between the ranks, so one called more gathers than the other."
            )
            row = NESTED_LABELS if loop.source is not None else NESTED_UNREAD
            # Which branch of the trainer's own loop they are in explains nothing here.
            shown = at_fork(case, replace(fork, block=None))
            return Match(row, said, (Evidence(side.rank, "stack", f"{where(loop)}; {nested}"), *shown))
        if (described := _at_other_elements(side, other)) is not None:
            said = (
                f"Ranks {side.rank} and {other.rank} gather in one and the same line, rank {side.rank} {described}, "
                f"and they are at different elements: the number of tensors in it differs between the ranks, or did in "
                f"an iteration before."
            )
            return Match(OTHER_ELEMENTS, said, at_fork(case, replace(fork, block=None)))
        gathered = _container_in_midst(case, side, other) if not fork.ranked else None
        if gathered is not None:
            container, row = gathered
            said = (
                f"Rank {side.rank} is in the midst of gathering {container}, and the others are through with theirs: "
                f"the number of tensors in it differs between the ranks."
            )
            return Match(row, said, at_fork(case, replace(fork, block=None)))
        loop = loop or _loss_gather(side.path)
        if loop is not None and _never_met(case, side, loop):
            said = (
                f"Rank {side.rank} is in {where(loop)}, and rank {other.rank} has begun that evaluation with it and gathered "
                f"nothing in it: its batches had no labels, or one of them was None."
            )
            return Match(LABELS_NEVER_MET, said, (Evidence(side.rank, "stack", where(loop)), *at_fork(case, fork)))
        if loop is None or not _labels_absent(loop, other):
            continue
        said = (
            f"Rank {side.rank} is in {where(loop)}, rank {other.rank} has left that out in the same iteration of the evaluation: "
            f"its batch had no labels, or one of them was None."
        )
        shown = at_fork(case, replace(fork, block=None))
        return Match(LABELS_ABSENT, said, (Evidence(side.rank, "stack", where(loop)), *shown))
    return None


def _at_other_elements(side: Side, other: Side) -> str | None:
    """The container that a side gathers, where the other does so from the same line and is at another depth of its own."""
    mine, theirs = ([bare(f) for f in one.path if _OPERATIONS in f.file] for one in (side, other))
    gathers = [f for f in side.path if _OPERATIONS in f.file and bare(f) in _GATHERS]
    described = _gathered(gathers)
    if not gathers or not theirs or mine == theirs or call_site(side.path) != call_site(other.path):
        return None
    return described if _NESTED_LOCAL.match(described) else None


def _gathered(gathers: Sequence[Frame]) -> str:
    """What the outermost call that is given it gathers."""
    return next((t for f in reversed(gathers) for n in _GATHERED if (t := (f.locals or {}).get(n))), "")


def _container_in_midst(case: Case, side: Side, other: Side) -> tuple[str, Signature] | None:
    """The container that a side gathers with accelerate, and how sure it is that the other has left in the midst of that call.

    The operation before, from the same line, is one that both took part in: of a container of fixed length it is known
    then whether the call had begun; of one that is built anew in each iteration it may have been the one before.
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
        return (described, MIDST_OF_TUPLE) if steps.run_length() % length else None
    even = any(name in t for f in side.path for t in (f.locals or {}).values() for name in _EVEN_LOADERS)
    return described, MIDST_OF_EVEN_BATCHES if even else MIDST_OF_BATCH


def _loss_gather(path: Sequence[Frame]) -> Frame | None:
    """The line of the evaluation loop that gathers the loss, which there is for batches with labels only."""
    gather = calls(path, _OPERATIONS, *_GATHERS)
    loop = _loop(path)
    return loop if gather is not None and loop is not None and _LOSS.search(loop.source or "") else None


def _loop(path: Sequence[Frame]) -> Frame | None:
    return next((f for f in path if bare(f) in _LOOPS), None)


def _never_met(case: Case, side: Side, frame: Frame) -> bool:
    """Whether the trainer gathers what there are labels for in its loop, and the other side was in it and never came to that."""
    loop = case.loop
    if loop is None or loop.inside.rank != side.rank or loop.frame != frame or package_of(frame) is None:
        return False
    unmet = loop.unmet
    return unmet is not None and bool(_LABELS.search(unmet.text) or _LOSS.search(unmet.text))


def _labels_absent(loop: Frame, other: Side) -> bool:
    """Whether the other side has left out what this one gathers, by what is seen of it in the evaluation.

    Its own ``has_labels`` says so, or it is in the same iteration further down. That it is anywhere else says nothing: it
    may have had fewer batches.
    """
    theirs = _loop(other.path)
    if theirs is None or theirs.file != loop.file:
        return False
    said = [(frame.locals or {}).get("has_labels") for frame in (loop, theirs)]
    if None not in said and said[0] != said[1] and said[1] == "bool=False":
        return True
    return theirs.line != loop.line and (theirs.line > loop.line or bool(_LABELS.search(loop.source or "")))
