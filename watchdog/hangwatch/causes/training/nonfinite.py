"""Silent failures in which something is not finite: weights, a loss, or gradients.

What was bad first decides. If nothing was ever good, it was in the weights before the first step. If a loss was bad first, the
batch made it. If a gradient of a batch whose loss was good was bad first, the backward or the reduction made it.
"""

from __future__ import annotations

from hangwatch.analysis.training.case import TrainingCase
from hangwatch.causes.signature import Match, Signature
from hangwatch.causes.training.lines import describe_line, observe
from hangwatch.model.incident import Evidence

#: Every line is bad, and every step was skipped.
HALTED = Signature("loss-zero-lr-frozen", "halted-from-the-start", "certain")
FROM_START = Signature("loss-zero-lr-frozen", "bad-from-the-start", "strong")
#: The beginning was not seen, and as many steps were skipped as were taken.
SKIPPED_ALL_ALONG = Signature("loss-zero-lr-frozen", "skipped-all-along", "certain")
HALTED_UNSEEN_START = Signature(
    "loss-zero-lr-frozen", "halted-start-unseen", "likely", beats=("loss-nan-data-mix", "weights-poisoned")
)
UNSEEN_START = Signature("loss-zero-lr-frozen", "start-unseen", "possible")

#: A reduction that is known to go wrong comes before what it leaves behind: weights that are not finite.
FIRST_A_GRADIENT = Signature("loss-zero-overlap-comm", "first-a-gradient", "strong", beats=("weights-poisoned",))
FIRST_A_GRADIENT_EXPLAINED = Signature("loss-zero-overlap-comm", "first-a-gradient-otherwise-explained", "likely")
CLIFF = Signature(
    "loss-zero-overlap-comm",
    "from-one-line-to-the-next",
    "likely",
    beats=("loss-nan-data-mix/suddenly", "loss-nan/suddenly"),
)
RACE_AND_GRADIENTS = Signature("loss-zero-overlap-comm", "gradients-only-with-the-race", "likely")
OVERLAP_ON = Signature("loss-zero-overlap-comm", "overlap-on", "possible")

FIRST_A_LOSS = Signature("loss-nan-data-mix", "first-a-loss", "strong")
#: What grew tenfold before diverged: neither a race nor a weight that was bad all at once.
GREW = Signature("loss-nan-data-mix", "grew-before", "likely", beats=("loss-zero-overlap-comm",))
SUDDENLY = Signature("loss-nan-data-mix", "suddenly", "likely", beats=("weights-poisoned",))
BATCH = Signature("loss-nan-data-mix", "some-batch", "possible")

#: The same as of a batch, and the name under which the log shows it.
PRINTED_FIRST_A_LOSS = Signature("loss-nan", "first-a-loss", "strong", beats=("loss-nan-data-mix/first-a-loss",))
PRINTED_GREW = Signature(
    "loss-nan", "grew-before", "likely", beats=("loss-nan-data-mix/grew-before", "loss-zero-overlap-comm")
)
PRINTED_SUDDENLY = Signature("loss-nan", "suddenly", "likely", beats=("loss-nan-data-mix/suddenly", "weights-poisoned"))
PRINTED = Signature("loss-nan", "printed", "possible", beats=("loss-nan-data-mix",))

#: A step was taken whose gradient was known to be bad.
POISONED = Signature("weights-poisoned", "first-a-gradient", "strong")
POISONED_UNSEEN_START = Signature("weights-poisoned", "start-unseen", "likely")
WEIGHTS = Signature("weights-poisoned", "weights-not-finite", "possible", beats=("loss-nan-data-mix",))

NEVER_FINITE_SKIPPED = Signature("gradients-never-finite", "every-step-skipped", "strong")
NEVER_FINITE = Signature("gradients-never-finite", "loss-finite", "likely")

#: DeepSpeed releases: the race of ``overlap_comm`` mended (#5606), bf16 steps skipped unless configured otherwise
#: (#8035), and those in between, in which a bf16 step whose gradients are not finite goes into the weights.
_RACE_MENDED, _CHECKED, _UNCHECKED_SINCE = (0, 14, 3), (0, 19, 3), (0, 11, 2)


