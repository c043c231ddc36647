"""Whether all coroutines of an event loop end with their data. Pure.

A task that waits is on no stack. If no coroutine that ``asyncio.run(collect(questions))`` reaches polls for another answer, an
event loop that wakes has moved: only so many answers are still to come.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping, Sequence

from hangwatch.program.iterations import called, ends_early, has_no_end, is_named, names_in, spans, walk
from hangwatch.program.positions import ends_with_its_data

_RUNS = frozenset({"run", "run_until_complete"})
#: Calls whose events come again and again, whatever the tasks do.
_AGAIN = frozenset({"call_later", "call_at", "add_reader", "run_forever", "serve_forever"})
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def run_to_their_end(tree: ast.AST, line: int) -> ast.Call | None:
    """Return the call at a line that runs coroutines of this file, if all of them end with their data; else None."""
    runs = (n for n in ast.walk(tree) if isinstance(n, ast.Call) and n.args and is_named(n, _RUNS))
    call = next((n for n in runs if spans(n, line)), None)
    if call is None:
        return None
    reached = _reached(call, _functions(tree))
    begins = any(isinstance(one, ast.AsyncFunctionDef) for one in reached)
    names = {one.name for one in reached}
    return call if begins and all(_only_ends(one, names) for one in reached) else None


def _functions(tree: ast.AST) -> dict[str, list[_Function]]:
    """Return the functions of a file by name; under the name of a class, its special methods."""
    found: dict[str, list[_Function]] = {}
    for node in ast.walk(tree):
        if isinstance(node, _FUNCTIONS):
            found.setdefault(node.name, []).append(node)
        elif isinstance(node, ast.ClassDef):
            special = {"__init__", "__call__", "__aenter__", "__aexit__", "__aiter__", "__anext__"}
            found.setdefault(node.name, []).extend(
                one for one in node.body if isinstance(one, _FUNCTIONS) and one.name in special
            )
    return found


def _reached(call: ast.Call, functions: Mapping[str, Sequence[_Function]]) -> Collection[_Function]:
    """Return the functions that a call reaches, by every name in it and in them."""
    found: dict[_Function, None] = {}
    rest: list[ast.AST] = [call]
    while rest:
        new = {one: None for name in names_in(rest.pop()) for one in functions.get(name, ()) if one not in found}
        found |= new
        rest.extend(new)
    return found


def _only_ends(function: _Function, reached: Collection[str]) -> bool:
    """True if each loop of a function ends with its data.

    Repeated events do not end, and a stream may not: one that is none of the ``reached`` functions.
    """
    for node in walk(function.body):
        match node:
            case ast.Call() if is_named(node, _AGAIN):
                return False
            case ast.AsyncFor(iter=source) | ast.comprehension(is_async=1, iter=source):
                if not isinstance(source, ast.Call) or called(source) not in reached:
                    return False
            case ast.While() if not ends_with_its_data(node):
                return False
            case ast.For(iter=source):
                # A loop that sleeps and may end early polls.
                sleeps = any(isinstance(n, ast.Call) and called(n) == "sleep" for n in walk(node.body))
                if has_no_end(source) or (sleeps and ends_early(node)):
                    return False
    return True
