"""How answers stay small: pages of lists, and text on one line. Pure."""

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


def groups_first(groups: Iterable[_T], unfinished: Callable[[_T], bool]) -> list[_T]:
    """As many groups as an answer may hold; those with operations that have not completed first."""
    return sorted(groups, key=lambda one: not unfinished(one))[:_GROUPS]


def label(foreign: str) -> str:
    """The same, cut to be one of many: a group's name, a variable."""
    return excerpt(foreign, _LABEL_CHARACTERS)


def ranks(numbers: Iterable[int]) -> str:
    """A set of ranks as text."""
    return short_ranks(tuple(numbers))
