"""Text of a job made harmless."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangwatch.outputs.sanitize import clean


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("train.py", "train.py"),
        ("größe 日本 🚀", "größe 日本 🚀"),
        ("\x1b[2J\x1b]0;owned\x07", "\\x1b[2J\\x1b]0;owned\\x07"),
        ("\x9b31m", "\\x9b31m"),
        ("a\r\nb\tc\u2028d", "a b c d"),
        ("evil\u202etxt.exe", "evil\\u202etxt.exe"),
        ("path-\udcff", "path-\\udcff"),
        ("[bold red]markup[/]", "[bold red]markup[/]"),
    ],
)
def test_what_could_move_a_terminal_is_written_out(text: str, shown: str) -> None:
    """Escapes, control characters, bidirectional overrides and broken text are shown, honest text is kept."""
    assert clean(text) == shown


@given(st.text(st.characters(codec=None)))
def test_clean_text_is_one_encodable_line_and_stays_clean(text: str) -> None:
    """Whatever goes in, one line of encodable text without control characters comes out, and a second pass is idle."""
    out = clean(text)
    out.encode("utf-8")
    assert len(out.splitlines()) <= 1
    assert not any(unicodedata.category(c) in {"Cc", "Cs"} for c in out)
    assert clean(out) == out
