"""What a stretch of logged steps shows: learning rate, skipped steps, gradient norms, the way a loss has gone.

Pure; may import ``hangwatch.model``. Every function takes logged steps in order and answers about all of them.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from hangwatch.model.telemetry import LoggedStep

#: A norm that is a root of a whole number stands for parameter groups; more of them do not occur.
_MOST_GROUPS = 64
#: So many lines before are what is usual.
_USUAL_LINES = 5
#: Beyond this, loss or gradients have exploded.
_EXPLOSION = 10.0

#: So many lines beside a progress bar tell how many steps each stands for.
_LEAST_DRAWN = 4
_ROUNDED = re.compile(r"[-+]?0?\.00+")

#: What gradient norms show: not finite, -1, one root of a whole number, exactly 0, ordinary numbers, or not reported.
Norm = Literal["not finite", "negative", "constant", "zero", "ordinary", "unknown"]
#: What a learning rate does: is 0, is some other number all the time, moves, or is not reported.
Rate = Literal["zero", "frozen", "moves", "unknown"]


def is_bad_norm(norm: float | None) -> bool:
    """Whether a gradient norm says that gradients are not finite."""
    return norm is not None and (not math.isfinite(norm) or norm < 0)


def is_root(norm: float | None) -> bool:
    """Whether a norm is the root of a small whole number, to the four digits it may be printed with."""
    if norm is None or not 1.0 <= norm <= math.sqrt(_MOST_GROUPS):
        return False
    return abs(norm - math.sqrt(round(norm * norm))) <= 5e-4


def is_rewarded(line: LoggedStep) -> bool | None:
    """Whether a step learns from rewards that are a number (None: it tells of none): its loss is 0 by right at times."""
    word = line.texts.get("reward")
    if word is None:
        return None
    try:
        return math.isfinite(float(word))
    except ValueError:
        return None


def is_rounded(line: LoggedStep) -> bool:
    """Whether a loss of 0 was printed with so few digits that it may be a small one: ``0.000`` from a format."""
    return _ROUNDED.fullmatch(line.texts.get("loss", "").strip("'\"")) is not None


def is_falling(lines: Sequence[LoggedStep]) -> bool:
    """Whether the loss of many lines goes down for good, so that something is learnt."""
    losses = [line.loss for line in lines if line.loss is not None and math.isfinite(line.loss)]
    third = len(losses) // 3
    return third > 0 and statistics.median(losses[-third:]) < 0.8 * statistics.median(losses[:third])


def read_norm(lines: Sequence[LoggedStep]) -> Norm:
    """How the gradient norm showed what it shows."""
    norms = [line.grad_norm for line in lines if line.grad_norm is not None]
    if not norms:
        return "unknown"
    if not all(math.isfinite(norm) for norm in norms):
        return "not finite"
    if any(norm < 0 for norm in norms):
        return "negative"
    if all(norm == 0 for norm in norms):
        return "zero"
    return "constant" if len(norms) > 1 and len(set(norms)) == 1 and is_root(norms[0]) else "ordinary"


def read_rate(lines: Sequence[LoggedStep]) -> Rate:
    """What the learning rate does."""
    rates = [line.learning_rate for line in lines if line.learning_rate is not None]
    if len(rates) < 2:
        return "unknown"
    if len(set(rates)) > 1:
        return "moves"
    return "zero" if rates[0] == 0 else "frozen"


def all_skipped(lines: Sequence[LoggedStep]) -> bool | None:
    """Whether DeepSpeed skipped every step from the first line to the last; None where not reported."""
    counts = [(n, s.skipped_steps) for s in lines if (n := number_of(s)) is not None and s.skipped_steps is not None]
    if len(counts) >= 2:
        return counts[-1][0] - counts[0][0] == counts[-1][1] - counts[0][1]
    overflows = [line.overflow for line in lines if line.overflow is not None]
    if len(overflows) < 2 or not all(overflows):
        return False if overflows else None
    # A line may stand for many steps, of which one was.
    return True if steps_between(lines[0], lines[-1]) == len(overflows) - 1 else None


def number_of(line: LoggedStep) -> int | None:
    """The step a line names; None where it names none, and has a number by being counted at the most."""
    return None if line.texts.get("step") == "counted" else line.step


def steps_between(first: LoggedStep, last: LoggedStep) -> int | None:
    """How many steps lie between two lines; None where either names none."""
    one, other = number_of(first), number_of(last)
    return None if one is None or other is None else other - one


def bar_spacing(lines: Sequence[LoggedStep]) -> int | None:
    """How many steps a line stands for that names none, by how far the progress bar went beside many of them.

    The bar goes through another stream and may be a few steps late, so it tells no line's number.
    """
    if not lines or number_of(lines[0]) is not None:
        return None
    places = [line.texts.get("bar", "").partition("/") for line in lines]
    drawn = [(i, int(done)) for i, (done, _, total) in enumerate(places) if total and total == places[-1][2]]
    if len(drawn) < 2 or drawn[-1][0] - drawn[0][0] < _LEAST_DRAWN:
        return None
    (first, began), (last, ended) = drawn[0], drawn[-1]
    return round((ended - began) / (last - first)) or None


def is_start(lines: Sequence[LoggedStep]) -> bool | None:
    """Whether the first of all lines is the first of its run: no more steps (or epoch) before it than between lines.

    None where that is not known: a run that was resumed, or joined late.
    """
    first, second = lines[0], lines[1] if len(lines) > 1 else None
    number = number_of(first)
    if number is not None:
        spacing = steps_between(first, second) if second is not None else None
        return True if number <= max(1, spacing or 1) else None
    if first.epoch is not None and second is not None and second.epoch is not None:
        # Epochs are rounded in print.
        return True if first.epoch <= 1.5 * (second.epoch - first.epoch) + 0.01 else None
    return None


def fell_to_zero(before: Sequence[LoggedStep]) -> bool:
    """Whether a loss that is 0 after these lines may have come there by itself: it was on its way, or is 0 at times.

    A loss that was level and is exactly 0 in the next line has not been learnt away.
    """
    losses = [line.loss for line in before if line.loss is not None and math.isfinite(line.loss)]
    positive = [loss for loss in losses if loss != 0]
    if not losses:
        return False
    if len(positive) < len(losses) or not positive:
        return True
    last, usual = abs(positive[-1]), statistics.median(abs(loss) for loss in positive[-_USUAL_LINES:])
    falling = len(positive) > 2 and all(b < 0.8 * a for a, b in pairwise(positive[-3:]))
    # One line's worth of many steps can hold a whole curve.
    wide = len(before) > 1 and (steps_between(before[-2], before[-1]) or 1) > 100
    return falling or wide or last < 0.05 or last < 0.5 * usual


def has_exploded(before: Sequence[LoggedStep]) -> bool:
    """Whether loss or gradients had grown far beyond what was usual when the last good line was written."""
    for values in ([s.loss for s in before], [s.grad_norm for s in before]):
        finite = [abs(v) for v in values if v is not None and math.isfinite(v)]
        if len(finite) > 2 and finite[-1] > _EXPLOSION * statistics.median(finite[:-1]) > 0:
            return True
    return False


def is_share(before: Sequence[LoggedStep], line: LoggedStep, world_size: int | None) -> bool:
    """Whether a loss is what is usual times (n - k) / n, for n ranks: the mean when k of them put in a 0 for a NaN."""
    losses = [s.loss for s in before[-_USUAL_LINES:] if s.loss is not None]
    if world_size is None or world_size < 2 or not losses or line.loss is None:
        return False
    usual = statistics.median(losses)
    if usual <= 0:
        return False
    share = line.loss / usual * world_size
    noise = (max(losses) - min(losses)) / usual
    return (
        1 <= round(share) < world_size
        and abs(share - round(share)) <= 0.15
        and 1 - share / world_size > max(2 * noise, 0.5 / world_size)
    )
