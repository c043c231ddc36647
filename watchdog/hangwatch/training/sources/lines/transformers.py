"""The lines of the transformers Trainer. Pure; may import hangwatch.model and the standard library.

``trainer_callback.py``, ``ProgressCallback.on_log`` and ``PrinterCallback.on_log``: 4.57.6 prints the ``dict`` as it is
(``{'loss': 0.6931, 'grad_norm': 1.25, 'learning_rate': 0.00025, 'epoch': 0.25}``), 5.23.0 formats its floats as text
(``{'loss': '0.6931', 'grad_norm': 'nan', ...}``). LLaMA-Factory's console lines (``train/callbacks.py``,
``LogCallback.on_log``) and those of TRL's trainers have the same form. The line names no step, but for ms-swift's.
"""

from __future__ import annotations

import re

from hangwatch.model.telemetry import LoggedStep
from hangwatch.training.sources.lines.values import keep_words, parse_number

_DICT = re.compile(r"\{[^{}]*'loss': [^{}]*\}")
#: TRL's trainers that learn from rewards or preferences tell them in the same line; a loss of 0 means something else there.
_REWARDS = (re.compile(r"'reward': '?([^,'}]{1,64})"), re.compile(r"'rewards/[^']{1,80}': '?([^,'}]{1,64})"))
#: ms-swift 3 (``swift/trainers/callback.py``, ``ProgressCallbackNew``) puts it in; the Trainer's own line names no step.
_STEP = re.compile(r"'global_step(?:/max_steps)?': '?(\d{1,12})\b")
_ITEM = re.compile(r"'(loss|grad_norm|learning_rate|epoch)': ('?)([^,'}]{1,64})'?")


def parse_transformers_line(line: str) -> LoggedStep | None:
    """Parse one line of a Trainer's log; None for any other line."""
    found = _DICT.search(line)
    if found is None:
        return None
    values: dict[str, float] = {}
    texts: dict[str, str] = {}
    for name, quote, word in _ITEM.findall(found.group()):
        number = parse_number(word.strip())
        if number is None or name in values:
            continue
        values[name] = number
        texts |= keep_words(name, f"{quote}{word.strip()}{quote}")
    if "loss" not in values or len(values) < 2:
        return None
    reward = next((match for form in _REWARDS if (match := form.search(found.group())) is not None), None)
    if reward is not None:
        texts["reward"] = reward[1]
    step = _STEP.search(found.group())
    return LoggedStep(
        source="transformers",
        at_ns=0,
        step=int(step[1]) if step is not None else None,
        loss=values["loss"],
        grad_norm=values.get("grad_norm"),
        learning_rate=values.get("learning_rate"),
        epoch=values.get("epoch"),
        texts=texts,
    )
