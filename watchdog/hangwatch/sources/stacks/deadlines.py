"""Loops that go on until a time: when they end, by their condition and what its variables hold. Pure.

``while time.monotonic() < until:`` ends by itself, whatever its body does, and so does one that polls until a time limit. What
variables hold is looked at, and not kept.
"""

from __future__ import annotations

import ast
import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from hangwatch.model.stacks import Block

#: Clocks that all processes share, by the functions of ``time`` that read them (CPython on Linux).
_CLOCKS = {"monotonic": time.CLOCK_MONOTONIC, "perf_counter": time.CLOCK_MONOTONIC, "time": time.CLOCK_REALTIME}
#: Ends further away than a week are no times of this clock.
_FARTHEST_S = 7 * 86400.0


class Deadline(NamedTuple):
    """A loop goes on while the clock is below ``end``, or while it is less than ``end`` past ``start``: names, or numbers."""

    clock: int
    end: str | float
    start: str | float = 0.0


def find_deadlines(blocks: Iterable[Block]) -> tuple[Deadline, ...]:
    """Those of the loops around a line, outermost first."""
    found = (_parse(block.text) for block in blocks if block.kind == "while")
    return tuple(one for one in found if one is not None)


def left_s(deadlines: Iterable[Deadline], values: Mapping[str, str]) -> float | None:
    """In how many seconds the first of these loops ends that does; None where that is not known.

    ``values``: what variables hold, as numbers are written.
    """
    known = []
    for one in deadlines:
        end, start = (_number(part, values) for part in (one.end, one.start))
        if end is not None and start is not None:
            known.append(start + end - time.clock_gettime(one.clock))
    return max(0.0, min(known)) if known and -_FARTHEST_S < min(known) < _FARTHEST_S else None


def _number(part: str | float, values: Mapping[str, str]) -> float | None:
    try:
        return float(values[part] if isinstance(part, str) else part)
    except (KeyError, ValueError):
        return None


def _parse(text: str) -> Deadline | None:
    try:
        test = ast.parse(text.removeprefix("while ").removesuffix(":"), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    match test:
        case ast.Compare(left=left, ops=[ast.Lt() | ast.LtE()], comparators=[right]):
            return _between(left, right)
        case ast.Compare(left=left, ops=[ast.Gt() | ast.GtE()], comparators=[right]):
            return _between(right, left)
    return None


def _between(early: ast.expr, late: ast.expr) -> Deadline | None:
    """The clock, or what has passed of it, below a limit."""
    end = _operand(late)
    if end is None:
        return None
    match early:
        case ast.BinOp(left=left, op=ast.Sub(), right=right):
            clock, start = _clock(left), _operand(right)
            return Deadline(clock, end, start) if clock is not None and start is not None else None
    clock = _clock(early)
    return Deadline(clock, end) if clock is not None else None


def _clock(node: ast.expr) -> int | None:
    match node:
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name), args=[], keywords=[]):
            return _CLOCKS.get(name)
    return None


def _operand(node: ast.expr) -> str | float | None:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Constant(value=int() | float() as value):
            return float(value)
    return None
