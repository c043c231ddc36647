"""Converts times to another clock: moves every time of a capture, or of a part of it, equally. Pure.

A field is a time if its name ends in ``_ns`` (wall clock, nanoseconds), or is ``start_time`` (seconds since the
epoch).
"""

from __future__ import annotations

from array import array
from functools import cache
from typing import TypeVar

from msgspec import inspect

from hangwatch.model.transforms.rewrite import Rewrite, compile_rewrite

_T = TypeVar("_T")
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


def shift(value: _T, by_ns: int) -> _T:
    """Return the value with all times moved by ``by_ns``, by which the other clock is ahead.

    Columns of times are 8 bytes each, signed.
    """

    def change(time: int | float | bytes) -> int | float | bytes:
        if isinstance(time, bytes):
            column = memoryview(time).cast("q")
            return array("q", [min(max(at_ns + by_ns, _LEAST), _MOST) for at_ns in column]).tobytes()
        return time + (by_ns / 1e9 if isinstance(time, float) else by_ns)

    shape: type = type(value)
    shifted: _T = _shifting(shape)(value, change) if by_ns else value
    return shifted


@cache
def _shifting(shape: type) -> Rewrite:
    return compile_rewrite(shape, _is_time)


def _is_time(owner: type, field: str, shape: inspect.Type) -> bool:
    del owner, shape
    return field.endswith("_ns") or field == "start_time"
