"""Silent failures with non-finite weights, losses or gradients.

The first bad thing decides. If nothing was ever good, the weights were bad before the first step. If a loss was bad
first, the batch caused it. If a gradient was bad first, of a batch whose loss was good, the backward or the reduction
caused it.
"""

from __future__ import annotations

from hangwatch.causes.match import Level, Match
from hangwatch.model.incident import Evidence
from hangwatch.training.analysis.case import TrainingCase
from hangwatch.training.causes.lines import describe_line, observe

#: DeepSpeed releases: the race of ``overlap_comm`` mended (#5606), bf16 steps skipped unless configured otherwise
#: (#8035), and those in between, in which a bf16 step whose gradients are not finite goes into the weights.
_RACE_MENDED, _CHECKED, _UNCHECKED_SINCE = (0, 14, 3), (0, 19, 3), (0, 11, 2)


def lr_frozen(case: TrainingCase) -> Match | None:
    """Return a match if nothing was ever good: the weights were not finite before the first step."""
    fault = case.fault
    if fault.kind != "nan" or fault.from_start is False:
        return None
    halted = fault.skipped is True or (fault.skipped is None and fault.rate == "zero")
    if fault.from_start is None:
        counted = fault.bad[-1]
        all_along = (
            counted.step is not None and counted.skipped_steps is not None and counted.skipped_steps >= counted.step > 0
        )
        level: Level = "certain" if all_along else "likely" if halted else "possible"
    else:
        level = "certain" if halted else "strong"
    how = (
        "Every step is skipped and the learning rate never moves, so the weights stay as they were."
        if halted
        else "Steps are still taken, and the weights cannot recover."
    )
    said = (
        f"The loss is not finite from the first logged step on ({describe_line(fault.first)}). So a "
        "weight or buffer was NaN or infinite before training started: a new module that was never "
        f"initialized, or a checkpoint that contains it. {how}"
    )
    return Match("loss-zero-lr-frozen", level, said, observe(case))


def overlap_comm(case: TrainingCase) -> Match | None:
    """Return a match if gradients were reduced while others were still being written into the same bucket."""
    fault, settings = case.fault, case.deepspeed
    if fault.kind == "zero" or fault.from_start or settings is None or settings.overlap_comm is not True:
        return None
    if not settings.stage or (case.world_size is not None and case.world_size < 2):
        return None
    raced = case.at_least("deepspeed", _RACE_MENDED) is False
    # Such a step is skipped there and does no harm.
    checked = bool(settings.check_grad_overflow and settings.stage < 3 and case.at_least("deepspeed", _CHECKED))
    explained = fault.exploded or (checked and not raced)
    level: Level = "possible"
    if fault.kind == "gradient":
        level = "likely" if raced else "possible"
    elif fault.order == "gradient":
        level = "possible" if explained else "strong"
    elif fault.order is None and fault.from_start is False and not explained:
        level = "likely"
    first = (
        "A gradient was not finite while that step's loss was: it went wrong in the backward or in the reduction."
        if fault.order == "gradient"
        else "The loss was finite and then, from one logged step to the next, not finite."
    )
    ranks = f"{case.world_size} ranks" if case.world_size is not None else "several ranks"
    said = (
        f"{first} With ZeRO-{settings.stage} and overlap_comm on, {ranks} reduce one bucket of "
        "gradients on a separate stream while the backward fills the next. If the two overlap, the "
        "result is wrong."
    )
    return Match("loss-zero-overlap-comm", level, said, observe(case))


def data_mix(case: TrainingCase) -> Match | None:
    """Return a match if a batch has a loss that is not finite, as new data may cause."""
    fault = case.fault
    if fault.kind != "nan" or fault.from_start:
        return None
    return Match("loss-nan-data-mix", _by_batch(case), _batch_words(case), observe(case) + _unchecked(case))


def loss_nan(case: TrainingCase) -> Match | None:
    """Return a match if the loss is printed as NaN."""
    fault = case.fault
    if fault.kind != "nan" or not fault.printed_nan:
        return None
    level: Level = "possible" if fault.from_start else _by_batch(case)
    return Match("loss-nan", level, _batch_words(case), observe(case) + _unchecked(case))


def poisoned(case: TrainingCase) -> Match | None:
    """Return a match if the weights are not finite, and nothing else explains how they became so."""
    fault = case.fault
    if fault.kind != "nan" or fault.from_start:
        return None
    level: Level = "possible"  # skipped steps did not change the weights
    if not fault.skipped and fault.order == "gradient":
        level = "strong"
    elif not fault.skipped and fault.order is None and fault.from_start is None:
        level = "likely"
    first = (
        f"A gradient was not finite in {describe_line(fault.first)}, although that loss was, and the step was taken."
        if fault.order == "gradient"
        else "The loss was finite once and no longer is, whatever the data."
        if fault.before
        else "The loss was never finite in the visible part of the run; its start is not visible."
    )
    said = f"{first} Weights that contain NaN make every later loss NaN. Only an older checkpoint is free of it."
    return Match("weights-poisoned", level, said, observe(case) + _unchecked(case))


def never_finite(case: TrainingCase) -> Match | None:
    """Return a match if the loss is good and no gradient ever is: no update is made, or none should be."""
    fault = case.fault
    if fault.kind != "gradient":
        return None
    level: Level = "strong" if fault.skipped else "likely"
    what = (
        "Every one of these steps is skipped, so nothing is learned"
        if fault.skipped
        else "Updates with them are worthless"
    )
    said = (
        f"The loss is finite, but the gradients have not been since {describe_line(fault.first)}. "
        f"{what}. The reason is one layer's backward, or a loss scale that has reached its minimum."
    )
    return Match("gradients-never-finite", level, said, observe(case))


def _by_batch(case: TrainingCase) -> Level:
    """Return how strongly a batch is indicated: a loss that was bad first, growth before, nothing against it, or little."""
    fault = case.fault
    if fault.from_start is None and not fault.before:
        return "possible"
    if fault.order == "loss":
        return "strong"
    return "likely" if fault.exploded or fault.order is None else "possible"


def _batch_words(case: TrainingCase) -> str:
    fault = case.fault
    if not fault.before:
        return "The loss is not finite in any visible line."
    after = f"after {describe_line(fault.before[-1])}"
    if fault.exploded:
        return f"Loss or gradients grew more than tenfold {after} before they stopped being finite: training diverged."
    if fault.order == "loss":
        return (
            f"The loss was not finite before any gradient was, {after}: that batch caused it. "
            "Something in it is new to the run: another kind of data, an empty or broken sample, or "
            "a value that overflows."
        )
    return (
        f"The loss was finite and then not, {after}. The lines do not show whether the loss or a gradient "
        "was bad first."
    )


def _unchecked(case: TrainingCase) -> tuple[Evidence, ...]:
    """Return the evidence that this DeepSpeed applies non-finite gradients; empty if it does not."""
    settings = case.deepspeed
    if settings is None or settings.dtype != "bf16" or settings.check_grad_overflow:
        return ()
    if not (case.at_least("deepspeed", _UNCHECKED_SINCE) and case.at_least("deepspeed", _CHECKED) is False):
        return ()
    release = f"DeepSpeed {case.versions['deepspeed']}"
    return (
        Evidence(
            None,
            "versions",
            f"{release} takes bf16 steps with non-finite gradients; 0.19.3 and newer skip them",
        ),
    )
