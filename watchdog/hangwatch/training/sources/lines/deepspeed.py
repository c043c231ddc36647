"""The lines of DeepSpeed's engine and loss scalers. Pure; may import hangwatch.model and the standard library.

DeepSpeed 0.19.8, ``runtime/engine.py``, ``_report_progress``, and ``runtime/fp16/loss_scaler.py`` (the last one is
of 0.19.3 and later)::

    [Rank 0] step=10, skipped=0, lr=[0.001], mom=[[0.9, 0.999]]
    [deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768
    [deepspeed] OVERFLOW! Skipping step. Gradients are non-finite, weights were not updated.
"""

from __future__ import annotations

import re

from hangwatch.model.telemetry import LoggedStep
from hangwatch.training.sources.lines.values import parse_count, parse_number

_STEP = re.compile(r"(?:\[Rank (\d{1,7})\] )?step=(\d{1,12}), skipped=(\d{1,12}), lr=\[([^\],]{0,64})")
_OVERFLOW = re.compile(
    r"OVERFLOW! (?:Rank (\d{1,7}) )?Skipping step\.(?: Attempted loss scale: ([\d.e+]{1,24}))?[^\[]{0,60}"
)


def parse_deepspeed_step(line: str) -> LoggedStep | None:
    """Parse the line of progress; None for any other line.

    It tells steps, skipped steps and the learning rate, but no loss.
    """
    found = _STEP.search(line)
    if found is None:
        return None
    rank, step, skipped, rate = found.groups()
    return LoggedStep(
        source="deepspeed",
        at_ns=0,
        step=int(step),
        rank=parse_count(rank) if rank else None,
        skipped_steps=int(skipped),
        learning_rate=parse_number(rate.strip()),
    )


def parse_deepspeed_overflow(line: str) -> LoggedStep | None:
    """Parse the line of a skipped step, which names no step; None for any other line."""
    found = _OVERFLOW.search(line)
    if found is None:
        return None
    rank, scale = found.groups()
    return LoggedStep(
        source="deepspeed",
        at_ns=0,
        rank=parse_count(rank) if rank else None,
        overflow=True,
        loss_scale=parse_number(scale) if scale else None,
        texts={"overflow": found.group().strip()},
    )
