"""Keeps answers small: pages of lists, and text on one line. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from hangwatch.model.text import short_ranks
from hangwatch.outputs.sanitize import excerpt

#: Entries of a page, however many are asked for.
MAX_LIMIT = 50
_CHARACTERS = 600
#: Groups of a rank or of two: a rank of a large job is in dozens.
_GROUPS = 6
#: Of what is one of many in an answer.
_LABEL_CHARACTERS = 100
_T = TypeVar("_T")


def page(items: Sequence[_T], offset: int, limit: int) -> tuple[tuple[_T, ...], int | None]:
    """Return at most ``limit`` items from ``offset`` on, and the offset of the next page (None on the last one)."""
    start = max(offset, 0)
    end = start + min(max(limit, 1), MAX_LIMIT)
    return tuple(items[start:end]), end if end < len(items) else None


def line(foreign: str) -> str:
    """Return untrusted text on one line, shortened if long."""
    return excerpt(foreign, _CHARACTERS)


def lines(foreign: Iterable[str]) -> tuple[str, ...]:
    """Return untrusted texts, each on one line and shortened if long."""
    return tuple(line(one) for one in foreign)


def groups_first(groups: Iterable[_T], unfinished: Callable[[_T], bool]) -> list[_T]:
    """Return as many groups as an answer may hold, those with unfinished operations first."""
    return sorted(groups, key=lambda one: not unfinished(one))[:_GROUPS]


def label(foreign: str) -> str:
    """Return a short untrusted text on one line: a group's name, a variable."""
    return excerpt(foreign, _LABEL_CHARACTERS)


def ranks(numbers: Iterable[int]) -> str:
    """Return a set of ranks as text."""
    return short_ranks(tuple(numbers))
