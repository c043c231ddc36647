"""Loops that end at a certain time: when, by their condition and the values of its variables. Pure.

``while time.monotonic() < until:`` ends by itself, whatever its body does. So does a loop that polls until a time limit, or that
counts down its sleeps. The values are read and not kept.
"""

from __future__ import annotations

import ast
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from hangwatch.program.iterations import in_every_iteration, is_named, walk

#: Clocks that all processes share, by the functions of ``time`` that read them (CPython on Linux).
_CLOCKS = {"monotonic": time.CLOCK_MONOTONIC, "perf_counter": time.CLOCK_MONOTONIC, "time": time.CLOCK_REALTIME}
#: A time further away than a week is not of this clock.
_FARTHEST_S = 7 * 86400.0


class Deadline(NamedTuple):
    """A loop runs while ``clock - start < end``. ``start`` and ``end`` are names of variables, or numbers (seconds)."""

    clock: int
    end: str | float
    start: str | float = 0.0


class Countdown(NamedTuple):
    """A loop that sleeps for the sum of ``sleeps`` (seconds) in each iteration, and moves ``counter`` by ``step`` to ``limit``.

    ``limit`` and ``sleeps`` are names of variables, or numbers.
    """

    counter: str
    limit: str | float
    step: float
    sleeps: tuple[str | float, ...]


def find_deadlines(body: Sequence[ast.stmt], line: int) -> tuple[Deadline | Countdown, ...]:
    """Return the ends of the loops around a line of a function that have one: by a clock, or by a count of sleeps.

    A count is ``while left > 0:`` with ``sleep(1)`` and ``left -= 1``, or ``for i in range(n):`` with ``sleep(1)``.
    """
    loops = (node for node in walk(body) if isinstance(node, (ast.For, ast.While)))
    around = [one for one in loops if one.lineno <= line <= (one.body[-1].end_lineno or 0)]
    found = (*map(_deadline, around), *map(_countdown, around))
    return tuple(one for one in found if one is not None)


def left_s(ends: Iterable[Deadline | Countdown], values: Mapping[str, str]) -> tuple[float, float] | None:
    """Return in how many seconds the first of these loops ends, and by how much it may end sooner; None if neither is known.

    ``values``: the values of variables, as text.
    """
    known = []
    for one in ends:
        found = _counted_s(one, values) if isinstance(one, Countdown) else _clocked_s(one, values)
        known += [found] if found is not None else []
    first, early = min(known, default=(_FARTHEST_S, 0.0))
    return (max(0.0, first), early) if -_FARTHEST_S < first < _FARTHEST_S else None


def _clocked_s(one: Deadline, values: Mapping[str, str]) -> tuple[float, float] | None:
    end, start = (_number(part, values) for part in (one.end, one.start))
    return (start + end - time.clock_gettime(one.clock), 0.0) if end is not None and start is not None else None


def _counted_s(one: Countdown, values: Mapping[str, str]) -> tuple[float, float] | None:
    """Return when the loop ends at the latest, and how much sooner it may end, both in seconds; None if unknown.

    The loop may be anywhere in its present sleep.
    """
    now, limit, *sleeps = (_number(part, values) for part in (one.counter, one.limit, *one.sleeps))
    if now is None or limit is None or None in sleeps or (rounds := (limit - now) / one.step) < 0:
        return None
    sleep_s = sum(one for one in sleeps if one is not None)
    return (math.ceil(rounds) * sleep_s, sleep_s) if sleep_s > 0 else None


def _countdown(loop: ast.For | ast.While) -> Countdown | None:
    """Return the end by a count of sleeps; None if every iteration has no sleep or no fixed step."""
    sleeps = [one for one in map(_slept, in_every_iteration(loop)) if one is not None]
    match loop.target if isinstance(loop, ast.For) else loop.test, loop:
        case ast.Name(id=counter), ast.For(iter=ast.Call(func=ast.Name(id="range"), args=[right] | [_, right])):
            step, limit = 1.0, _operand(right)
        case ast.Compare(
            left=ast.Name(id=counter), ops=[ast.Gt() | ast.GtE() | ast.Lt() | ast.LtE() as sign], comparators=[right]
        ), _:
            step, limit = _step(loop, counter), _operand(right)
            if not (step < 0 if isinstance(sign, ast.Gt | ast.GtE) else step > 0):
                return None
        case _:
            return None
    return Countdown(counter, limit, step, tuple(sleeps)) if sleeps and limit is not None else None


def _slept(statement: ast.stmt) -> str | float | None:
    """Return how long a statement sleeps (seconds, or the variable); None if it is no sleep."""
    match statement:
        case ast.Expr(value=ast.Call(args=[length]) as call) if is_named(call, {"sleep"}):
            return _operand(length)
    return None


def _step(loop: ast.For | ast.While, counter: str) -> float:
    """Return by how much every iteration moves a variable."""
    step = 0.0
    for statement in in_every_iteration(loop):
        match statement:
            case ast.AugAssign(target=ast.Name(id=name), op=op, value=ast.Constant(value=int() | float() as value)):
                if name == counter and isinstance(op, ast.Add | ast.Sub):
                    step += value if isinstance(op, ast.Add) else -value
    return step


def _number(part: str | float, values: Mapping[str, str]) -> float | None:
    try:
        return float(values[part] if isinstance(part, str) else part)
    except (KeyError, ValueError):
        return None


def _deadline(loop: ast.For | ast.While) -> Deadline | None:
    match loop.test if isinstance(loop, ast.While) else None:
        case ast.Compare(left=left, ops=[ast.Lt() | ast.LtE()], comparators=[right]):
            return _between(left, right)
        case ast.Compare(left=left, ops=[ast.Gt() | ast.GtE()], comparators=[right]):
            return _between(right, left)
    return None


def _between(early: ast.expr, late: ast.expr) -> Deadline | None:
    """Return the end of ``early < late``; None if ``early`` is neither a clock nor the time since a start."""
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