def lr_frozen(case: TrainingCase) -> Match | None:
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
        row = SKIPPED_ALL_ALONG if all_along else HALTED_UNSEEN_START if halted else UNSEEN_START
    else:
        row = HALTED if halted else FROM_START
    how = (
        "Every step is skipped and the learning rate never moves: the weights stay as they were."
        if halted
        else "Steps are taken all the same, and no weight can get well again."
    )
    said = (
        f"The loss is not finite from the first logged step on, {describe_line(fault.first)}. So a weight or a buffer was NaN or "
        f"infinite before training began: a new module that nothing initialised, or a checkpoint that holds it. {how}"
    )
    return Match(row, said, observe(case))


def overlap_comm(case: TrainingCase) -> Match | None:
    """Gradients of several ranks were reduced while others were still being written into the same bucket."""
    fault, settings = case.fault, case.deepspeed
    if fault.kind == "zero" or fault.from_start or settings is None or settings.overlap_comm is not True:
        return None
    if not settings.stage or (case.world_size is not None and case.world_size < 2):
        return None
    raced = case.at_least("deepspeed", _RACE_MENDED) is False
    # Such a step is skipped there, and poisons nothing.
    checked = bool(settings.check_grad_overflow and settings.stage < 3 and case.at_least("deepspeed", _CHECKED))
    explained = fault.exploded or (checked and not raced)
    row = OVERLAP_ON
    if fault.kind == "gradient":
        row = RACE_AND_GRADIENTS if raced else OVERLAP_ON
    elif fault.order == "gradient":
        row = FIRST_A_GRADIENT_EXPLAINED if explained else FIRST_A_GRADIENT
    elif fault.order is None and fault.from_start is False and not explained:
        row = CLIFF
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
    return Match(row, said, observe(case))


def data_mix(case: TrainingCase) -> Match | None:
    """A batch whose own loss is not finite, as new data bring."""
    fault = case.fault
    if fault.kind != "nan" or fault.from_start:
        return None
    return Match(
        (FIRST_A_LOSS, GREW, SUDDENLY, BATCH)[_by_batch(case)], _batch_words(case), observe(case) + _unchecked(case)
    )


def loss_nan(case: TrainingCase) -> Match | None:
    """The loss is printed as it is."""
    fault = case.fault
    if fault.kind != "nan" or not fault.printed_nan:
        return None
    rows = (PRINTED_FIRST_A_LOSS, PRINTED_GREW, PRINTED_SUDDENLY, PRINTED)
    return Match(
        PRINTED if fault.from_start else rows[_by_batch(case)], _batch_words(case), observe(case) + _unchecked(case)
    )


def poisoned(case: TrainingCase) -> Match | None:
    """The weights are not finite, and how they came to be so fits nothing else."""
    fault = case.fault
    if fault.kind != "nan" or fault.from_start:
        return None
    row = WEIGHTS  # where steps were skipped, nothing got into them
    if not fault.skipped and fault.order == "gradient":
        row = POISONED
    elif not fault.skipped and fault.order is None and fault.from_start is None:
        row = POISONED_UNSEEN_START
    first = (
        f"A gradient was not finite in {describe_line(fault.first)}, whose loss still was, and the step was taken."
        if fault.order == "gradient"
        else "The loss was finite once and is not any more, on whatever data."
        if fault.before
        else "The loss is not finite since it was first seen; how the run began was not seen."
    )
    said = f"{first} Weights that hold a NaN make every loss NaN from then on; only an older checkpoint is without."
    return Match(row, said, observe(case) + _unchecked(case))


def never_finite(case: TrainingCase) -> Match | None:
    """The loss is well and no gradient ever is: no update is made, or none should be."""
    fault = case.fault
    if fault.kind != "gradient":
        return None
    row = NEVER_FINITE_SKIPPED if fault.skipped else NEVER_FINITE
    what = (
        "Every one of these steps is skipped, so nothing is learnt"
        if fault.skipped
        else "No update made of them is worth anything"
    )
    said = (
        f"The loss is finite, and the gradients have not been since {describe_line(fault.first)}. {what}: the backward of "
        "some layer, or a loss scale that is at its lowest, makes them so."
    )
    return Match(row, said, observe(case))


def _by_batch(case: TrainingCase) -> int:
    """What speaks for a batch, by what was bad first: a loss (0), growth before (1), nothing against it (2), or little (3)."""
    fault = case.fault
    if fault.from_start is None and not fault.before:
        return 3
    if fault.order == "loss":
        return 0
    if fault.exploded:
        return 1
    return 2 if fault.order is None else 3


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
