"""Lines that are JSON objects. Pure; may import hangwatch.model and the standard library.

``trainer_log.jsonl`` of LLaMA-Factory (``src/llamafactory/train/callbacks.py`` at 9174a7a, ``LogCallback``):
``{"current_steps": 5, "total_steps": 100, "loss": 0.6931, "lr": 0.0001, "epoch": 0.1, "percentage": 5.0, ...}``, written by
``json.dumps``, so with a bare ``NaN``; ``logging.jsonl`` of ms-swift (``"global_step/max_steps": "2/4389"``); and the objects of
the same kind that own loops print.
"""

from __future__ import annotations

import json
from typing import Any

from hangwatch.model.telemetry import LoggedStep
from hangwatch.training.sources.lines.values import keep_words, parse_count, parse_number

_NAMES = {
    "loss": ("loss", "train_loss", "train/loss"),
    "grad_norm": ("grad_norm", "train/grad_norm"),
    "learning_rate": ("lr", "learning_rate", "train/learning_rate"),
    "epoch": ("epoch", "train/epoch"),
}
_STEPS = ("current_steps", "step", "global_step", "train/global_step", "iteration", "iter", "global_step/max_steps")
_REWARDS = ("reward", "train/reward", "rewards/chosen", "rewards/margins")
#: Of preferences LLaMA-Factory logs only the accuracy; an accuracy of 1 goes with a loss of 0.
_ACCURACIES, _LEARNT = ("accuracy", "rewards/accuracies"), 0.9


def parse_json_line(line: str) -> LoggedStep | None:
    """Parse a line of that form with a loss or a gradient norm; None for any other line."""
    start, end = line.find("{"), line.rfind("}")
    if start < 0 or end < start:
        return None
    try:
        found = json.loads(line[start : end + 1])
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or "train_runtime" in found:  # that is the summary at the end of a run
        return None
    values: dict[str, Any] = {name: _first(found, keys) for name, keys in _NAMES.items()}
    step = next((number for key in _STEPS if (number := _count(found.get(key))) is not None), None)
    texts = keep_words("loss", repr(values["loss"])) if values["loss"] is not None else {}
    reward, accuracy = _first(found, _REWARDS), _first(found, _ACCURACIES)
    if reward is None and accuracy is not None and accuracy >= _LEARNT:
        reward = accuracy
    if reward is not None:
        texts["reward"] = repr(reward)
    if step is None or (values["loss"] is None and values["grad_norm"] is None):
        return None
    if not 0 <= step < 10**12:
        return None
    return LoggedStep(source="json", at_ns=0, step=step, texts=texts, **values)


def _count(value: object) -> int | None:
    """Return a whole number, or the first of two as in ``2/4389``; else None."""
    if isinstance(value, str):
        return parse_count(value.partition("/")[0])
    return value if isinstance(value, int) else None


def _first(found: dict[str, object], keys: tuple[str, ...]) -> float | None:
    """Return the first of the keys that holds a number, also as text; None if none does."""
    for key in keys:
        value = found.get(key)
        if isinstance(value, str):
            value = parse_number(value)
        if isinstance(value, float) or (isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63):
            return float(value)
    return None
