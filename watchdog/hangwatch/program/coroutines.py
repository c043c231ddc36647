"""What runs in an event loop that a line starts, and whether it only ends with its data. Pure.

Tasks are on no stack while they wait. But where none of the coroutines that ``asyncio.run(collect(questions))`` comes to goes
round a loop until an answer is another, an event loop that wakes has got on: there are only so many answers to come.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping, Sequence

from hangwatch.program.iterations import called, ends_early, has_no_end, is_named, names_in, spans, walk
from hangwatch.program.positions import ends_with_its_data

_RUNS = frozenset({"run", "run_until_complete"})
#: What comes again and again, whatever the tasks do.
_AGAIN = frozenset({"call_later", "call_at", "add_reader", "run_forever", "serve_forever"})
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def run_to_their_end(tree: ast.AST, line: int) -> ast.Call | None:
    """The call at a line of a file that runs coroutines of it, all of which end with their data; None if any may go on."""
    runs = (n for n in ast.walk(tree) if isinstance(n, ast.Call) and n.args and is_named(n, _RUNS))
    call = next((n for n in runs if spans(n, line)), None)
    if call is None:
        return None
    reached = _reached(call, _functions(tree))
    begins = any(isinstance(one, ast.AsyncFunctionDef) for one in reached)
    names = {one.name for one in reached}
    return call if begins and all(_only_ends(one, names) for one in reached) else None


def _functions(tree: ast.AST) -> dict[str, list[_Function]]:
    """The functions of a file by their names; a class's name is that of what an instance of it is called for."""
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
    """The functions that a call comes to, by every name in it and in them."""
    found: dict[_Function, None] = {}
    rest: list[ast.AST] = [call]
    while rest:
        new = {one: None for name in names_in(rest.pop()) for one in functions.get(name, ()) if one not in found}
        found |= new
        rest.extend(new)
    return found


def _only_ends(function: _Function, reached: Collection[str]) -> bool:
    """Whether each loop of a function ends with its data, and nothing in it comes again and again; as a stream may do, which is
    not one of the functions that were ``reached``."""
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
                # One that sleeps, and may end before its data, asks until the answer is another.
                sleeps = any(isinstance(n, ast.Call) and called(n) == "sleep" for n in walk(node.body))
                if has_no_end(source) or (sleeps and ends_early(node)):
                    return False
    return True
