"""Which variables the conditions of a function name. Pure.

The reason why a rank took another way is often a small number in one of these variables. Captures keep no other value.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from hangwatch.program.iterations import walk


def find_deciders(body: Sequence[ast.stmt]) -> frozenset[str]:
    """Return the variables in the conditions of a function, and in the bounds of its loops over ``range``.

    Left out are names of which only an attribute, an item or a call counts: their own value decides nothing.
    """
    return frozenset(name for test in _tests(body) for name in _names(test))


def _tests(body: Sequence[ast.stmt]) -> Iterator[ast.expr]:
    """Yield the expressions that decide which way the function takes."""
    for node in walk(body):
        match node:
            case ast.If() | ast.While() | ast.IfExp():
                yield node.test
            case ast.BoolOp():
                yield from node.values[:-1]
            case ast.Match():
                yield node.subject
            case ast.For(iter=ast.Call(func=ast.Name(id="range"), args=args)):
                yield from args


def _names(node: ast.AST) -> Iterator[str]:
    """Yield the variables in an expression whose own value counts."""
    if isinstance(node, ast.Name):
        yield node.id
        return
    held = {"func", "value"} if isinstance(node, (ast.Call, ast.Attribute, ast.Subscript)) else set()
    for field, value in ast.iter_fields(node):
        parts = value if isinstance(value, list) else [value]
        for part in parts:
            if isinstance(part, ast.AST) and not (field in held and isinstance(part, ast.Name)):
                yield from _names(part)
