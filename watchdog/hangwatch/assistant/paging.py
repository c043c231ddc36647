"""How answers stay small: pages of lists, and text on one line. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from hangwatch.model.text import short_ranks
from hangwatch.outputs.sanitize import excerpt

#: Entries of a page, however many are asked for.
MAX_LIMIT = 50
_CHARACTERS = 600
_T = TypeVar("_T")


def page(items: Sequence[_T], offset: int, limit: int) -> tuple[tuple[_T, ...], int | None]:
    """The entries from ``offset`` on, at most ``limit`` of them, and the offset of the next page."""
    start = max(offset, 0)
    end = start + min(max(limit, 1), MAX_LIMIT)
    return tuple(items[start:end]), end if end < len(items) else None


def line(foreign: str) -> str:
    """Untrusted text on one line, cut where it is long."""
    return excerpt(foreign, _CHARACTERS)


def lines(foreign: Iterable[str]) -> tuple[str, ...]:
    """The same of several."""
    return tuple(line(one) for one in foreign)


def ranks(numbers: Iterable[int]) -> str:
    """A set of ranks as text."""
    return short_ranks(tuple(numbers))
