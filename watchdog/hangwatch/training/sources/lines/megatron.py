"""The lines of Megatron-LM and its relatives. Pure; may import hangwatch.model and the standard library.

``megatron/training/training.py``, ``training_log`` (one line)::

    iteration       10/   500 | consumed samples: .. | learning rate: 1.0E-04 | .. | lm loss: 7.1E+00 | loss scale: 1.0 |
    grad norm: 1.234 | number of skipped iterations:   0 | number of nan iterations:   0 |

A loss that is not above 0 (so also NaN) is left out of the line; skipped iterations are those of the interval alone.
"""

from __future__ import annotations

import re
from typing import Any

from hangwatch.model.telemetry import LoggedStep
from hangwatch.training.sources.lines.values import parse_count, parse_number

_STEP = re.compile(r"\biteration\s{1,12}(\d{1,12})/\s{0,12}\d{1,12} \|(.{0,4000})")
_NAMES = {"learning rate": "learning_rate", "lm loss": "loss", "loss scale": "loss_scale", "grad norm": "grad_norm"}


def parse_megatron_line(line: str) -> LoggedStep | None:
    """Parse one line of its log; None for any other line."""
    found = _STEP.search(line)
    if found is None:
        return None
    items = dict(part.strip().rpartition(": ")[::2] for part in found.group(2).split("|") if ": " in part)
    values: dict[str, Any] = {
        field: parse_number(items[name].strip()) for name, field in _NAMES.items() if name in items
    }
    if not values:
        return None
    nan = parse_count(items.get("number of nan iterations", "").strip())
    skipped = parse_count(items.get("number of skipped iterations", "").strip())
    texts = {"loss": f"number of nan iterations: {nan}"} if nan else {}
    if nan and values.get("loss") is None:
        values["loss"] = float("nan")
    return LoggedStep(
        source="megatron",
        at_ns=0,
        step=int(found.group(1)),
        overflow=None if skipped is None else skipped > 0,
        texts=texts,
        **values,
    )
