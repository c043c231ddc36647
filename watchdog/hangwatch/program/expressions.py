"""The calls in a line of source: which may be left out, and which are arguments of others. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from typing import Literal

from hangwatch.program.iterations import called

_When = Literal["always", "first", "partly"]

#: Functions that stop at the first item that decides.
_STOPPING = frozenset({"any", "all", "next"})


def is_called_in_part(line: str, callee: str) -> bool:
    """True if the line may leave out a call because of what comes before it: ``a() and f()``, ``f() if a() else 0``.

    ``callee`` is the name of the function that runs, which the line may know by another one (an argument, a closure).
    """
    tree = _parse(line)
    if tree is None:
        return False
    if callee == "<genexpr>":
        return any(isinstance(node, ast.Call) and called(node) in _STOPPING for node in ast.walk(tree))
    found: dict[_When, set[str]] = {"always": set(), "first": set(), "partly": set()}
    for name, when in _calls(tree, "always"):
        found[when].add(name)
    if any(callee in names for names in found.values()):
        return callee in found["partly"] and callee not in found["always"] | found["first"]
    return bool(found["partly"]) and not found["always"]


def arguments_of_calls(line: str) -> set[tuple[str, str]]:
    """Return each pair of a function that is called in this line and one that is called within its arguments, by name."""
    tree = _parse(line)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)] if tree is not None else []
    inner = ((outer, node) for outer in calls for node in ast.walk(outer) if node is not outer)
    return {(called(outer), called(node)) for outer, node in inner if isinstance(node, ast.Call)}


@lru_cache(maxsize=1024)  # the same few are asked for again and again
def _parse(line: str) -> ast.AST | None:
    """Return the line as a statement, a header without its suite; None for a part of a statement over several lines."""
    line = line.strip()
    for text in (line, f"{line.removeprefix('el')} pass"):
        try:
            return ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
    return None


def _calls(node: ast.AST, when: _When) -> Iterator[tuple[str, _When]]:
    """Yield the names of called functions, with when each is called: always, to decide, or depending on that."""
    if isinstance(node, ast.Call):
        yield called(node), when
    parts: list[tuple[ast.AST, _When]] = [(part, when) for part in ast.iter_child_nodes(node)]
    if isinstance(node, ast.IfExp):
        parts = [(node.test, "first"), (node.body, "partly"), (node.orelse, "partly")]
    elif isinstance(node, ast.BoolOp):
        parts = [(node.values[0], "first"), *((part, "partly") for part in node.values[1:])]
    for part, then in parts:
        yield from _calls(part, "partly" if when == "partly" else then)
