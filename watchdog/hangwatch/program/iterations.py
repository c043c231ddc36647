"""Which variables of a function count the iterations of its loops, and nothing else. Pure.

The iteration that a rank is in tells a skipped iteration from data that ended early. Like a sequence number, it is a position and
not a value of the program.
"""

from __future__ import annotations

import ast
from collections.abc import Container, Iterator, Sequence

from hangwatch.model.stacks import Iterations

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_FOR = (ast.For, ast.AsyncFor)
_LOOPS = (*_FOR, ast.While)
_Loop = ast.For | ast.AsyncFor | ast.While
#: Progress bars: they go through an iterable unchanged.
_BARS = ("tqdm", "trange", "progress", "track")
#: Iterables without an end.
_ENDLESS = frozenset({"count", "cycle", "repeat"})
#: Calls of a loop that only passes the time.
_PASTIMES = frozenset(
    {"sleep", "print", "time", "monotonic", "perf_counter", "debug", "info", "warning", "flush", "wait"}
)


def find_counters(body: Sequence[ast.stmt]) -> dict[int, Iterations]:
    """Return what counts the iterations of the loops in the body of a function, by the line of the loop.

    It is the variable of ``enumerate``, of ``range`` without a step, of ``count``, or of a bar around them; or that of a
    ``step += 1`` that every iteration runs. A variable that the function also uses otherwise is no counter.
    """
    loops: list[_Loop] = []
    bound: dict[str, list[int]] = {}
    constants: set[tuple[str, int]] = set()
    own: set[int] = set()
    for node in walk(body):
        match node:
            case ast.Assign(targets=[ast.Name(id=variable)], value=ast.Constant()):
                constants.add((variable, node.lineno))
        if isinstance(node, _LOOPS):
            loops.append(node)
        elif isinstance(node, ast.comprehension):
            own.update(map(id, ast.walk(node.target)))  # a comprehension's variables are of its own scope
        elif isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)) and id(node) not in own:
            bound.setdefault(node.id, []).append(node.lineno)
    found = {}
    for loop in loops:
        name = _counted(loop.target, loop.iter) if isinstance(loop, _FOR) else None
        if isinstance(name, ast.Name):
            if len(bound[name.id]) == 1:
                found[loop.lineno] = _iterations(loop, name.id, loop.lineno)
        elif (step := _step_of(loop)) is not None:
            # It has been set to begin with, and nothing else is done to it.
            others = [line for line in bound[step[0]] if line != step[1]]
            if others and all(line < loop.lineno for line in others):
                resumed = not constants.issuperset((step[0], line) for line in others)
                found[loop.lineno] = _iterations(loop, *step, resumed=resumed)
    return found


def _iterations(loop: _Loop, counter: str, line: int, *, resumed: bool = False) -> Iterations:
    breaks = ends_early(loop, counter)
    bounded = not breaks and _ends_by_number(loop, counter) and acts(loop.body)
    return Iterations(counter, line, breaks, bounded, resumed)


def _ends_by_number(loop: _Loop, counter: str) -> bool:
    """True if the number of iterations is known: of an iterable with an end, or by a limit that the counter is compared with."""
    if not isinstance(loop, ast.While):
        return not has_no_end(loop.iter)
    match loop.test:
        case ast.Compare(left=left, comparators=[right]):
            calls = any(isinstance(n, ast.Call) and not is_named(n, {"len"}) for n in ast.walk(loop.test))
            return not calls and any(isinstance(n, ast.Name) and n.id == counter for n in (left, right))
    return False


def has_no_end(iterable: ast.expr) -> bool:
    """True if an iterable has no end, or ends with the answer that the loop waits for."""
    calls = (n for n in ast.walk(iterable) if isinstance(n, ast.Call))
    return asks_until(iterable) or any(is_named(n, _ENDLESS) for n in calls)


def asks_until(iterable: ast.expr) -> bool:
    """True if a loop asks until it gets a certain answer: ``iter(ask, "done")``.

    With an empty answer (``iter(tasks.get, None)``) it goes through what there is.
    """
    calls = (n for n in ast.walk(iterable) if isinstance(n, ast.Call) and is_named(n, {"iter"}) and len(n.args) > 1)
    return any(not isinstance(n.args[1], ast.Constant) or bool(n.args[1].value) for n in calls)


def acts(body: Sequence[ast.stmt]) -> bool:
    """True if every iteration does something: a call other than a sleep, the clock or a message; or a value that others can see
    (``progress["done"] = n``)."""
    for statement in body:
        if isinstance(statement, (ast.Try, ast.With, ast.AsyncWith, *_LOOPS)):
            if acts(statement.body):
                return True
        elif isinstance(statement, (ast.Expr, ast.Assign, ast.AnnAssign, ast.AugAssign)):
            calls = (n for n in ast.walk(statement) if isinstance(n, ast.Call))
            if any(not is_named(call, _PASTIMES) for call in calls) or _is_shown(statement):
                return True
    return False


