"""All known forms of lines, in the order in which they are tried. Pure.

A new format is a file with a parser (a line in, a step or None out; ``source`` names the format, ``at_ns`` is 0) and
one entry here. ``mark``: a word that every line of the format contains; lines without any mark are never decoded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from hangwatch.model.telemetry import LoggedStep
from hangwatch.training.sources.lines.deepspeed import parse_deepspeed_overflow, parse_deepspeed_step
from hangwatch.training.sources.lines.json import parse_json_line
from hangwatch.training.sources.lines.lightning import parse_lightning_line
from hangwatch.training.sources.lines.megatron import parse_megatron_line
from hangwatch.training.sources.lines.plain import parse_plain_line
from hangwatch.training.sources.lines.torchtitan import parse_torchtitan_line
from hangwatch.training.sources.lines.transformers import parse_transformers_line
from hangwatch.training.sources.lines.values import strip_colours


class LineFormat(NamedTuple):
    """One form of line."""

    mark: str
    parse: Callable[[str], LoggedStep | None]


FORMATS = (
    LineFormat("'loss': ", parse_transformers_line),
    LineFormat("loss", parse_json_line),
    LineFormat("skipped=", parse_deepspeed_step),
    LineFormat("OVERFLOW!", parse_deepspeed_overflow),
    LineFormat("loss", parse_torchtitan_line),
    LineFormat("loss", parse_lightning_line),
    LineFormat("loss", parse_megatron_line),
    LineFormat("oss", parse_plain_line),
)
#: A log's bytes are searched for these before anything is decoded; every line with a mark contains one.
NEEDLES = (b"loss", b"Loss", b"skipped=", b"OVERFLOW!")


def parse_line(line: str) -> LoggedStep | None:
    """Return the step that a line of output reports, by the first format that matches; None if none does."""
    plain = strip_colours(line)
    for mark, parse in FORMATS:
        if mark in plain and (step := parse(plain)) is not None:
            return step
    return None
