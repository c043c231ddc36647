"""The ranks parted ways in the program: a branch, a loop or a skipped step that is not the same on every rank."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hangwatch.analysis.case import Case
from hangwatch.causes.forks import Fork, Side, find_fork
from hangwatch.causes.frames import bare, over_parameters, where
from hangwatch.causes.hypothesis import Hypothesis, Knowledge
from hangwatch.causes.observations import at_fork, at_recorder, at_stack
from hangwatch.causes.sites import early_visit
from hangwatch.model.incident import Evidence
from hangwatch.model.stacks import Frame
from hangwatch.model.text import short_path

RANK_CONDITIONAL = Knowledge(
    id="rank-conditional-collective",
    title="A collective is called on some ranks only",
    remedy=(
        "Call the collective on every rank, and put under the condition only what is done with its result.",
        "If the condition depends on data (a NaN, early stopping), agree on it first: all_reduce the flag on every rank.",
    ),
)
CHECKPOINT = Knowledge(
    id="checkpoint-on-some-ranks",
    title="A checkpoint is saved or a state dict gathered on some ranks only",
    remedy=(
        "Call save_checkpoint(), save_state() or the state-dict function on every rank; write the file on rank 0 after it.",
        "For ZeRO-3 and FSDP gathering the full weights is a collective: move it out of `if rank == 0`.",
    ),
)
UNEVEN_INPUTS = Knowledge(
    id="uneven-inputs",
    title="One side has left the training loop while the other is still in it",
    remedy=(
        "Give every rank the same number of batches: DistributedSampler with drop_last=True, or "
        "DataLoader(drop_last=True) on shards of equal length.",
        "With DistributedDataParallel and uneven data, wrap the loop in `with model.join():`.",
        "Let accelerate prepare the DataLoader, and leave even_batches=True.",
        "For streamed data and early stopping, agree on the end: all_reduce a 'has next' or 'stop' flag before every step.",
    ),
    references=("https://docs.pytorch.org/tutorials/advanced/generic_join.html",),
)
SKIPPED = Knowledge(
    id="skipped-collective",
    title="A step was skipped on one side, which is ahead of the other by its operations since",
    remedy=(
        "Do not `continue` past, or swallow an exception around, a collective: agree on skipping the step first by "
        "all_reduce of a flag, then skip it on every rank.",
        "Filter bad samples in the dataset, before batches are counted.",
    ),
)
MISMATCH = Knowledge(
    id="collective-mismatch",
    title="The ranks called different operations at the same place in their sequence",
    remedy=(
        "Compare the two lines shown above, and make every rank call the same operations in the same order.",
        "Run a short job with TORCH_DISTRIBUTED_DEBUG=DETAIL to have torch check each operation against the other ranks'.",
    ),
)

_SAVES = re.compile(
    r"(?:^|_)(?:save|saves|saving|ckpt|checkpoints?|checkpointing|consolidated?|state_?dicts?)(?:_|$|to|d$)"
)
_NOT_SAVES = ("torch/utils/checkpoint.py", "activation_checkpointing", "checkpoint_wrapper.py")


def parted(case: Case) -> bool:
    """Whether both sides are in, or have just gone through, operations that do not meet."""
    blame = case.blame
    if not blame.culprits:
        return False
    if blame.shape == "cycle" or (blame.parting is not None and blame.parting.mismatch):
        return True
    # A culprit in an operation of its own, that waits for no one else: it is in the wrong place, and not stuck elsewhere.
    return any(
        r in case.views and case.views[r].wait is not None and not case.views[r].elsewhere for r in blame.culprits
    )


def conditional(case: Case) -> Hypothesis | None:
    """One side is under a condition that does not hold on the other."""
    fork = find_fork(case) if parted(case) else None
    if fork is None or fork.relation != "branch" or fork.block is None:
        return None
    waits = [v.wait for side in (fork.mine, fork.theirs) if (v := case.views.get(side.rank)) is not None]
    if all(w is not None and w.kind == "point_to_point" for w in waits):
        return None  # sends and receives are meant to differ by rank
    if fork.ranked:
        confidence = 0.85 if fork.sure else 0.8
    else:
        confidence = (0.62 if fork.only == fork.mine.rank else 0.58) if fork.sure else 0.45
    whose = "the condition speaks of the rank" if fork.ranked else "it does not hold on every rank"
    inside = fork.mine if fork.only == fork.mine.rank else fork.theirs
    what = "came past" if fork.block.kind == "guard" else "is under"
    said = f"Rank {inside.rank} {what} `{fork.block.text}`, the other side is not: {whose}, and there is a collective in it."
    return Hypothesis(RANK_CONDITIONAL, confidence, said, at_fork(case, fork))


def _saving(tail: Sequence[Frame]) -> Frame | None:
    """The outermost frame of a path that saves."""
    for frame in reversed(tail):
        name = bare(frame).lower()
        if _SAVES.search(name) and "eval" not in name and not any(part in frame.file for part in _NOT_SAVES):
            return frame
    return None


def checkpoint(case: Case) -> Hypothesis | None:
    """One side is in a function that saves, the other is not."""
    fork = find_fork(case) if parted(case) else None
    if fork is None or fork.relation == "same":
        return None
    for side, other in _orientations(case, fork):
        # The fork's own frame is in a function that both are in, unless the two parted between functions.
        tail = side.tail[:-1] if fork.one_function else side.tail
        others = other.tail[:-1] if fork.one_function else other.tail
        frame = _saving(tail)
        if frame is None or _saving(others) is not None:
            continue
        inside = fork.relation == "branch" and fork.only == side.rank
        confidence = {"loop": 0.3, "order": 0.7, "unknown": 0.7}.get(fork.relation, 0.55)
        if inside:
            confidence = 0.9 if fork.ranked else 0.7
        said = f"Rank {side.rank} is saving, in {where(frame)}, and needs every rank for it; rank {other.rank} is not there."
        evidence = (Evidence(side.rank, "stack", f"in {where(frame)}"), *at_fork(case, fork))
        return Hypothesis(CHECKPOINT, confidence, said, evidence)
    return None


def _orientations(case: Case, fork: Fork) -> tuple[tuple[Side, Side], ...]:
    """The culprits' side first; both ways round where it could not be told whose fault it is."""
    if case.blame.waiting and len(case.blame.culprits) < len(case.views):
        return ((fork.mine, fork.theirs),)
    return ((fork.mine, fork.theirs), (fork.theirs, fork.mine))


