"""Basic building blocks: untrusted text as one line of Markdown that renders as itself.

Syntax: CommonMark 0.31.2 (spec.commonmark.org) and what GitHub adds to it (github.github.com/gfm, and its mentions, issue
numbers and formulas): whatever a job's text holds, it links nowhere, notifies no one and formats nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from hangwatch.model.numbers import name_guests
from hangwatch.outputs.sanitize import excerpt

_SPECIAL = re.compile(r"[\\`*\[\]<>|~$]|&(?=#?\w+;)|(?<![^\W_])_|_(?![^\W_])")
#: Texts that a renderer turns into a link or a notification, except in code.
_LIVE = re.compile(r"\S*://\S+|\bwww\.\S+|[\w.+/-]*@[\w./-]+|(?:\b[\w./-]+)?#\d+|\bGH-\d+", re.IGNORECASE)
#: Begins a heading, a list, a quotation or a line of code at the beginning of a line.
_BLOCK = re.compile(r"([#+=-]|\d+(?=[.)]))")
_NAME = re.compile(r"[^\w./: -]")


def code(foreign: str, limit: int) -> str:
    """Return untrusted text as a code span; empty for empty text."""
    shown = excerpt(foreign, limit).strip()
    if not shown:
        return ""
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", shown)), default=0))
    blank = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{fence}{blank}{shown}{blank}{fence}"


def prose(foreign: str, limit: int) -> str:
    """Return untrusted text on one line; words between backticks become code, as on the cause pages."""
    shown = excerpt(foreign, limit).strip()
    parts = shown.split("`")
    if len(parts) % 2 == 0:  # an unpaired backtick: all of them are taken literally
        return _plain(shown, limit, first=True)
    return "".join(
        code(part, limit) if odd % 2 else _plain(part, limit, first=not odd) for odd, part in enumerate(parts)
    )


def _plain(shown: str, limit: int, *, first: bool) -> str:
    """Return escaped text that is no code. ``first``: it may begin a line."""
    pieces: list[str] = []
    at = 0
    for found in _LIVE.finditer(shown):
        pieces += [_escape(shown[at : found.start()]), code(found[0], limit)]
        at = found.end()
    text = "".join((*pieces, _escape(shown[at:])))
    return _BLOCK.sub(_escape_block, text, count=1) if first and _BLOCK.match(text) else text


def _escape(text: str) -> str:
    return _SPECIAL.sub(lambda found: f"\\{found[0]}", text)


def _escape_block(found: re.Match[str]) -> str:
    return f"{found[0]}\\" if found[0].isdigit() else f"\\{found[0]}"


def listing(items: Iterable[str], most: int, *, numbered: bool = False) -> list[str]:
    """Return at most ``most`` items, one per line, and a line that says how many more there are."""
    entries = list(items)
    lines = [f"{number}. {item}" if numbered else f"- {item}" for number, item in enumerate(entries[:most], 1)]
    return [*lines, f"- and {len(entries) - most} more in `incident.json`"] if len(entries) > most else lines


def section(title: str, lines: Iterable[str]) -> list[str]:
    """Return a heading and its lines; nothing if there are no lines."""
    content = list(lines)
    return ["", f"### {title}", "", *content] if content else []


def fold(title: str, lines: Iterable[str]) -> list[str]:
    """Return a section that is collapsed until it is opened; nothing if there are no lines."""
    content = list(lines)
    return ["", f"<details><summary>{title}</summary>", "", *content, "", "</details>"] if content else []


def with_names(markdown: str, names: Mapping[int, str]) -> str:
    """Return the text with processes of other worlds replaced by their names."""
    return (
        name_guests(markdown, {number: _NAME.sub("_", name) for number, name in names.items()}) if names else markdown
    )
