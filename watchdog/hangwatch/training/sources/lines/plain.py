"""Lines that own training loops print: a step and a loss, each by its name. Pure; hangwatch.model and the standard library.

``step 10: loss 2.31``, ``iter 120: loss 2.3456, time 30ms`` (nanoGPT), ``Epoch [1/5], Step [100/600], Loss: 0.123``,
``step=3 loss=0.5 lr=1e-4``. A line that speaks of validation or a test is none of them.
"""

from __future__ import annotations

import re

from hangwatch.model.telemetry import LoggedStep
from hangwatch.training.sources.lines.values import NUMBER, keep_words, parse_number

_OTHER = re.compile(
    r"\b(?:val|valid|validation|validate|eval|evaluation|test|dev)\b|val[_/ ]loss|eval[_/ ]loss", re.IGNORECASE
)
_IS = r"['\"]?\s{0,3}[:=]?\s{0,8}"
_STEP = re.compile(rf"\b(?:global_step|train_step|step|iter|iteration)s?{_IS}\[?(\d{{1,12}})\b(?!\.\d)", re.IGNORECASE)
_LOSS = re.compile(rf"(?<![\w/.-])(?:(\w{{1,40}})[_/ -])?loss{_IS}({NUMBER})(?![\w.%])", re.IGNORECASE)
#: What may precede it. Any other word makes it a part of the loss (auxiliary, KL, of a discriminator), which may be 0.
_WHOLE = frozenset(
    {
        "total",
        "train",
        "training",
        "avg",
        "average",
        "mean",
        "batch",
        "running",
        "smoothed",
        "current",
        "lm",
        "the",
        "info",
    }
)
_NORM = re.compile(rf"\bgrad(?:ient)?[_ -]?norm{_IS}({NUMBER})(?![\w.%])", re.IGNORECASE)
_RATE = re.compile(rf"\b(?:lr|learning[_ ]rate){_IS}({NUMBER})(?![\w.%])", re.IGNORECASE)


def parse_plain_line(line: str) -> LoggedStep | None:
    """Parse a line with a step and a loss; None for any other line."""
    step, loss = _STEP.search(line), _find_loss(line)
    if step is None or loss is None or _OTHER.search(line):
        return None
    norm, rate = _NORM.search(line), _RATE.search(line)
    return LoggedStep(
        source="plain",
        at_ns=0,
        step=int(step.group(1)),
        loss=parse_number(loss),
        grad_norm=parse_number(norm.group(1)) if norm else None,
        learning_rate=parse_number(rate.group(1)) if rate else None,
        texts=keep_words("loss", loss),
    )


def _find_loss(line: str) -> str | None:
    """Return the text of the whole loss, preferring a total; None if a line has only parts of a loss."""
    found = [(word.lower(), number) for word, number in _LOSS.findall(line) if not word or _is_whole(word)]
    return next((number for word, number in found if word == "total"), found[0][1] if found else None)


def _is_whole(word: str) -> bool:
    return word.isdigit() or word.lower() in _WHOLE
