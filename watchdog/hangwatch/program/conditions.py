"""Which variables of a function its conditions name. Pure.

Why a rank went another way than the others is often a small number: that of one of these variables. No other variable of the
program keeps its value.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def find_deciders(body: Sequence[ast.stmt]) -> frozenset[str]:
    """The variables named by the conditions in the body of a function, and by the bounds of its loops over ``range``.

    A name of which only an attribute or an item is asked, or that is called, is none: its own value decides nothing.
    """
    return frozenset(name for test in _tests(body) for name in _names(test))


def _tests(body: Sequence[ast.stmt]) -> Iterator[ast.expr]:
    """The expressions that decide which way the function goes."""
    rest: list[ast.AST] = list(body)
    while rest:
        node = rest.pop()
        match node:
            case ast.If() | ast.While() | ast.IfExp():
                yield node.test
            case ast.BoolOp():
                yield from node.values[:-1]
            case ast.Match():
                yield node.subject
            case ast.For(iter=ast.Call(func=ast.Name(id="range"), args=args)):
                yield from args
        if not isinstance(node, _SCOPES):
            rest.extend(ast.iter_child_nodes(node))


def _names(node: ast.AST) -> Iterator[str]:
    """The variables in an expression whose own value it asks for."""
    if isinstance(node, ast.Name):
        yield node.id
        return
    held = {"func", "value"} if isinstance(node, (ast.Call, ast.Attribute, ast.Subscript)) else set()
    for field, value in ast.iter_fields(node):
        parts = value if isinstance(value, list) else [value]
        for part in parts:
            if isinstance(part, ast.AST) and not (field in held and isinstance(part, ast.Name)):
                yield from _names(part)
