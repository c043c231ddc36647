"""What a condition's variables held on both sides of a fork. Pure.

Only what the source says is compared: a condition whose outcome on either side is not known, or is not the one that the fork
shows, is left alone. Its variables may have changed since.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hangwatch.analysis.divergence.iterations import LOOPS, around
from hangwatch.analysis.divergence.relate import Fork, Side
from hangwatch.analysis.places import function_of
from hangwatch.analysis.situation import Situation
from hangwatch.model.stacks import Block, Frame
from hangwatch.program.lines import header_of, names_rank

_VALUE = re.compile(r"(?:int=(?P<int>-?\d+)|bool=(?P<bool>True|False)|str\((?P<str>\d+)\)|(?P<none>None))")
_CONTAINER = re.compile(r"(?:list|tuple|dict)\[(?P<items>.*)\]?", re.DOTALL)
_TYPE = re.compile(r"[A-Za-z_]\w*")
_COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not,
}  # fmt: skip
_ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Mod: operator.mod,
    ast.FloorDiv: operator.floordiv,
}  # fmt: skip


@dataclass(frozen=True)
class DecidingValue:
    """A variable that a condition names, and what it holds: by rank, as people read it (``0``, ``True``, ``empty``)."""

    name: str
    held: Mapping[int, str]


class _UnknownError(Exception):
    """The outcome depends on something that was not read."""


@dataclass(frozen=True)
class _Sized:
    """A text or container of which only the length was read, or only that it is not empty (None)."""

    length: int | None

    def __bool__(self) -> bool:
        return self.length != 0


@dataclass(frozen=True)
class _Opaque:
    """Something that is not None; more is not known of it."""

    def __bool__(self) -> bool:
        raise _UnknownError

    def __eq__(self, other: object) -> bool:
        raise _UnknownError

    __hash__ = None  # type: ignore[assignment]


def deciding_values(case: Situation, fork: Fork) -> tuple[DecidingValue, ...]:
    """Return the variables of a fork's condition whose values differ between its sides and explain where each side went."""
    block, (inside, outside) = fork.block, fork.sides
    one = around(inside.path, block) if block is not None else None
    other = _same_function(outside, one)
    if block is None or one is None or other is None or one.locals is None or other.locals is None:
        return ()
    if block.kind == "for":
        expression = _header(block, "range")
        explains = expression is not None and _has_more_rounds(expression, one, other)
    else:
        header, holds = header_of(block), block.kind not in {"else", "guard"}
        expression = header.tree if header.word != "for" else None
        found = [_outcome(expression, frame) for frame in (one, other)] if expression is not None else []
        explains = found == [holds, not holds]
    if expression is None or not explains:
        return ()
    # The rank itself and the iteration differ anyway: they explain nothing.
    rounds = _loop_variables(inside) | _loop_variables(outside)
    named = (n.id for n in ast.walk(expression) if isinstance(n, ast.Name))
    names = dict.fromkeys(name for name in named if name not in rounds and not names_rank(f"{name} == 0"))
    return tuple(v for n in names if (v := _compare(case, n, (inside.rank, one), (outside.rank, other))) is not None)


def _compare(case: Situation, name: str, one: tuple[int, Frame], other: tuple[int, Frame]) -> DecidingValue | None:
    """Return a variable's values on both sides and on all ranks in the same lines; None if they do not differ."""
    mine, theirs = (_show(f, name) for _, f in (one, other))
    if mine is None or theirs is None or mine == theirs:
        return None
    held = {one[0]: mine, other[0]: theirs}
    for rank, view in case.views.items():
        alike = (f for f in view.frames for _, g in (one, other) if (f.file, f.line) == (g.file, g.line))
        shown = next((s for f in alike if (s := _show(f, name)) is not None), None)
        if rank not in held and shown is not None:
            held[rank] = shown
    return DecidingValue(name, held)


def _loop_variables(side: Side) -> set[str]:
    """Return the variables and counters of the loops around a side."""
    loops = [b for f in side.path for b in f.blocks if b.kind in LOOPS]
    bound = {name for b in loops for name in header_of(b).binds}
    return bound | {b.iterations.counter for b in loops if b.iterations is not None}


def _same_function(side: Side, frame: Frame | None) -> Frame | None:
    """Return the frame of a side in the function of another frame; None if there is none."""
    return next((f for f in side.path if frame is not None and function_of(f) == function_of(frame)), None)


def _header(block: Block, *functions: str) -> ast.expr | None:
    """Return what a loop goes over if that is a call of one of these functions, else None."""
    header = header_of(block)
    return header.tree if header.over.partition("(")[0] in functions else None


def _has_more_rounds(expression: ast.expr, inside: Frame, past: Frame) -> bool:
    """True if the side in the loop has more iterations of it."""
    more, fewer = (_iterations(expression, frame) for frame in (inside, past))
    return more is not None and fewer is not None and more > fewer


