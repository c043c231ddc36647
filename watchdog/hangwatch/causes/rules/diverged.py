"""The ranks parted ways in the program: a branch, a loop or a skipped step that is not the same on every rank."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from hangwatch.analysis.case import Case
from hangwatch.analysis.divergence.call_sites import is_new_place
from hangwatch.analysis.divergence.expressions import is_called_in_part
from hangwatch.analysis.divergence.frames import by_rank, is_parameter_loop, is_program, site, where
from hangwatch.analysis.divergence.loop import Loop, holds_on_later_iterations
from hangwatch.analysis.divergence.relate import CONDITIONS, Fork, Side, condition_of, depends_only_on_loop_variable
from hangwatch.analysis.places import bare, calls
from hangwatch.causes.evidence import at_fork, at_recorder, at_stack, named
from hangwatch.causes.hypothesis import Hypothesis
from hangwatch.causes.knowledge import known
from hangwatch.causes.rules.groups import in_point_to_point
from hangwatch.model.incident import Evidence
from hangwatch.model.stacks import Block, Frame

RANK_CONDITIONAL = known("rank-conditional-collective")
CHECKPOINT = known("checkpoint-on-some-ranks")
UNEVEN_INPUTS = known("uneven-inputs")
MISMATCH = known("collective-mismatch")

_SAVES = re.compile(
    r"(?:^|_)(?:save|saves|saving|ckpt|checkpoints?|checkpointing|consolidated?|state_?dicts?)(?:_|$|to|d$)"
)
_CHECKPOINTS = "torch/distributed/checkpoint/"
_NOT_SAVES = ("torch/utils/checkpoint.py", "activation_checkpointing", "checkpoint_wrapper.py")


def conditional(case: Case) -> Hypothesis | None:
    """One side is under a condition that does not hold on the other."""
    fork = case.fork
    if fork is None:
        return None
    loop, partly = case.loop, _evaluated_in_part(fork)
    ranked = partly is not None and by_rank(partly[1].source or "")
    if loop is not None and not ranked:
        return _conditional_in_loop(case, fork, loop)
    if partly is not None:
        side, frame = partly
        how = "by what it says of the rank" if ranked else "as what comes before it turns out"
        said = f"Rank {side.rank} is in `{frame.source}`, where a collective is called or not {how}; the other side is not."
        return Hypothesis(RANK_CONDITIONAL, 0.85 if ranked else 0.68, said, at_fork(case, replace(fork, block=None)))
    if fork.relation == "order" and _alone_in_a_place(case, fork):
        said = f"Rank {fork.mine.rank} is in a collective at a place where none was called before, on any rank."
        return Hypothesis(RANK_CONDITIONAL, 0.6, said, at_fork(case, fork))
    if fork.relation != "branch" or fork.block is None:
        return None
    waits = [v.wait for side in (fork.mine, fork.theirs) if (v := case.views.get(side.rank)) is not None]
    under = case.views.get(fork.only) if fork.only is not None else None
    if any(w is not None and w.kind == "store" for w in waits) or (under is not None and in_point_to_point(under)):
        return None  # sends and receives are meant to differ by rank, and so are a store's set and get
    if fork.ranked:
        confidence = 0.85 if fork.sure else 0.8
    else:
        # Of two sides that are both to blame, which one is called mine says nothing.
        told = 0.6 if not case.blame.waiting else 0.62 if fork.only == fork.mine.rank else 0.58
        confidence = told if fork.sure else 0.45
    whose = "the condition speaks of the rank" if fork.ranked else "it does not hold on every rank"
    inside, _ = fork.sides
    what, where_is = ("came past", "did not, it seems") if fork.block.kind == "guard" else ("is under", "is not")
    lies = "behind" if fork.block.kind == "guard" else "in"
    said = f"Rank {inside.rank} {what} `{fork.block.text}`, the other side {where_is}: {whose}, and a collective is {lies} it."
    deeper = _decisive_below(inside, fork.block) if not fork.ranked else None
    if holds_on_later_iterations(case, fork):
        confidence = min(confidence, 0.45)  # it holds for all in their turn
    if deeper is not None:
        said += f" What decides is likely `{deeper.text}` (line {deeper.line}), which it is past."
    return Hypothesis(RANK_CONDITIONAL, confidence, said, at_fork(case, fork))


def _evaluated_in_part(fork: Fork) -> tuple[Side, Frame] | None:
    """The side inside an expression that may be left half-way (``and``, ``or``, ``any``, ``.. if .. else ..``), and its line."""
    for side, other in ((fork.theirs, fork.mine), (fork.mine, fork.theirs)):
        frames = [f for f in side.tail if is_program(f)]
        # What the deepest of them calls is a library's.
        libraries = side.tail[: side.tail.index(frames[0])] if frames else ()
        for callee, frame in pairwise((*libraries[-1:], *frames)):
            partly = is_called_in_part(frame.source or "", bare(callee))
            if partly and not any((f.file, f.line) == (frame.file, frame.line) for f in other.path):
                return side, frame
    return None


def _alone_in_a_place(case: Case, fork: Fork) -> bool:
    """Whether the culprit's call is from a place that is new to all ranks, and the others' from one that is not."""
    mine, theirs = site(fork.mine.path), site(fork.theirs.path)
    named = bool(case.blame.waiting) and theirs is not None
    known_place = any(site(o.frames or ()) == theirs for o in case.history.of(fork.mine.rank) if o.completed)
    return named and known_place and is_new_place(case, fork.mine.rank, mine)


def _decisive_below(side: Side, block: Block) -> Block | None:
    """A condition further down, where this one speaks of nothing but the turn of a loop, which is the same on every rank."""
    if not depends_only_on_loop_variable(block, side.path):
        return None
    below = (b for f in reversed(side.tail[:-1]) if is_program(f) for b in f.blocks)
    return next((b for b in below if b.kind in CONDITIONS or b.kind == "guard"), None)


def _conditional_in_loop(case: Case, fork: Fork, loop: Loop) -> Hypothesis | None:
    """Only one side is in a loop still, at a collective under a condition there that the other never was under."""
    if in_point_to_point(case.views[loop.inside.rank]):
        return None
    block = loop.ranked or loop.failed or loop.unmet
    confidence = 0.82 if loop.visited is not None else 0.7
    if block is None and (behind := loop.behind) is not None:
        said = (
            f"Rank {loop.past.rank} is under `{behind.text}`, where rank {loop.inside.rank} has never been: that one is in the "
            f"next round of `{loop.block.text}`."
        )
        confidence = 0.82 if by_rank(behind.text) else 0.66
        return Hypothesis(
            RANK_CONDITIONAL, confidence, said, at_fork(case, replace(fork, block=behind, only=loop.past.rank))
        )
    if block is None and (called := loop.called) is not None:
        said = (
            f"Rank {loop.inside.rank} is in `{loop.block.text}`, called under `{called.text}`, and rank {loop.past.rank} has "
            f"not come there with it."
        )
        return Hypothesis(RANK_CONDITIONAL, 0.68, said, at_fork(case, replace(fork, block=called)))
    if block is None and loop.visited is False and loop.conditions:
        block, confidence = loop.conditions[0], 0.6
    if block is None and loop.fixed and (guard := _guarded(loop.past)) is not None:
        said = (
            f"Rank {loop.past.rank} is past `{guard.text}` on its way to the collective; rank {loop.inside.rank} has left that "
            f"function, it seems, and is in the next turn already."
        )
        return Hypothesis(RANK_CONDITIONAL, 0.55, said, at_fork(case, replace(fork, block=None)))
    if block is None and (loop.rounds_ahead or 0) > 0:
        why = condition_of(loop.past)
        said = (
            f"Rank {loop.inside.rank} is in `{loop.block.text}` again; rank {loop.past.rank} is behind that loop still, in a "
            f"collective that the other has not called{f' (`{why.text}`)' if why is not None else ''}."
        )
        return Hypothesis(
            RANK_CONDITIONAL, 0.7 if why is not None else 0.55, said, at_fork(case, replace(fork, block=why))
        )
    own = case.blame.waiting and fork.only == fork.mine.rank
    if block is None and own and loop.visited is False and loop.block.kind == "while":
        said = f"Rank {loop.inside.rank} is in `{loop.block.text}`, where rank {loop.past.rank} has never called a collective."
        return Hypothesis(RANK_CONDITIONAL, 0.58, said, at_fork(case, fork))
    if block is None and loop.keyed:
        more = f"`{loop.block.text}`, with a collective in each, than rank {loop.past.rank}"
        said = f"Rank {loop.inside.rank} has more turns of {more}."
        return Hypothesis(RANK_CONDITIONAL, 0.6, said, at_fork(case, fork))
    if block is None:
        return None
    said = (
        f"Rank {loop.inside.rank} is under {named(block)} in the loop `{loop.block.text}`, and the others have gone through "
        f"that loop without the collective in it."
    )
    return Hypothesis(RANK_CONDITIONAL, confidence, said, at_fork(case, replace(fork, block=block)))


def _guarded(side: Side) -> Block | None:
    """A guard (``if ..: return``) in a function below the fork that the side has passed."""
    return next((b for f in side.tail[:-1] if is_program(f) for b in f.blocks if b.kind == "guard"), None)


def _saving(tail: Sequence[Frame]) -> Frame | None:
    """The outermost frame of a path that saves."""
    for frame in reversed(tail):
        name = bare(frame).lower()
        if _CHECKPOINTS in frame.file:
            return frame
        if _SAVES.search(name) and "eval" not in name and not any(part in frame.file for part in _NOT_SAVES):
            return frame
    return None


def checkpoint(case: Case) -> Hypothesis | None:
    """One side is in a function that saves, the other is not."""
    fork = case.fork
    if fork is None or fork.relation == "same":
        return None
    loop = case.loop
    # One side has begun the next round of the loop: by what counts the rounds, or as it has as many turns everywhere.
    ahead = loop is not None and (loop.rounds_ahead or 0) > 0
    begun = ahead or (loop is not None and loop.fixed)
    sides = ((fork.mine, fork.theirs), (fork.theirs, fork.mine)) if begun else orientations(case, fork)
    for side, other in sides:
        # The fork's own frame is in a function that both are in, unless the two parted between functions.
        tail = side.tail[:-1] if fork.one_function else side.tail
        others = other.tail[:-1] if fork.one_function else other.tail
        frame = _saving(tail)
        if frame is None or _saving(others) is not None:
            continue
        inside = fork.relation == "branch" and fork.only == side.rank
        confidence = {"loop": 0.3, "order": 0.7, "unknown": 0.7}.get(fork.relation, 0.55)
        if begun and loop is not None and loop.inside.rank != side.rank:
            confidence = 0.84 if ahead else 0.66
        if inside:
            confidence = 0.9 if fork.ranked else 0.7
        said = f"Rank {side.rank} is saving, in {where(frame)}, and needs every rank for it; rank {other.rank} is not there."
        evidence = (Evidence(side.rank, "stack", f"in {where(frame)}"), *at_fork(case, fork))
        return Hypothesis(CHECKPOINT, confidence, said, evidence)
    for side, other in sides:
        frame = _gathers_state(side.tail)
        if frame is not None and _gathers_state(other.tail) is None:
            said = f"Rank {side.rank} gathers whole parameters, in {where(frame)}: to save them, it may be."
            return Hypothesis(CHECKPOINT, 0.42, said, at_fork(case, fork))
    return None


def _gathers_state(tail: Sequence[Frame]) -> Frame | None:
    """The frame in which a path makes parameters whole that lie in parts on all ranks, outside of the model's own forward."""
    if calls(tail, "torch/nn/modules/module.py", "_call_impl") is not None:
        return None
    return calls(tail, "torch/distributed/tensor/", "full_tensor") or calls(
        tail, "deepspeed/runtime/zero/partition_parameters.py", "__enter__"
    )