def uneven_inputs(case: Case) -> Hypothesis | None:
    """One side is still in a loop, the other past it."""
    fork = find_fork(case) if parted(case) else None
    if fork is None or fork.relation != "loop" or fork.block is None:
        return None
    confidence = 0.8 if fork.sure else 0.65
    if over_parameters(fork.block.text):
        confidence = 0.35
    elif "epoch" in fork.block.text.partition(" in ")[0]:
        confidence = min(confidence, 0.6)  # left between two epochs: a decision to stop, rather than data that ended
    inside, past = (fork.mine, fork.theirs) if fork.only == fork.mine.rank else (fork.theirs, fork.mine)
    said = f"Rank {past.rank} has left the loop `{fork.block.text}`, rank {inside.rank} is still in it and needs the others."
    return Hypothesis(UNEVEN_INPUTS, confidence, said, at_fork(case, fork))


def skipped(case: Case) -> Hypothesis | None:
    """One side jumped over part of a turn of the loop, or came sooner than ever before to a place both come to."""
    fork = find_fork(case) if parted(case) else None
    if fork is None or (fork.ranked and fork.relation != "skip"):
        return None
    if fork.relation == "loop":
        return _skipped_turn(case, fork)
    for side, other in _orientations(case, fork):
        early = early_visit(case, side.rank, other.rank)
        if early is None:
            continue
        lead = f" by {early.by} operation{'s' if early.by > 1 else ''}" if early.by else ""
        before = "once" if early.visits == 1 else f"{early.visits} times"
        said = (
            f"Rank {side.rank} has come to {short_path(early.file)}:{early.line} too early{lead}: {before} before, "
            f"both sides came there at the same number."
        )
        confidence = 0.78 if fork.relation == "skip" else 0.75 if early.by else 0.64
        return Hypothesis(SKIPPED, confidence, said, at_fork(case, fork))
    if fork.relation != "skip" or fork.block is None:
        return None
    past, jumped = (fork.mine, fork.theirs) if fork.only == fork.mine.rank else (fork.theirs, fork.mine)
    said = (
        f"Rank {past.rank} is past `{fork.block.text}` in its turn of the loop, rank {jumped.rank} is not there: it has "
        f"left out the rest of a turn and is ahead."
    )
    return Hypothesis(SKIPPED, 0.7 if fork.sure else 0.55, said, at_fork(case, fork))


def _skipped_turn(case: Case, fork: Fork) -> Hypothesis | None:
    """One side has left the loop a turn early, and the loop has a way to leave out a turn: the batches may have been even."""
    inside, past = (fork.mine, fork.theirs) if fork.only == fork.mine.rank else (fork.theirs, fork.mine)
    around = inside.at.blocks if inside.at is not None else ()
    loop = next((i for i, b in enumerate(around) if fork.block is not None and b.line == fork.block.line), None)
    guards = [b for b in around[loop + 1 :] if b.kind == "guard"] if loop is not None else []
    if not guards:
        return None
    said = (
        f"Rank {past.rank} is a turn ahead at the end of the loop: it may have had fewer batches, or left out turns by "
        f"`{guards[-1].text}` (line {guards[-1].line}), which comes before the collective."
    )
    return Hypothesis(SKIPPED, 0.5, said, at_fork(case, fork))


def mismatch(case: Case) -> Hypothesis | None:
    """Different operations met, and that is all that can be said."""
    parting = case.blame.parting
    wrong_pair = parting is not None and parting.mismatch
    if case.blame.shape != "cycle" and not wrong_pair:
        return None
    one, other = case.representatives()
    shown = tuple(r for r in (one, other) if r is not None)
    evidence = at_recorder(case, shown) + tuple(e for r in shown for e in at_stack(case, r))
    if parting is not None and wrong_pair:
        went = " They went through as a wrong pair, and every operation since is out of step." if parting.silent else ""
        said = f"At number {parting.seq} of {parting.group.label} the ranks called different operations.{went}"
    else:
        said = "The ranks wait for each other in different operations."
    return Hypothesis(MISMATCH, 0.4 if wrong_pair else 0.3, said, evidence)
