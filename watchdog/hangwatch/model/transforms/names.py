"""Replaces guests' numbers by their names, in every text of a struct. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TypeVar

from msgspec import inspect

from hangwatch.model.capture import Capture
from hangwatch.model.numbers import name_guests
from hangwatch.model.transforms.rewrite import Rewrite, compile_rewrite

_T = TypeVar("_T")


def names_of(capture: Capture) -> dict[int, str]:
    """Return the names of a job's guests, by number."""
    return {rank.rank: rank.identity.name for rank in capture.ranks if rank.identity.name}


def with_names(value: _T, names: Mapping[int, str]) -> _T:
    """Return the value with guests named in its texts; unchanged if there are none."""
    shape: type = type(value)
    named: _T = _naming(shape)(value, lambda text: name_guests(text, names)) if names else value
    return named


@cache
def _naming(shape: type) -> Rewrite:
    return compile_rewrite(shape, _is_text)


def _is_text(owner: type, field: str, shape: inspect.Type) -> bool:
    del owner, field
    return isinstance(shape, inspect.StrType)
