"""What a stretch of logged steps shows: learning rate, skipped steps, gradient norms, the course of the loss.

Pure; may import ``hangwatch.model``. Every function takes logged steps in order and answers for all of them.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from hangwatch.model.telemetry import LoggedStep

#: A norm that is a root of a whole number means parameter groups; there are never more of them.
_MOST_GROUPS = 64
#: How many lines before tell what is usual.
_USUAL_LINES = 5
#: Above this multiple of the usual, loss or gradients have exploded.
_EXPLOSION = 10.0

#: How many lines beside a progress bar are needed to tell how many steps each stands for.
_LEAST_DRAWN = 4
_ROUNDED = re.compile(r"[-+]?0?\.00+")

#: What gradient norms show: not finite, -1, one root of a whole number, exactly 0, ordinary numbers, or not reported.
Norm = Literal["not finite", "negative", "constant", "zero", "ordinary", "unknown"]
#: What a learning rate does: is 0, is some other number all the time, moves, or is not reported.
Rate = Literal["zero", "frozen", "moves", "unknown"]


def is_bad_norm(norm: float | None) -> bool:
    """True if a gradient norm says that gradients are not finite."""
    return norm is not None and (not math.isfinite(norm) or norm < 0)


def is_root(norm: float | None) -> bool:
    """True if a norm is the root of a small whole number, to the four digits it may be printed with."""
    if norm is None or not 1.0 <= norm <= math.sqrt(_MOST_GROUPS):
        return False
    return abs(norm - math.sqrt(round(norm * norm))) <= 5e-4


def is_rewarded(line: LoggedStep) -> bool | None:
    """True if a step learns from rewards that are numbers; None if it reports no rewards.

    The loss of such a step is rightly 0 at times.
    """
    word = line.texts.get("reward")
    if word is None:
        return None
    try:
        return math.isfinite(float(word))
    except ValueError:
        return None


def is_rounded(line: LoggedStep) -> bool:
    """True if a loss of 0 was printed with so few digits that it may be a small one: ``0.000``."""
    return _ROUNDED.fullmatch(line.texts.get("loss", "").strip("'\"")) is not None


def is_falling(lines: Sequence[LoggedStep]) -> bool:
    """True if the loss falls steadily over many lines: the training learns."""
    losses = [line.loss for line in lines if line.loss is not None and math.isfinite(line.loss)]
    third = len(losses) // 3
    return third > 0 and statistics.median(losses[-third:]) < 0.8 * statistics.median(losses[:third])


def read_norm(lines: Sequence[LoggedStep]) -> Norm:
    """Return how the gradient norms look: not finite, negative, zero, one constant root, ordinary or unknown."""
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
    """Return the course of the learning rate: moving, frozen, zero or unknown."""
    rates = [line.learning_rate for line in lines if line.learning_rate is not None]
    if len(rates) < 2:
        return "unknown"
    if len(set(rates)) > 1:
        return "moves"
    return "zero" if rates[0] == 0 else "frozen"


def all_skipped(lines: Sequence[LoggedStep]) -> bool | None:
    """True if DeepSpeed skipped every step from the first line to the last; None if not reported."""
    counts = [(n, s.skipped_steps) for s in lines if (n := number_of(s)) is not None and s.skipped_steps is not None]
    if len(counts) >= 2:
        return counts[-1][0] - counts[0][0] == counts[-1][1] - counts[0][1]
    overflows = [line.overflow for line in lines if line.overflow is not None]
    if len(overflows) < 2 or not all(overflows):
        return False if overflows else None
    # A line may stand for many steps, one of which was.
    return True if steps_between(lines[0], lines[-1]) == len(overflows) - 1 else None


def number_of(line: LoggedStep) -> int | None:
    """Return the step that a line names; None if it names none, even if it was given a number by counting."""
    return None if line.texts.get("step") == "counted" else line.step


def steps_between(first: LoggedStep, last: LoggedStep) -> int | None:
    """Return how many steps lie between two lines; None if either names no step."""
    one, other = number_of(first), number_of(last)
    return None if one is None or other is None else other - one


def bar_spacing(lines: Sequence[LoggedStep]) -> int | None:
    """Return how many steps one line stands for, by the progress bar beside many lines that name no step; else None.

    The bar goes through another stream and may be a few steps late, so it does not tell a single line's number.
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
    """True if the first line is the first of its run: no more steps (or epochs) before it than between lines.

    None if that is not known: the run was resumed, or watched only later.
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
    """True if a loss that is 0 after these lines may have become 0 by itself: it was falling, or is 0 at times.

    A loss that was level and is exactly 0 in the next line was not learnt.
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
    """True if loss or gradients were far beyond the usual at the last good line."""
    for values in ([s.loss for s in before], [s.grad_norm for s in before]):
        finite = [abs(v) for v in values if v is not None and math.isfinite(v)]
        if len(finite) > 2 and finite[-1] > _EXPLOSION * statistics.median(finite[:-1]) > 0:
            return True
    return False


def is_share(before: Sequence[LoggedStep], line: LoggedStep, world_size: int | None) -> bool:
    """True if a loss is the usual one times (n - k) / n, for n ranks.

    That is the mean if k of them contributed 0 instead of NaN.
    """
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
