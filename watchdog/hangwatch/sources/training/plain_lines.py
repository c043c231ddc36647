"""Lines that own training loops print: a step and a loss, each by its name. Pure; hangwatch.model and the standard library.

``step 10: loss 2.31``, ``iter 120: loss 2.3456, time 30ms`` (nanoGPT), ``Epoch [1/5], Step [100/600], Loss: 0.123``,
``step=3 loss=0.5 lr=1e-4``. A line that speaks of validation or a test is none of them.
"""

from __future__ import annotations

import re

from hangwatch.model.telemetry import LoggedStep
from hangwatch.sources.training.values import NUMBER, keep_words, parse_number

_OTHER = re.compile(
    r"\b(?:val|valid|validation|validate|eval|evaluation|test|dev)\b|val[_/ ]loss|eval[_/ ]loss", re.IGNORECASE
)
_IS = r"['\"]?\s{0,3}[:=]?\s{0,8}"
_STEP = re.compile(rf"\b(?:global_step|train_step|step|iter|iteration)s?{_IS}\[?(\d{{1,12}})\b(?!\.\d)", re.IGNORECASE)
_LOSS = re.compile(rf"(?<![\w/.])(?:train(?:ing)?[_/ ])?loss{_IS}({NUMBER})(?![\w.%])", re.IGNORECASE)
_NORM = re.compile(rf"\bgrad(?:ient)?[_ -]?norm{_IS}({NUMBER})(?![\w.%])", re.IGNORECASE)
_RATE = re.compile(rf"\b(?:lr|learning[_ ]rate){_IS}({NUMBER})(?![\w.%])", re.IGNORECASE)


def parse_plain_line(line: str) -> LoggedStep | None:
    """One line with a step and a loss; None for any other."""
    step, loss = _STEP.search(line), _LOSS.search(line)
    if step is None or loss is None or _OTHER.search(line):
        return None
    norm, rate = _NORM.search(line), _RATE.search(line)
    return LoggedStep(
        source="plain",
        at_ns=0,
        step=int(step.group(1)),
        loss=parse_number(loss.group(1)),
        grad_norm=parse_number(norm.group(1)) if norm else None,
        learning_rate=parse_number(rate.group(1)) if rate else None,
        texts=keep_words("loss", loss.group(1)),
    )
