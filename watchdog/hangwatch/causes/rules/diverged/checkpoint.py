"""Some ranks save, and saving needs all of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from hangwatch.analysis.case import Case
from hangwatch.analysis.divergence.call_sites import comes_as_ever, departing
from hangwatch.analysis.divergence.relate import Fork, Side
from hangwatch.analysis.places import bare, calls, is_program, where
from hangwatch.analysis.ranks.threads import find_thread, side_threads
from hangwatch.causes.evidence import at_fork
from hangwatch.causes.match import Level, Match
from hangwatch.causes.rules.rank.threads import waits_for_thread
from hangwatch.model.incident import Evidence
from hangwatch.model.stacks import Frame
from hangwatch.program.lines import arguments_of_calls, header_of

_SAVES = re.compile(
    r"(?:^|_)(?:save|saves|saving|export|ckpt|checkpoints?|checkpointing|consolidated?|state_?dicts?)(?:_|$|to|d$)"
    r"|(?:^|_)(?:write|store|dump|persist|archive)_(?:\w+_)?(?:states?|models?|weights|param(?:eter)?s|optimizer)$"
)
#: How the name of a class for checkpoints begins. Whatever it does, but for loading, is a part of saving.
_KEEPS = re.compile(r"(?:model_|state_|best_|async_)?(?:checkpoint|ckpt|snapshot)(?:s|er|ers|ing)?(?:_|$)")
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_NO_SAVING = re.compile(r"forward$|__(?!call__)\w+__$|(?:^|_)(?:load|restore|resume|read|find|last|latest)")
#: Functions that save the whole parameters that they gather.
_EXPORTS = re.compile(r"(?:^|_)(?:save|export|dump|snapshot|persist|write|publish|upload|push)")
_CHECKPOINTS = "torch/distributed/checkpoint/"
_NOT_SAVES = (
    "torch/utils/checkpoint.py",
    "activation_checkpointing",
    "checkpoint_wrapper.py",
    "ray/train/v2/_internal/execution/context.py",  # Ray Train's ``report`` syncs a name whether or not anything is saved
)


def checkpoint(case: Case) -> Match | None:
    """Return a match if one side is in a function that saves, and the other is not."""
    fork = case.fork
    if fork is None or fork.relation == "same":
        return None
    loop = case.loop
    as_ever = loop is not None and comes_as_ever(case, loop.past.rank, loop.inside.rank)
    begun = loop is not None and (loop.begun_again or as_ever)
    # If the sides are in different functions, either may be right: then the match only says what the collective is for.
    either = begun or fork.relation == "unknown"
    sides = fork.both_ways if either else orientations(case, fork)
    for side, other in sides:
        # The fork's own frame is of a function that both are in, so it does not count as saving.
        tail = side.tail[:-1] if fork.one_function else side.tail
        others = other.tail[:-1] if fork.one_function else other.tail
        inside = fork.relation == "branch" and fork.only == side.rank
        frame = saving_frame(tail) or _given_to_save(side.tail) or saving_frame(_handed_over(case, side.rank))
        saved = _saved(side.tail if inside else tail) if frame is None else None
        if (frame is None and saved is None) or saving_frame(others) is not None or _saved(others) is not None:
            continue
        # A rank that has left a loop may save behind it, as all ranks do.
        level: Level = "possible" if fork.relation == "loop" and not begun else "strong"
        at = f"in {where(frame)}" if frame is not None else f"at the barrier next to `{saved}`"
        said = (
            f"Rank {side.rank} is saving, which needs every rank, but rank {other.rank} is elsewhere. The save is {at}."
        )
        alone = _saves_alone(case, fork, side.rank)
        return Match(
            "checkpoint-on-some-ranks", level, said, (Evidence(side.rank, "stack", at), *at_fork(case, fork)), alone
        )
    for side, other in sides:
        frame, saves = _gathers(side.tail)
        if frame is not None and _gathers(other.tail)[0] is None:
            exports = next((bare(f) for f in side.tail if is_program(f) and _EXPORTS.search(bare(f).lower())), None)
            if exports is not None or saves is not None:
                how = f"by `{saves}`" if saves is not None else f"in {exports}"
                said = (
                    f"Rank {side.rank} gathers sharded state in {where(frame)}, to save it {how}; this "
                    "needs every rank."
                )
                return Match(
                    "checkpoint-on-some-ranks", "strong", said, at_fork(case, fork), _saves_alone(case, fork, side.rank)
                )
            said = (
                f"Rank {side.rank} gathers whole parameters in {where(frame)}, perhaps to save them; this "
                "needs every rank."
            )
            return Match("checkpoint-on-some-ranks", "possible", said, at_fork(case, fork))
    return None


def _saves_alone(case: Case, fork: Fork, rank: int) -> int | None:
    """Return the rank that went another way than the others, of which ``rank`` saves; None if either may have."""
    if fork.only not in {None, rank}:
        return None  # only the other side is under the condition
    return departing(case, replace(fork, only=rank))


def _handed_over(case: Case, rank: int) -> Sequence[Frame]:
    """Return the call path of a background save: the side thread that called what a rank is in; empty if there is none.

    The main thread must wait for it.
    """
    view = case.views.get(rank)
    front = view.frontier if view is not None and waits_for_thread(view) is not None else None
    caller = find_thread(side_threads(view.threads), front.thread) if view is not None and front is not None else None
    return caller.frames if caller is not None else ()


def saving_frame(tail: Sequence[Frame]) -> Frame | None:
    """Return the outermost frame of a path that saves, or goes through a state dict; None if there is none."""
    for frame in reversed(tail):
        name = bare(frame).lower()
        if _CHECKPOINTS in frame.file or any("state_dict(" in header_of(b).over for b in frame.blocks):
            return frame
        if _SAVES.search(name) and "eval" not in name and not any(part in frame.file for part in _NOT_SAVES):
            return frame
        if _KEEPS.match(_owner(frame)) and _NO_SAVING.search(name) is None:
            return frame
    return None


def _given_to_save(tail: Sequence[Frame]) -> Frame | None:
    """Return the outermost frame with a call that saves what the path returns; None if there is none.

    For example ``torch.save(optimizer.whole(), file)``.
    """
    lines = ((frame, arguments_of_calls(frame.source or ""), bare(callee)) for callee, frame in pairwise(tail))
    found = [f for f, nested, callee in lines if any(of == callee and _SAVES.search(call) for call, of in nested)]
    return found[-1] if found else None


def _saved(tail: Sequence[Frame]) -> str | None:
    """Return the call just before or after the barrier that a path is at, if it saves the model; else None."""
    return next((fact.text for frame in tail for fact in frame.facts if fact.kind == "saved"), None)


def _owner(frame: Frame) -> str:
    """Return the class whose method a frame is in, in lower case with underscores; empty if in none, or not known."""
    qualified = frame.function.rpartition(".")[0].rpartition(".")[2]
    return _WORD.sub("_", (frame.locals or {}).get("self", "") or qualified).lower()


def _gathers(tail: Sequence[Frame]) -> tuple[Frame | None, str | None]:
    """Return the frame in which a path gathers sharded state, and the call that saves it later (None: not there).

    A gather of the model's own forward does not count.
    """
    if calls(tail, "torch/nn/modules/module.py", "_call_impl") is not None:
        return None, None
    made, saves = next(((f, one.text) for f in tail for one in f.facts if one.kind == "saves"), (None, None))
    whole = calls(tail, "torch/distributed/tensor/", "full_tensor") or calls(
        tail, "deepspeed/runtime/zero/partition_parameters.py", "__enter__"
    )
    return whole or made, saves


def orientations(case: Case, fork: Fork) -> tuple[tuple[Side, Side], ...]:
    """Return the sides to try, each with its other one: the culprits' first.

    Both ways round if it is not known whose fault it is.
    """
    named = bool(case.blame.waiting) and len(case.blame.culprits) < len(case.views)
    # If a condition holds for all but the culprits, the others are right to save, and yet they show what it is about.
    under = fork.relation == "branch" and (fork.only == fork.other.rank or not fork.sure)
    if named and not under:
        return ((fork.culprit, fork.other),)
    return fork.both_ways