def orientations(case: Case, fork: Fork) -> tuple[tuple[Side, Side], ...]:
    """The culprits' side first; both ways round where it could not be told whose fault it is."""
    named = bool(case.blame.waiting) and len(case.blame.culprits) < len(case.views)
    # Under a condition that holds for all but the culprits, the others are in the right place, and yet tell what it is about.
    under = fork.relation == "branch" and (fork.only == fork.theirs.rank or not fork.sure)
    if named and not under:
        return ((fork.mine, fork.theirs),)
    return ((fork.mine, fork.theirs), (fork.theirs, fork.mine))


def uneven_inputs(case: Case) -> Hypothesis | None:
    """One side is still in a loop, the other past it."""
    fork = case.fork
    if fork is None or fork.relation != "loop" or fork.block is None:
        return None
    confidence = 0.8 if fork.sure else 0.65
    loop = case.loop
    if is_parameter_loop(fork.block.text):
        confidence = 0.35
    elif loop is not None and in_point_to_point(case.views[loop.inside.rank]):
        confidence = 0.4
    elif loop is not None and (loop.ranked or loop.behind or loop.failed or loop.keyed or loop.mid_iteration):
        confidence = 0.35  # it was not for want of data that they parted
    elif loop is not None and (loop.alone or loop.fixed):
        confidence = 0.5
    elif "epoch" in fork.block.text.partition(" in ")[0]:
        confidence = min(confidence, 0.6)  # left between two epochs: a decision to stop, rather than data that ended
    inside, past = fork.sides
    said = f"Rank {past.rank} has left the loop `{fork.block.text}`, rank {inside.rank} is still in it and needs the others."
    turns = loop.turns if loop is not None else None
    if loop is not None and turns is not None:
        if turns.fewer <= 0:
            confidence = 0.25  # as many turns as the other, or more: there was no want of data
        elif confidence >= 0.5 and not (turns.breaks or loop.fixed):
            confidence = 0.86
            said += f" It had {turns.fewer} fewer turn{'s' if turns.fewer > 1 else ''}, by `{turns.counter}`."
    elif loop is not None and (loop.rounds_ahead or 0) > 0:
        confidence = 0.25  # it is not the same round
    return Hypothesis(UNEVEN_INPUTS, confidence, said, at_fork(case, fork))


def _in_store(case: Case) -> bool:
    """Whether one of the culprits waits for a key of a store: that is no operation of all ranks."""
    waits = (case.views[r].wait for r in (*case.blame.culprits, *case.blame.waiting) if r in case.views)
    return any(w is not None and w.kind == "store" for w in waits)


def mismatch(case: Case) -> Hypothesis | None:
    """Different operations met, and that is all that can be said."""
    parting = case.blame.parting
    wrong_pair = parting is not None and parting.mismatch
    if not wrong_pair and (case.blame.shape != "cycle" or _in_store(case)):
        return None
    one, other = case.representatives
    shown = tuple(r for r in (one, other) if r is not None)
    evidence = at_recorder(case, shown) + tuple(e for r in shown for e in at_stack(case, r))
    if parting is not None and wrong_pair:
        went = " They went through as a wrong pair, and every operation since is out of step." if parting.silent else ""
        said = f"At number {parting.seq} of {parting.group.label} the ranks called different operations.{went}"
    else:
        said = "The ranks wait for each other in different operations."
    return Hypothesis(MISMATCH, 0.4 if wrong_pair else 0.3, said, evidence)
