"""Paragraphs with hanging indents, as lines without trailing blanks. May import ``sanitize``.

All functions return lines no wider than requested where words allow it.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence

from hangwatch.outputs.sanitize import excerpt
from hangwatch.outputs.terminal.console import Line, Span

#: Minimum width of a paragraph: in a narrower one every path is broken.
_MIN_WIDTH = 16
NO_MARK = Span("")


def say(text: str, style: str = "") -> Line:
    """Return trusted or untrusted text as one sanitized, styled line."""
    return (Span(excerpt(text), style),)


def paragraph(
    text: str, width: int, *, indent: int = 0, mark: Span = NO_MARK, style: str = "", label: Span = NO_MARK
) -> list[Line]:
    """Return ``text`` wrapped to ``width``, all lines indented.

    ``mark`` (``- ``, ``1. ``) precedes the first line. ``label``: begins the text, in a style of its own.
    """
    left = indent + len(mark.text)
    room = max(width - left, _MIN_WIDTH)
    start = excerpt(label.text)
    wrapped = textwrap.wrap(
        _break_paths(start + excerpt(text), room), room, break_on_hyphens=False, break_long_words=False
    )
    if not wrapped:
        return [(Span(" " * indent + mark.text.rstrip(), mark.style),)]
    first, *others = wrapped
    begins = start if first.startswith(start) else ""
    lead = Span(" " * indent)
    lines: list[Line] = [(lead, mark, Span(begins, label.style), Span(first[len(begins) :], style))]
    return lines + [(Span(" " * left), Span(line, style)) for line in others]


def _break_paths(text: str, room: int) -> str:
    """Break paths that do not fit a line after a slash, and other words anywhere; URLs stay whole."""
    at, too_long = 0, re.compile(rf"\S{{{room + 1},}}")
    while (word := too_long.search(text, at)) is not None:
        if "://" in word[0]:
            at = word.end()
            continue
        slash = text.rfind("/", word.start() + 1, word.start() + room)
        at = slash + 1 if slash > 0 else word.start() + room
        text = f"{text[:at]} {text[at:]}"
    return text


def table(headings: Sequence[str], rows: Iterable[Sequence[Span]]) -> list[Line]:
    """Return the rows in columns as wide as their widest cell, below bold headings; the last column is not padded."""
    cells = [
        [Span(heading, "bold") for heading in headings],
        *([Span(excerpt(c.text), c.style) for c in row] for row in rows),
    ]
    widths = [max(len(row[column].text) for row in cells) for column in range(len(headings))]
    return [
        (
            *(Span(cell.text.ljust(width) + "  ", cell.style) for cell, width in zip(row[:-1], widths, strict=False)),
            row[-1],
        )
        for row in cells
    ]