def _is_shown(statement: ast.stmt) -> bool:
    match statement:
        case ast.Assign(targets=[ast.Subscript() | ast.Attribute()], value=value):
            return not isinstance(value, ast.Constant)
    return False


def spans(node: ast.stmt | ast.expr, line: int) -> bool:
    """True if a statement or expression covers the line."""
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def names_in(node: ast.AST) -> Iterator[str]:
    """Yield the variables and attributes in a piece of code."""
    for one in ast.walk(node):
        if isinstance(one, ast.Name | ast.Attribute):
            yield one.id if isinstance(one, ast.Name) else one.attr


def read_in(node: ast.AST) -> list[str]:
    """Return the variables that a piece of code reads."""
    return [n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]


def name_of(function: ast.expr) -> str:
    """Return the name of a function or method, without its object; empty if it has none."""
    return function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")


def called(call: ast.Call) -> str:
    """Return the name of the function or method that is called; empty if it has none."""
    return name_of(call.func)


def is_named(call: ast.Call, names: Container[str]) -> bool:
    """True if the called function or method has one of these names."""
    return called(call) in names


def _counted(target: ast.expr, iterable: ast.expr) -> ast.expr | None:
    """Return the part of a loop's target that grows by one with each iteration; None if there is none."""
    if not isinstance(iterable, ast.Call):
        return None
    function = called(iterable)
    first = target.elts[0] if isinstance(target, ast.Tuple) and target.elts else None
    match function, iterable.args:
        case "enumerate", _:
            return first
        case "range" | "trange", [_] | [_, _]:
            return target
        case "count", [] | [_]:
            return target if not iterable.keywords else None
        case "zip", [inner, *_] if first is not None:
            return _counted(first, inner)
        case _, [inner, *_] if any(bar in function.lower() for bar in _BARS):
            return _counted(target, inner)
    return None


def _step_of(loop: _Loop) -> tuple[str, int] | None:
    """Return the variable to which each iteration adds one, and the line; None if there is none."""
    for statement in in_every_iteration(loop):
        match statement:
            case ast.AugAssign(target=ast.Name(id=name), op=ast.Add(), value=ast.Constant(value=1)):
                return name, statement.lineno
    return None


def in_every_iteration(loop: _Loop) -> Iterator[ast.stmt]:
    """Yield the statements of a loop's body that every iteration runs: those up to the first that may ``continue``."""
    for statement in loop.body:
        yield statement
        if _goes_on(statement):
            return


def _goes_on(statement: ast.stmt) -> bool:
    """True if a statement may ``continue`` the loop around it."""
    if isinstance(statement, ast.Continue):
        return True
    if isinstance(statement, (*_SCOPES, *_LOOPS)):
        return any(_goes_on(s) for s in getattr(statement, "orelse", ()))
    return any(_goes_on(s) for suite in _suites(statement) for s in suite)


def ends_early(loop: _Loop, counter: str = "") -> bool:
    """True if a loop may be left by a condition that is not on its ``counter``."""

    def ends(body: Sequence[ast.stmt], own: bool) -> bool:
        """Return whether these statements may leave the loop. ``own``: a ``break`` here leaves it."""
        for one in body:
            if isinstance(one, ast.Return) or (own and isinstance(one, ast.Break)):
                return True
            if isinstance(one, _SCOPES):
                continue
            if isinstance(one, ast.If) and not one.orelse and _names(one.test, counter):
                continue
            if any(ends(suite, own and not isinstance(one, _LOOPS)) for suite in _suites(one)):
                return True
        return False

    return ends(loop.body, True)


def exits_of(loop: _Loop) -> Iterator[ast.If]:
    """Yield the innermost conditions in a loop's body under which a ``break`` leaves it."""

    def find(body: Sequence[ast.stmt], under: ast.If | None) -> Iterator[ast.If]:
        for one in body:
            if isinstance(one, ast.Break) and under is not None:
                yield under
            elif not isinstance(one, (*_SCOPES, *_LOOPS)):
                for suite in _suites(one):
                    yield from find(suite, one if isinstance(one, ast.If) and suite is one.body else under)

    return find(loop.body, None)


def _names(test: ast.expr, name: str) -> bool:
    return any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(test))


def _suites(statement: ast.stmt) -> Iterator[Sequence[ast.stmt]]:
    """Yield the suites of a compound statement, with those of its handlers and cases."""
    parts = (c for c in ast.iter_child_nodes(statement) if isinstance(c, (ast.ExceptHandler, ast.match_case)))
    for part in (statement, *parts):
        for field in ("body", "orelse", "finalbody"):
            suite = getattr(part, field, None)
            if isinstance(suite, list):
                yield suite


def walk(body: Sequence[ast.stmt], *, inner_loops: bool = True) -> Iterator[ast.AST]:
    """Yield all nodes of a function except those of inner functions and, without ``inner_loops``, those of its loops."""
    closed = _SCOPES if inner_loops else (*_SCOPES, *_LOOPS)
    rest: list[ast.AST] = list(body)
    while rest:
        node = rest.pop()
        yield node
        if not isinstance(node, closed):
            rest.extend(ast.iter_child_nodes(node))