def fewer_iterations(loop: Block, inside: Frame, past: Frame, count: int, last: int) -> int | None:
    """Return how many iterations fewer the side past a loop has begun; ``last`` is its counter, ``count`` that of the other.

    None if it is not known at which number one of them has begun.
    """
    expression = _header(loop, "range", "enumerate")
    first, their_first = (_start(expression, frame) for frame in (inside, past))
    if first is None or their_first is None:
        return None
    if _is_enumerate(expression):
        return (count - first) - (last - their_first)
    # A range has the same end on both sides: the one that begins later has fewer iterations in all.
    return their_first - first or count - last


def _start(expression: ast.expr | None, frame: Frame) -> int | None:
    """Return the first number of ``range(FIRST, END)`` or ``enumerate(.., FIRST)``: 0 if not given, None if not known."""
    if not isinstance(expression, ast.Call):
        return 0
    given = [k.value for k in expression.keywords if k.arg == "start"]
    if len(expression.args) > 1:
        given = [expression.args[_is_enumerate(expression)]]
    if not given:
        return 0
    try:
        return int(_evaluate(given[0], frame.locals or {}))
    except (_UnknownError, TypeError, ValueError, ArithmeticError):
        return None


def _is_enumerate(header: ast.expr | None) -> bool:
    return isinstance(header, ast.Call) and isinstance(header.func, ast.Name) and header.func.id == "enumerate"


def _iterations(expression: ast.expr, frame: Frame) -> int | None:
    if not isinstance(expression, ast.Call) or expression.keywords or not expression.args:
        return None
    try:
        bounds = [_evaluate(a, frame.locals or {}) for a in expression.args]
        return len(range(*bounds))
    except (_UnknownError, TypeError, ValueError, OverflowError):
        return None


def _outcome(test: ast.expr, frame: Frame) -> bool | None:
    """Return what a condition comes to with a frame's variables; None if that is not known."""
    try:
        return bool(_evaluate(test, frame.locals or {}))
    except (_UnknownError, TypeError, ValueError, ArithmeticError):
        return None


def _evaluate(node: ast.expr, held: Mapping[str, str]) -> Any:
    """Return the value of an expression. Raise ``_UnknownError``, and what its operators raise."""
    match node:
        case ast.Constant(value=int() | bool() | None as value):
            return value
        case ast.Name(id=name):
            return _value(held.get(name, ""))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not _evaluate(operand, held)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_evaluate(operand, held)
        case ast.BoolOp(op=op, values=values):
            return _either(values, held, isinstance(op, ast.Or))
        case ast.Compare(
            left=ast.Call(func=ast.Name(id="len"), args=[inner]), ops=[op], comparators=[ast.Constant(value=0)]
        ):
            sized = _evaluate(inner, held)
            if isinstance(sized, _Sized) and type(op) in _COMPARISONS:
                return _COMPARISONS[type(op)](sized.length if sized.length is not None else 1, 0)
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARISONS:
            return _COMPARISONS[type(op)](_evaluate(left, held), _evaluate(right, held))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            return _ARITHMETIC[type(op)](_evaluate(left, held), _evaluate(right, held))
        case ast.Call(func=ast.Name(id="len"), args=[inner], keywords=[]):
            sized = _evaluate(inner, held)
            if isinstance(sized, _Sized) and sized.length is not None:
                return sized.length
    raise _UnknownError


def _either(values: list[ast.expr], held: Mapping[str, str], wanted: bool) -> bool:
    """Return the outcome of ``or`` (``wanted``) or ``and``: one known part may decide alone. Raise ``_UnknownError``."""
    unknown = False
    for value in values:
        try:
            if bool(_evaluate(value, held)) is wanted:
                return wanted
        except _UnknownError:
            unknown = True
    if unknown:
        raise _UnknownError
    return not wanted


def _value(described: str) -> object:
    """Return what a description tells of a value. Raise ``_UnknownError`` if it tells nothing."""
    items = _CONTAINER.fullmatch(described)
    if items is not None:
        return _Sized(None if items["items"].strip("]") else 0)
    found = _VALUE.fullmatch(described)
    if found is None:
        if _TYPE.match(described) is None:
            raise _UnknownError
        return _Opaque()
    if found["int"] is not None:
        return int(found["int"])
    if found["bool"] is not None:
        return found["bool"] == "True"
    return _Sized(int(found["str"])) if found["str"] is not None else None


def _show(frame: Frame, name: str) -> str | None:
    """Return a variable's value for people, or its type if no more is known; None if it was not read."""
    described = (frame.locals or {}).get(name, "")
    try:
        value = _value(described)
    except _UnknownError:
        return None
    if isinstance(value, _Sized) and not value:
        return "empty"
    if isinstance(value, (_Sized, _Opaque)):
        kind = _TYPE.match(described)
        return f"{'an' if described[:1].lower() in 'aeiou' else 'a'} {kind.group()}" if kind is not None else None
    return str(value)
