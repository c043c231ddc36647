"""Some ranks save, and saving needs all of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from hangwatch.analysis.case import Case
from hangwatch.analysis.divergence.call_sites import comes_as_ever
from hangwatch.analysis.divergence.expressions import arguments_of_calls
from hangwatch.analysis.divergence.frames import is_program, where
from hangwatch.analysis.divergence.relate import Fork, Side
from hangwatch.analysis.places import bare, calls
from hangwatch.analysis.ranks.threads import find_thread, side_threads
from hangwatch.causes.evidence import at_fork
from hangwatch.causes.rules.rank.threads import waits_for_thread
from hangwatch.causes.signature import Match, Signature
from hangwatch.model.incident import Evidence
from hangwatch.model.stacks import Frame

UNDER_RANK = Signature("checkpoint-on-some-ranks", "under-a-condition-by-rank", "certain")
#: What the condition is there for.
NEXT_ROUND_COUNTED = Signature(
    "checkpoint-on-some-ranks",
    "others-in-the-next-round-counted",
    "strong",
    beats=("rank-conditional-collective", "skipped-collective", "uneven-inputs"),
)
#: What the condition is there for.
UNDER_CONDITION = Signature(
    "checkpoint-on-some-ranks",
    "under-a-condition",
    "strong",
    beats=(
        "rank-conditional-collective/expression",
        "skipped-collective/usual-block-left-out",
        "skipped-collective/passed-by",
        "skipped-collective/jumped-a-guard",
    ),
)
#: What the condition is there for.
ON_ONE_WAY = Signature(
    "checkpoint-on-some-ranks",
    "on-one-way",
    "strong",
    beats=(
        "rank-conditional-collective/expression",
        "skipped-collective/usual-block-left-out",
        "skipped-collective/passed-by",
        "skipped-collective/jumped-a-guard",
    ),
)
#: Both sides have as many iterations; saving is what only one came to.
NEXT_ROUND = Signature(
    "checkpoint-on-some-ranks",
    "others-in-the-next-round",
    "likely",
    beats=("rank-conditional-collective", "uneven-inputs"),
)
ELSEWHERE = Signature("checkpoint-on-some-ranks", "elsewhere", "likely")
#: Saving is what the gathering is for, and the condition what it is under.
GATHERS_TO_SAVE = Signature(
    "checkpoint-on-some-ranks", "gathers-parameters-to-save", "strong", beats=("rank-conditional-collective",)
)
GATHERS_PARAMETERS = Signature("checkpoint-on-some-ranks", "gathers-parameters", "possible")
#: The condition in the loop is there for the saving.
IN_A_LOOP_BY_RANK = Signature(
    "checkpoint-on-some-ranks", "in-a-loop-by-rank", "strong", beats=("rank-conditional-collective",)
)
#: The others are not behind that loop, as they have not come to it.
IN_A_LOOP_OF_ITS_OWN = Signature(
    "checkpoint-on-some-ranks",
    "in-a-loop-of-its-own",
    "strong",
    beats=("rank-conditional-collective", "skipped-collective", "uneven-inputs"),
)
IN_A_LOOP = Signature("checkpoint-on-some-ranks", "in-a-loop", "possible")

_SAVES = re.compile(
    r"(?:^|_)(?:save|saves|saving|export|ckpt|checkpoints?|checkpointing|consolidated?|state_?dicts?)(?:_|$|to|d$)"
    r"|(?:^|_)(?:write|store|dump|persist|archive)_(?:\w+_)?(?:states?|models?|weights|param(?:eter)?s|optimizer)$"
)
#: A class that is there for checkpoints, by what its name begins with. Whatever it does beside loading them is a part of saving.
_KEEPS = re.compile(r"(?:model_|state_|best_|async_)?(?:checkpoint|ckpt|snapshot)(?:s|er|ers|ing)?(?:_|$)")
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_NO_SAVING = re.compile(r"forward$|__(?!call__)\w+__$|(?:^|_)(?:load|restore|resume|read|find|last|latest)")
#: Of what gathers whole parameters, these save them too.
_EXPORTS = re.compile(r"(?:^|_)(?:save|export|dump|snapshot|persist|write|publish|upload|push)")
_STATE = re.compile(r" in .*\bstate_dict\(")
_CHECKPOINTS = "torch/distributed/checkpoint/"
_NOT_SAVES = ("torch/utils/checkpoint.py", "activation_checkpointing", "checkpoint_wrapper.py")


def checkpoint(case: Case) -> Match | None:
    """One side is in a function that saves, the other is not."""
    fork = case.fork
    if fork is None or fork.relation == "same":
        return None
    loop = case.loop
    as_ever = loop is not None and comes_as_ever(case, loop.past.rank, loop.inside.rank)
    begun = loop is not None and (loop.begun_again or as_ever)
    # Two sides that are in functions of their own may both be right: what is shown then is what the collective is for.
    either = begun or fork.relation == "unknown"
    sides = ((fork.mine, fork.theirs), (fork.theirs, fork.mine)) if either else orientations(case, fork)
    for side, other in sides:
        # The fork's own frame is in a function that both are in, unless the two diverged between functions.
        tail = side.tail[:-1] if fork.one_function else side.tail
        others = other.tail[:-1] if fork.one_function else other.tail
        inside = fork.relation == "branch" and fork.only == side.rank
        frame = saving_frame(tail) or _given_to_save(side.tail) or saving_frame(_handed_over(case, side.rank))
        saved = _saved(side.tail if inside else tail) if frame is None else None
        if (frame is None and saved is None) or saving_frame(others) is not None or _saved(others) is not None:
            continue
        row = {"loop": IN_A_LOOP, "order": ON_ONE_WAY, "unknown": ON_ONE_WAY}.get(fork.relation, ELSEWHERE)
        if begun and loop is not None and loop.inside.rank != side.rank:
            row = NEXT_ROUND_COUNTED if loop.ahead or as_ever else NEXT_ROUND
        if row is IN_A_LOOP and loop is not None and loop.inside.rank == side.rank and loop.ranked is not None:
            row = IN_A_LOOP_BY_RANK
        if row is IN_A_LOOP and loop is not None and loop.inside.rank == side.rank and loop.frame in side.tail[:-1]:
            row = IN_A_LOOP_OF_ITS_OWN
        if inside:
            row = UNDER_RANK if fork.ranked else UNDER_CONDITION
        at = f"in {where(frame)}" if frame is not None else f"at the barrier beside `{saved}`"
        said = f"Rank {side.rank} is saving, {at}, and needs every rank for it; rank {other.rank} is not there."
        return Match(row, said, (Evidence(side.rank, "stack", at), *at_fork(case, fork)))
    for side, other in sides:
        frame, saves = _gathers(side.tail)
        if frame is not None and _gathers(other.tail)[0] is None:
            exports = next((bare(f) for f in side.tail if is_program(f) and _EXPORTS.search(bare(f).lower())), None)
            if exports is not None or saves is not None:
                how = f"by `{saves}`" if saves is not None else f"in {exports}"
                said = f"Rank {side.rank} gathers what lies in parts on all ranks, in {where(frame)}, to save it {how}."
                return Match(GATHERS_TO_SAVE, said, at_fork(case, fork))
            said = f"Rank {side.rank} gathers whole parameters, in {where(frame)}: to save them, it may be."
            return Match(GATHERS_PARAMETERS, said, at_fork(case, fork))
    return None


def _handed_over(case: Case, rank: int) -> Sequence[Frame]:
    """The call path of what a rank is in by another of its threads, for which its main thread waits: a save in the background."""
    view = case.views.get(rank)
    front = view.frontier if view is not None and waits_for_thread(view) is not None else None
    caller = find_thread(side_threads(view.threads), front.thread) if view is not None and front is not None else None
    return caller.frames if caller is not None else ()


def saving_frame(tail: Sequence[Frame]) -> Frame | None:
    """The outermost frame of a path that saves, or goes through a state dict."""
    for frame in reversed(tail):
        name = bare(frame).lower()
        if _CHECKPOINTS in frame.file or any(b.kind == "for" and _STATE.search(b.text) for b in frame.blocks):
            return frame
        if _SAVES.search(name) and "eval" not in name and not any(part in frame.file for part in _NOT_SAVES):
            return frame
        if _KEEPS.match(_owner(frame)) and _NO_SAVING.search(name) is None:
            return frame
    return None


def _given_to_save(tail: Sequence[Frame]) -> Frame | None:
    """The outermost frame of a path with a call that saves what the path returns: ``torch.save(optimizer.whole(), file)``."""
    lines = ((frame, arguments_of_calls(frame.source or ""), bare(callee)) for callee, frame in pairwise(tail))
    found = [f for f, nested, callee in lines if any(of == callee and _SAVES.search(call) for call, of in nested)]
    return found[-1] if found else None


def _saved(tail: Sequence[Frame]) -> str | None:
    """The call just before or after the barrier that a path is at, if it saves the model."""
    return next((block.text for frame in tail for block in frame.blocks if block.kind == "saved"), None)


def _owner(frame: Frame) -> str:
    """The class whose method a frame is in, in lower case with underscores; empty where it is in none, or that is not known."""
    qualified = frame.function.rpartition(".")[0].rpartition(".")[2]
    return _WORD.sub("_", (frame.locals or {}).get("self", "") or qualified).lower()


def _gathers(tail: Sequence[Frame]) -> tuple[Frame | None, str | None]:
    """The frame in which a path makes whole what lies in parts on all ranks, outside of the model's own forward; and the call
    that saves it further down."""
    if calls(tail, "torch/nn/modules/module.py", "_call_impl") is not None:
        return None, None
    made, saves = next(((f, b.text) for f in tail for b in f.blocks if b.kind == "saves"), (None, None))
    whole = calls(tail, "torch/distributed/tensor/", "full_tensor") or calls(
        tail, "deepspeed/runtime/zero/partition_parameters.py", "__enter__"
    )
    return whole or made, saves


def orientations(case: Case, fork: Fork) -> tuple[tuple[Side, Side], ...]:
    """The culprits' side first; both ways round where it is not known whose fault it is."""
    named = bool(case.blame.waiting) and len(case.blame.culprits) < len(case.views)
    # Under a condition that holds for all but the culprits, the others are right, and yet show what it is about.
    under = fork.relation == "branch" and (fork.only == fork.theirs.rank or not fork.sure)
    if named and not under:
        return ((fork.mine, fork.theirs),)
    return ((fork.mine, fork.theirs), (fork.theirs, fork.mine))
