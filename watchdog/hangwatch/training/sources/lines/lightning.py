"""The progress bar of Lightning. Pure; may import hangwatch.model and the standard library.

Lightning 2.6.6, ``pytorch/callbacks/progress/tqdm_progress.py`` (``BAR_FORMAT``), ``progress_bar.py`` (``get_metrics``)::

    Epoch 1:   4%|3         | 40/1095 [00:03<01:37, 10.84it/s, v_num=10, train_loss=0.693]

The bar counts batches, which are optimizer steps where gradients are not accumulated.
"""

from __future__ import annotations

import re

from hangwatch.model.telemetry import LoggedStep
from hangwatch.training.sources.lines.values import NUMBER, keep_words, parse_number

_BAR = re.compile(r"Epoch (\d{1,9}):\s{0,4}\d{1,3}%\|[^|]{0,400}\| (\d{1,12})/(\d{1,12}) \[([^\]]{0,2000})\]")
_LOSS = re.compile(
    rf"[, ](?:loss|train_loss|train/loss|loss_step|train_loss_step|reduced_train_loss)=({NUMBER})(?=[,\]]|$)",
    re.IGNORECASE,
)


def parse_lightning_line(line: str) -> LoggedStep | None:
    """Parse one drawing of the training bar with a loss in it; None for any other line."""
    found = _BAR.search(line)
    if found is None:
        return None
    epoch, done, total, rest = found.groups()
    loss = _LOSS.search(rest)
    if loss is None or int(done) == 0:
        return None
    value = parse_number(loss.group(1))
    step = int(epoch) * int(total) + int(done)
    return LoggedStep(
        source="lightning",
        at_ns=0,
        step=step,
        epoch=step / max(int(total), 1),
        loss=value,
        texts=keep_words("loss", str(value)),  # three significant digits, padded with zeros: 0.000 is exactly 0
    )
