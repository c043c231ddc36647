"""Converts words of a log line to numbers. Pure; standard library only."""

from __future__ import annotations

import re

#: Escape sequences of colours and cursors (ECMA-48 CSI).
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
#: A number as programs print it; also what is none: ``nan``, ``inf``, ``-Infinity``, and the ``nan.0`` and ``-inf.`` of
#: Lightning, which pads everything to five letters (2.6.6, ``progress/tqdm_progress.py``, ``Tqdm.format_num``).
NUMBER = r"[-+]?(?:\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|(?:nan|inf(?:inity)?)(?:\.0?)?)"
_NUMBER = re.compile(NUMBER, re.IGNORECASE)


def strip_colours(line: str) -> str:
    """Return the line without colour codes."""
    return _ANSI.sub("", line) if "\x1b" in line else line


def parse_number(word: str) -> float | None:
    """Return the number in a word, which may be NaN or infinite; None if it is no number."""
    if len(word) > 64 or not _NUMBER.fullmatch(word):
        return None
    return float(word.rstrip(".0") if "n" in word.lower() else word)


def parse_count(word: str) -> int | None:
    """Return a whole number as large as a step can be; else None."""
    return int(word) if len(word) <= 12 and word.isascii() and word.isdigit() else None


def keep_words(name: str, word: str) -> dict[str, str]:
    """Return the word as text if it tells more than its number: a zero, a non-finite number, or one in quotes."""
    number = parse_number(word.strip("'\" "))
    return {name: word} if number is None or not number or number - number != 0 or word[:1] in "'\"" else {}
