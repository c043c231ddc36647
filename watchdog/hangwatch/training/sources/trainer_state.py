"""``trainer_state.json``, which a transformers Trainer writes with each checkpoint. Pure; may import hangwatch.model.

``trainer_callback.py`` of transformers 4.57.6 and 5.23.0, ``TrainerState.save_to_json``: ``log_history`` holds everything that
was logged, with step and with bare ``NaN``; also that of the run a checkpoint was resumed from.
"""

from __future__ import annotations

import json

from hangwatch.model.telemetry import LoggedStep


def parse_trainer_state(data: bytes, name: str, at_ns: int) -> tuple[LoggedStep, ...]:
    """Return the logged steps with a loss, in order. Raises ValueError if it is no such file."""
    found = json.loads(data)
    history = found.get("log_history") if isinstance(found, dict) else None
    if not isinstance(history, list):
        raise ValueError("no log_history")
    return tuple(
        LoggedStep(
            source=name,
            at_ns=at_ns,
            step=entry["step"],
            loss=_number(entry, "loss"),
            grad_norm=_number(entry, "grad_norm"),
            learning_rate=_number(entry, "learning_rate"),
            epoch=_number(entry, "epoch"),
        )
        for entry in history
        if isinstance(entry, dict) and isinstance(entry.get("step"), int) and _number(entry, "loss") is not None
    )


def _number(entry: dict[str, object], name: str) -> float | None:
    value = entry.get(name)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
