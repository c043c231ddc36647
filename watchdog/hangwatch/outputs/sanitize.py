"""Sanitizes untrusted text from a job for terminals, text files and labels. Pure; imports nothing from this package.

Job names, paths, command lines and names of locals are untrusted: an escape sequence could repaint the terminal, and a
bidirectional override could reverse a line.
"""

from __future__ import annotations

import re
import unicodedata

_BREAKS = re.compile(r"[\t\n\v\f\r\x85\u2028\u2029]+")
#: Control, format (bidirectional overrides, zero-width) and lone surrogate characters; joiners of emoji are kept.
_UNSAFE_CATEGORIES = frozenset({"Cc", "Cf", "Cs"})
_KEPT = frozenset("\u200d\u200c")
#: Longer than any real source line; a line of a megabyte must not hide the verdict.
MAX_CHARACTERS = 2000


def _escape(character: str) -> str:
    return character.encode("unicode_escape", "backslashreplace").decode("ascii")


def clean(text: str) -> str:
    """Return ``text`` on one line: line breaks and tabs become a space, unsafe characters their escape (``\\x1b``)."""
    if text.isascii() and text.isprintable():
        return text
    joined = _BREAKS.sub(" ", text)
    return "".join(
        _escape(c) if unicodedata.category(c) in _UNSAFE_CATEGORIES and c not in _KEPT else c for c in joined
    )


def excerpt(text: str, limit: int = MAX_CHARACTERS) -> str:
    """Return the beginning of ``text`` as ``clean`` returns it, with `` ...`` if it is truncated."""
    return clean(text) if len(text) <= limit else clean(text[:limit]) + " ..."
