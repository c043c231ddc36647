"""The lines of torchtitan. Pure; may import hangwatch.model and the standard library.

``torchtitan/components/metrics.py`` at 00fbaaf, ``MetricsProcessor.log``: ``step: 10  loss:  7.1234  grad_norm:  1.2345
memory: ...``, with colours unless told otherwise. Lines of validation begin with ``validate step:``.
"""

from __future__ import annotations

import re

from hangwatch.model.telemetry import LoggedStep
from hangwatch.training.sources.lines.values import NUMBER, keep_words, parse_number

_GAP = r"\s{1,12}"
_LINE = re.compile(
    rf"(?<!validate )\bstep:{_GAP}(\d{{1,12}}){_GAP}loss:{_GAP}({NUMBER})(?:{_GAP}grad_norm:{_GAP}({NUMBER}))?",
    re.IGNORECASE,
)


def parse_torchtitan_line(line: str) -> LoggedStep | None:
    """Parse one line of its log, colours removed; None for any other line."""
    found = _LINE.search(line)
    if found is None:
        return None
    step, loss, norm = found.groups()
    return LoggedStep(
        source="torchtitan",
        at_ns=0,
        step=int(step),
        loss=parse_number(loss),
        grad_norm=parse_number(norm) if norm else None,
        texts=keep_words("loss", loss),
    )
