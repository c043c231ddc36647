"""Silent failures in which something is not finite: weights, a loss, or gradients.

What was bad first decides. If nothing was ever good, it was in the weights before the first step. If a loss was bad first, the
batch made it. If a gradient of a batch whose loss was good was bad first, the backward or the reduction made it.
"""

from __future__ import annotations

from hangwatch.analysis.training.case import TrainingCase
from hangwatch.causes.hypothesis import Hypothesis
from hangwatch.causes.knowledge import known
from hangwatch.causes.training.lines import describe_line, observe
from hangwatch.model.incident import Evidence

FROZEN = known("loss-zero-lr-frozen")
OVERLAP = known("loss-zero-overlap-comm")
DATA_MIX = known("loss-nan-data-mix")
PRINTED = known("loss-nan")
POISONED = known("weights-poisoned")
NEVER_FINITE = known("gradients-never-finite")

#: DeepSpeed releases: the race of ``overlap_comm`` mended (#5606), bf16 steps skipped unless told otherwise (#8035), and
#: those in between, in which a bf16 step whose gradients are not finite goes into the weights.
_RACE_MENDED, _CHECKED, _UNCHECKED_SINCE = (0, 14, 3), (0, 19, 3), (0, 11, 2)


def lr_frozen(case: TrainingCase) -> Hypothesis | None:
    """Nothing was ever good: what is not finite was there before the first step."""
    fault = case.fault
    if fault.kind != "nan" or fault.from_start is False:
        return None
    halted = fault.skipped is True or (fault.skipped is None and fault.rate == "zero")
    if fault.from_start is None:
        counted = fault.bad[-1]
        all_along = (
            counted.step is not None and counted.skipped_steps is not None and counted.skipped_steps >= counted.step > 0
        )
        confidence = 0.9 if all_along else 0.5 if halted else 0.35
    else:
        confidence = 0.92 if halted else 0.85
    how = (
        "Every step is skipped and the learning rate never moves: the weights stay as they were."
        if halted
        else "Steps are taken all the same, and no weight can get well again."
    )
    said = (
        f"The loss is not finite from the first logged step on, {describe_line(fault.first)}. So a weight or a buffer was NaN or "
        f"infinite before training began: a new module that nothing initialised, or a checkpoint that holds it. {how}"
    )
    return Hypothesis(FROZEN, confidence, said, observe(case))


def overlap_comm(case: TrainingCase) -> Hypothesis | None:
    """Gradients of several ranks were reduced while others were still being written into the same bucket."""
    fault, settings = case.fault, case.deepspeed
    if fault.kind == "zero" or fault.from_start or settings is None or settings.overlap_comm is not True:
        return None
    if not settings.stage or (case.world_size is not None and case.world_size < 2):
        return None
    if fault.kind == "gradient":
        confidence = 0.45
    else:
        confidence = {"gradient": 0.8, "loss": 0.25, None: 0.6 if fault.from_start is False else 0.3}[fault.order]
    if case.at_least("deepspeed", _RACE_MENDED) is False:
        confidence += 0.1
    elif settings.check_grad_overflow and settings.stage < 3 and case.at_least("deepspeed", _CHECKED):
        confidence -= 0.2  # such a step is skipped there, and poisons nothing
    if fault.exploded:
        confidence -= 0.25
    first = (
        "A gradient was not finite while the loss of that step still was: it went wrong in the backward or in the reduction."
        if fault.order == "gradient"
        else "The loss was finite and then, from one logged step to the next, no more."
    )
    ranks = f"{case.world_size} ranks" if case.world_size is not None else "several ranks"
    said = (
        f"{first} With ZeRO-{settings.stage} and overlap_comm on, {ranks} reduce one bucket of gradients on a stream of its own "
        "while the backward fills the next; where the two meet, what is reduced is not what was computed."
    )
    return Hypothesis(OVERLAP, max(confidence, 0.05), said, observe(case))


def data_mix(case: TrainingCase) -> Hypothesis | None:
    """A batch whose own loss is not finite, as new data bring."""
    fault = case.fault
    if fault.kind != "nan" or fault.from_start:
        return None
    confidence = _by_batch(case)
    if fault.printed_nan:
        confidence -= 0.3  # the same, and already said by another name
    return Hypothesis(DATA_MIX, max(confidence, 0.05), _batch_words(case), observe(case) + _unchecked(case))


def loss_nan(case: TrainingCase) -> Hypothesis | None:
    """The loss is printed as it is."""
    fault = case.fault
    if fault.kind != "nan" or not fault.printed_nan:
        return None
    confidence = _by_batch(case) + 0.05 if not fault.from_start else 0.3
    return Hypothesis(PRINTED, confidence, _batch_words(case), observe(case) + _unchecked(case))


def poisoned(case: TrainingCase) -> Hypothesis | None:
    """The weights are not finite, and how they came to be so fits nothing else."""
    fault = case.fault
    if fault.kind != "nan" or fault.from_start:
        return None
    confidence = {"gradient": 0.65, "loss": 0.2, None: 0.4 if fault.from_start is False else 0.45}[fault.order]
    if fault.skipped:
        confidence -= 0.2  # nothing got into them
    first = (
        f"A gradient was not finite in {describe_line(fault.first)}, whose loss still was, and the step was taken."
        if fault.order == "gradient"
        else "The loss was finite once and is not any more, on whatever data."
        if fault.before
        else "The loss is not finite since it was first seen; how the run began was not seen."
    )
    said = f"{first} Weights that hold a NaN make every loss NaN from then on; only an older checkpoint is without."
    return Hypothesis(POISONED, max(confidence, 0.05), said, observe(case) + _unchecked(case))


def never_finite(case: TrainingCase) -> Hypothesis | None:
    """The loss is well and no gradient ever is: no update is made, or none should be."""
    fault = case.fault
    if fault.kind != "gradient":
        return None
    confidence = 0.75 if fault.skipped else 0.5
    what = (
        "Every one of these steps is skipped, so nothing is learnt"
        if fault.skipped
        else "No update made of them is worth anything"
    )
    said = (
        f"The loss is finite, and the gradients have not been since {describe_line(fault.first)}. {what}: the backward of "
        "some layer, or a loss scale that is at its lowest, makes them so."
    )
    return Hypothesis(NEVER_FINITE, confidence, said, observe(case))


def _by_batch(case: TrainingCase) -> float:
    """How sure we may be that a batch did it, by what was bad first."""
    fault = case.fault
    confidence = {"loss": 0.75, "gradient": 0.2, None: 0.45}[fault.order]
    if fault.exploded:
        confidence = max(confidence, 0.55)
    if fault.from_start is None and not fault.before:
        confidence = 0.25
    return confidence


def _batch_words(case: TrainingCase) -> str:
    fault = case.fault
    if not fault.before:
        return "The loss is not finite in any line that was seen."
    after = f"after {describe_line(fault.before[-1])}"
    if fault.exploded:
        return f"Loss or gradients had grown more than tenfold, {after}, before they were not finite any more: training diverged."
    if fault.order == "loss":
        return (
            f"The loss itself was not finite before any gradient was, {after}: that batch made it. What came with it is new to "
            "the run: another kind of data, an empty or broken sample, a value that overflows."
        )
    return f"The loss was finite and then no more, {after}. What was bad first, a loss or a gradient, the lines do not tell."


def _unchecked(case: TrainingCase) -> tuple[Evidence, ...]:
    """That this DeepSpeed takes steps whose gradients are not finite, where it does."""
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
            f"{release} takes a bf16 step whose gradients are not finite; from 0.19.3 on it is skipped",
        ),
    )
