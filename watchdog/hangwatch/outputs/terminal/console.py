"""A stream of text with its width and its colour. May import the standard library alone.

A line is a tuple of spans. Text of a job goes through ``sanitize`` before it becomes a span: a console writes spans as they are.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple, TextIO

#: Width of a pipe or a file, in characters.
_PIPE_WIDTH = 110
_DEFAULT_HEIGHT = 24
#: Parameters of "select graphic rendition" (ECMA-48, 8.3.117).
_SGR = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "magenta": "35",
    "cyan": "36",
}


class Span(NamedTuple):
    """A piece of a line. ``style``: words of ``_SGR``, ``bold red``; empty for none."""

    text: str
    style: str = ""


Line = tuple[Span, ...]


class Console:
    """Prints lines to a stream.

    ``width``: in characters. ``colour``: whether styles are shown. None: as the stream allows. Colour is for
    terminals, unless ``NO_COLOR`` (no-color.org) is set or the terminal is dumb (``TERM=dumb``).
    """

    def __init__(self, stream: TextIO, *, width: int | None = None, colour: bool | None = None) -> None:
        self.stream = stream
        self.is_terminal = stream.isatty()
        self._width = width
        if colour is None:
            colour = self.is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        self._colour = colour

    @property
    def width(self) -> int:
        """The width in columns: as given, else from ``COLUMNS``, else the terminal's."""
        columns = os.environ.get("COLUMNS", "")
        return self._width or (int(columns) if columns.isdecimal() and int(columns) else self._size()[0])

    @property
    def height(self) -> int:
        """The height of the terminal in lines."""
        return self._size()[1]

    def _size(self) -> tuple[int, int]:
        try:
            columns, lines = os.get_terminal_size(self.stream.fileno()) if self.is_terminal else (0, 0)
        except (OSError, ValueError):
            columns, lines = 0, 0
        return columns or _PIPE_WIDTH, lines or _DEFAULT_HEIGHT

    def say(self, text: str) -> None:
        """Print one line as it is, however long."""
        self.print([(Span(text),)])

    def print(self, lines: Iterable[Line]) -> None:
        """Print lines in one write, so that a job's own output does not come between them."""
        self.stream.write("".join(f"{self.render(line)}\n" for line in lines))
        self.stream.flush()

    def render(self, line: Line) -> str:
        """Return the text of a line with its colours; characters that the stream cannot encode are escaped."""
        encoding = self.stream.encoding or "utf-8"
        return "".join(map(self._styled, line)).encode(encoding, "backslashreplace").decode(encoding)

    def _styled(self, span: Span) -> str:
        if not self._colour or not span.style or not span.text:
            return span.text
        return f"\x1b[{';'.join(_SGR[word] for word in span.style.split())}m{span.text}\x1b[0m"
