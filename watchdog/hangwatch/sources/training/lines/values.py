"""Words of a log line as numbers. Pure; standard library only."""

from __future__ import annotations

import re

#: Escape sequences of colours and cursors (ECMA-48 CSI).
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
#: A number as programs print it; also what is none: ``nan``, ``inf``, ``-Infinity``, and the ``nan.0`` and ``-inf.`` of
#: Lightning, which pads everything to five letters (2.6.6, ``progress/tqdm_progress.py``, ``Tqdm.format_num``).
NUMBER = r"[-+]?(?:\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|(?:nan|inf(?:inity)?)(?:\.0?)?)"
_NUMBER = re.compile(NUMBER, re.IGNORECASE)


def strip_colours(line: str) -> str:
    """The line as it reads."""
    return _ANSI.sub("", line) if "\x1b" in line else line


def parse_number(word: str) -> float | None:
    """The number a word is, None if it is none; NaN and infinities are numbers."""
    if len(word) > 64 or not _NUMBER.fullmatch(word):
        return None
    return float(word.rstrip(".0") if "n" in word.lower() else word)


def parse_count(word: str) -> int | None:
    """A whole number of a size that steps can have."""
    return int(word) if len(word) <= 12 and word.isascii() and word.isdigit() else None


def keep_words(name: str, word: str) -> dict[str, str]:
    """The word as a text of a step, where it tells more than its number: a zero, no finite number, or one in quotes."""
    number = parse_number(word.strip("'\" "))
    return {name: word} if number is None or not number or number - number != 0 or word[:1] in "'\"" else {}
