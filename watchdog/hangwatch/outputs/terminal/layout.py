"""Lines of styled text: hanging indents and two columns, without trailing blanks. May import rich and ``sanitize``.

rich's own tables pad every line to the width of the console, which is noise in a log file and breaks when copied.
All functions return lines no wider than requested; text is never interpreted as markup.
"""

from __future__ import annotations

import re
from itertools import zip_longest

from rich.console import Console
from rich.text import Text

from hangwatch.outputs.sanitize import excerpt

#: Minimum width of a column: in narrower ones every path is broken.
_MIN_WIDTH = 16


def say(text: str, style: str = "") -> Text:
    """Trusted or untrusted text as one sanitized, styled line."""
    return Text(excerpt(text), style=style)


def hang(console: Console, text: Text, width: int, *, indent: int = 0, mark: str = "") -> list[Text]:
    """``text`` wrapped to ``width`` with all lines indented; ``mark`` (``- ``, ``1. ``) precedes the first."""
    left = indent + len(mark)
    room = max(width - left, _MIN_WIDTH)
    wrapped = _break_paths(text, room).wrap(console, room, overflow="fold") or [Text()]
    lines = []
    for number, line in enumerate(wrapped):
        line.rstrip()
        lead = " " * indent + mark if number == 0 else " " * left
        lines.append(Text(lead) + line if line else Text(lead.rstrip()))
    return lines


def _break_paths(text: Text, room: int) -> Text:
    """Break paths that do not fit a line after a slash."""
    at = 0
    while (word := re.compile(rf"\S{{{room + 1},}}").search(text.plain, at)) is not None:
        slash = text.plain.rfind("/", word.start() + 1, word.start() + room)
        at = slash + 1 if slash > 0 else word.start() + room
        text = text[:at] + Text("\n") + text[at:]
    return text


def beside(left: list[Text], right: list[Text], column: int, *, indent: int = 0) -> list[Text]:
    """Two blocks of lines side by side, the left one padded to ``column`` cells, with a rule between them."""
    lines = []
    for one, other in zip_longest(left, right, fillvalue=Text()):
        padding = " " * max(column - one.cell_len, 0)
        line = Text(" " * indent) + one + Text(f"{padding} | ", style="dim") + other
        line.rstrip()
        lines.append(line)
    return lines


def emit(console: Console, lines: list[Text]) -> None:
    """Print the lines; characters that the stream cannot encode are escaped."""
    encoding = console.encoding
    for line in lines:
        try:
            line.plain.encode(encoding)
        except UnicodeEncodeError:
            line = Text(line.plain.encode(encoding, "backslashreplace").decode(encoding), style=line.style)  # noqa: PLW2901
        console.print(line, soft_wrap=True)
