"""Which variables of a function tell how far its loops are in their data. Pure.

A loop over data and a loop that polls may both sleep between iterations. The subject of an iteration tells them apart: an item of
a sequence, something taken from a container or received, or a new answer. A poll has attempts, delays and times.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from hangwatch.program.iterations import (
    acts,
    asks_until,
    called,
    ends_early,
    has_no_end,
    in_every_iteration,
    is_named,
    read_in,
    walk,
)

_Loop = ast.For | ast.AsyncFor | ast.While
_FOR = (ast.For, ast.AsyncFor)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_BINDS = (ast.Assign, ast.AugAssign, ast.AnnAssign)
_ORDER = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_PARTS = (ast.expr, ast.withitem, ast.keyword)
#: Calls that take the next item of a container or a stream.
_TAKES = frozenset(
    {"pop", "popleft", "popitem", "heappop", "get", "get_nowait", "next", "anext", "recv", "recv_bytes", "receive", "read",
     "readline", "read1", "readuntil", "readexactly"}
)  # fmt: skip
#: Of these, calls that wait for it.
_BLOCKS = frozenset({"get", "recv"})
#: Iterables whose items are results of work: of a pool of multiprocessing or concurrent.futures, or of Python's ``map``.
_DELIVERS = frozenset({"imap", "imap_unordered", "as_completed", "map", "starmap"})
#: Calls whose answer differs each time, though nothing has moved.
_CLOCKS = frozenset(
    {"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "now", "utcnow", "today", "strftime",
     "ctime", "isoformat", "random", "uniform", "randint", "choice", "sample", "uuid4", "token_hex", "urandom", "min", "max"}
)  # fmt: skip
#: Calls that only pass the time, or report to people.
_PASTIMES = frozenset(
    {"sleep", "print", "debug", "info", "warning", "error", "exception", "log", "wait", "write_line", "set_description"}
)
#: Calls whose argument is a delay.
_DELAYS = frozenset({"sleep", "wait"})


class Holder(NamedTuple):
    """A variable that holds the subject of an iteration of a loop.

    ``loop``: the line of its header. ``numbers``: a number in it counts too; if something else may end the loop, a number may as
    well be an attempt or a delay. ``objects``: another object counts too; a poll gets a new one with each answer.
    """

    name: str
    loop: int
    numbers: bool
    objects: bool


def find_holders(body: Sequence[ast.stmt], line: int) -> tuple[Holder, ...]:
    """Return the holders of the loops around a line in the body of a function, and of the loop whose header it is in."""
    found: list[Holder] = []
    for node in walk(body):
        if isinstance(node, (*_FOR, ast.While)) and node.lineno <= line <= (node.body[-1].end_lineno or 0):
            found.extend(_of_for(node) if isinstance(node, _FOR) else _of_poll(node))
        elif isinstance(node, _COMPREHENSIONS) and node.lineno <= line <= (node.end_lineno or 0):
            found.extend(_of_comprehension(node))
    return tuple(found)


def ends_with_its_data(loop: ast.stmt) -> bool:
    """True if a loop ends with its data, or when its container is empty, and each iteration calls more than a sleep."""
    if isinstance(loop, ast.While):
        ends = acts(loop.body) and (_empties(loop) or _counts_to_an_end(loop))
        return _takes_first(loop) or (not ends_early(loop) and (_takes_by_header(loop.test) or ends))
    return isinstance(loop, _FOR) and not ends_early(loop) and acts(loop.body) and not has_no_end(loop.iter)


def _takes_first(loop: ast.While) -> bool:
    """True if each iteration begins by waiting for the next item (``order = pipe.recv()``), and only None ends the loop
    (``if order is None: return``).

    An empty item (``if not jobs:``) may be a state that the loop waits for.
    """
    match loop:
        case ast.While(
            test=ast.Constant(value=True),
            body=[
                ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(args=[], keywords=[]) as take),
                ast.If(
                    test=ast.Compare(left=ast.Name(id=read), ops=[ast.Is()], comparators=[ast.Constant(value=None)]),
                    body=[*_, ast.Return() | ast.Break()],
                    orelse=[],
                ),
                *rest,
            ],
        ):
            sent = read == name and is_named(take, _BLOCKS)
            return sent and not ends_early(ast.While(test=loop.test, body=rest, orelse=[]))
    return False


def _takes_by_header(test: ast.expr) -> bool:
    """True if a loop runs as long as its condition takes an item: ``while (item := queue.get()) is not None:``.

    A loop that runs while there is none (``is None``) polls.
    """
    match test:
        case ast.Compare(left=ast.NamedExpr(value=value), ops=[ast.IsNot() | ast.NotEq()]) | ast.NamedExpr(value=value):
            return isinstance(value, ast.Call | ast.Await) and _takes(value)
    return False


def _counts_to_an_end(loop: ast.While) -> bool:
    """True if each iteration moves the number that ends the loop: ``while left > 0:`` with ``left -= step``."""
    match loop.test:
        case ast.Compare(left=ast.Name(id=name), ops=[ast.Gt() | ast.GtE()], comparators=[ast.Constant() | ast.Name()]):
            takes: type[ast.operator] = ast.Sub
        case ast.Compare(left=ast.Name(id=name), ops=[ast.Lt() | ast.LtE()], comparators=[ast.Constant() | ast.Name()]):
            takes = ast.Add
        case _:
            return False
    bound = [n for n in walk(loop.body) if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store)]
    for one in in_every_iteration(loop):
        match one:
            case ast.AugAssign(target=ast.Name(id=counted), op=op, value=step) if counted == name and isinstance(
                op, takes
            ):
                # What is called may answer with nothing.
                return len(bound) == 1 and not any(isinstance(n, ast.Call | ast.Await) for n in ast.walk(step))
    return False


def _empties(loop: ast.While) -> bool:
    """True if each iteration takes an item out of the container in the condition, and does not put it back."""
    stores = {ast.dump(one) for one in _stores(loop.test)}
    for statement in loop.body:
        match statement:
            case ast.Assign(targets=[target], value=value) if _takes(value) and _mentions(value, stores):
                calls = (n for n in walk(loop.body) if isinstance(n, ast.Call) and not _takes(n))
                names = set(_targets(target))
                return not any(_mentions(call, stores) and _hands_over(call, names) for call in calls)
    return False


def _takes(value: ast.expr) -> bool:
    return any(is_named(call, _TAKES) for call in ast.walk(value) if isinstance(call, ast.Call))


def _mentions(value: ast.expr, stores: Collection[str]) -> bool:
    return any(ast.dump(part) in stores for part in ast.walk(value))


def _hands_over(call: ast.Call, names: Collection[str]) -> bool:
    """True if one of these variables is itself an argument, and not only the argument of an inner call."""
    rest: list[ast.AST] = list(call.args)
    while rest:
        node = rest.pop()
        if isinstance(node, ast.Name) and node.id in names:
            return True
        if not isinstance(node, ast.Call):
            rest.extend(ast.iter_child_nodes(node))
    return False


def _of_for(loop: ast.For | ast.AsyncFor) -> Iterator[Holder]:
    # Whatever the body does: others have worked for each item, or the iterable works.
    delivered = any(is_named(call, _DELIVERS) for call in ast.walk(loop.iter) if isinstance(call, ast.Call))
    whole = ends_with_its_data(loop) or (delivered and not ends_early(loop))
    for name in _targets(loop.target) if not has_no_end(loop.iter) else ():
        if whole or _works_on(loop.body, name):
            yield Holder(name, loop.lineno, numbers=whole, objects=True)
    if asks_until(loop.iter):
        yield from (Holder(name, loop.lineno, numbers=False, objects=False) for name in _targets(loop.target))
    if ends_early(loop) or has_no_end(loop.iter):
        yield from _of_poll(loop)  # its items may be attempts


def _of_comprehension(node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> Iterator[Holder]:
    """Yield the variables of a comprehension.

    A generator may be left before its data end, so it yields only those whose size a condition compares.
    """
    whole = not isinstance(node, ast.GeneratorExp)
    for part in node.generators:
        asked = {name for test in part.ifs for name in _compared(test)}
        if not has_no_end(part.iter):
            for name in _targets(part.target):
                yield Holder(name, node.lineno, numbers=whole or name in asked, objects=whole)


def _of_poll(loop: _Loop) -> Iterator[Holder]:
    """Yield what it takes from the container in its condition, what it receives, and what it is told."""
    test = loop.test if isinstance(loop, ast.While) else None
    stores = {ast.dump(one) for one in _stores(test)} if test is not None else set()
    bound = dict(_bound(loop))
    taken = {name: value for name, value in bound.items() if _takes(value) and _works_on(loop.body, name)}
    for name, value in taken.items():
        own = _mentions(value, stores)
        yield Holder(name, loop.lineno, numbers=own, objects=own)
    items = taken.values()
    answers = {name for name, value in bound.items() if _is_answer(value) and value not in items}
    # The loop asks for the next page by it: a number here is no mere attempt.
    yield from (Holder(name, loop.lineno, numbers=True, objects=False) for name in _cursors(loop, bound))
    asked = _compared(test) if test is not None else set()
    yield from _of_answers(loop, answers, asked, {name for name in asked & bound.keys() if _is_seen(loop, bound[name])})


def _cursors(loop: _Loop, bound: Mapping[str, ast.expr]) -> Iterator[str]:
    """Yield the variables with which a loop asks, and which it takes from each answer: ``page = answer["next"]`` after
    ``answer = fetch(page)``. A variable that it sleeps for is a delay."""
    answers = {name for name, value in bound.items() if _is_answer(value)}
    statements = sorted((n for n in walk(loop.body) if isinstance(n, ast.stmt)), key=lambda n: n.lineno)
    slept = {name for n in walk(loop.body) if isinstance(n, ast.Call) and is_named(n, _DELAYS) for name in read_in(n)}
    for name, value in bound.items():
        if name not in answers and answers.isdisjoint(read_in(value)):
            continue
        made = {name}
        for one in statements:
            if one.lineno < value.lineno and not made.isdisjoint(_read_by(one)):
                made.update(_written_by(one))
        if not made.isdisjoint(read_in(value)) and made.isdisjoint(slept):
            yield name


def _read_by(statement: ast.stmt) -> set[str]:
    """Return the variables that a statement reads, without those of conditions."""
    match statement:
        case ast.Assign(value=value) | ast.AugAssign(value=value) | ast.Expr(value=value):
            return set(read_in(value))
        case ast.With(items=items) | ast.AsyncWith(items=items):
            return {name for item in items for name in read_in(item.context_expr)}
    return set()


def _written_by(statement: ast.stmt) -> Iterator[str]:
    """Yield the variables that a statement binds or changes; ``connection.request(..)`` changes the connection."""
    match statement:
        case ast.Assign(targets=targets):
            changed: list[ast.expr] = targets
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=receiver))):
            changed = [receiver]
        case ast.With(items=items) | ast.AsyncWith(items=items):
            changed = [item.optional_vars for item in items if item.optional_vars is not None]
        case _:
            return
    for one in changed:
        yield from _targets(one)
        if isinstance(one, ast.Subscript) and isinstance(one.value, ast.Name):
            yield one.value.id


def _of_answers(
    loop: _Loop, answers: Collection[str], asked: Collection[str], seen: Collection[str]
) -> Iterator[Holder]:
    """Yield what a loop collects from its answers, and answers whose size its condition compares (``asked``) or reads (``seen``).

    In a loop that polls with sleeps, an answer counts if it was never seen before, unless it is a number: something moves
    elsewhere.
    """
    sleeps = [n for n in walk(loop.body, inner_loops=False) if isinstance(n, ast.Call) and is_named(n, {"sleep"})]
    slept = {n.id for call in sleeps for n in ast.walk(call) if isinstance(n, ast.Name)}
    learnt = set(answers) - slept
    telling = dict.fromkeys((learnt & set(asked)) | set(seen), (True, False))
    telling |= {name: (numbers, not numbers) for name, numbers in _collected(loop, learnt)}
    if sleeps:
        telling = dict.fromkeys(learnt, (False, False)) | telling
    for name, (numbers, objects) in telling.items():
        yield Holder(name, loop.lineno, numbers=numbers, objects=objects)


def _compared(test: ast.expr) -> set[str]:
    """Return the variables whose size a condition compares: ``there`` in ``while there < size:``."""
    compares = (n for n in ast.walk(test) if isinstance(n, ast.Compare) and all(isinstance(op, _ORDER) for op in n.ops))
    sides = (
        one.target if isinstance(one, ast.NamedExpr) else one for n in compares for one in (n.left, *n.comparators)
    )
    return {one.id for one in sides if isinstance(one, ast.Name)}


def _is_answer(value: ast.expr) -> bool:
    """True if a value is the answer of a call, or a part of it, and not a time or a random number."""
    match value:
        case ast.Await(value=inner) | ast.Subscript(value=inner) | ast.Attribute(value=inner):
            return _is_answer(inner)
        case ast.IfExp(body=body, orelse=other):
            return _is_answer(body) or _is_answer(other)
        case ast.Call():
            return not any(is_named(n, _CLOCKS) for n in ast.walk(value) if isinstance(n, ast.Call))
    return False


def _is_seen(loop: _Loop, value: ast.expr) -> bool:
    """True if others may change a value and this loop does not: ``position.value``."""
    if not isinstance(value, (ast.Attribute, ast.Subscript)):
        return False
    bound = (
        one.targets if isinstance(one, ast.Assign) else [one.target]
        for one in walk(loop.body)
        if isinstance(one, _BINDS)
    )
    return ast.unparse(value) not in {ast.unparse(target) for targets in bound for target in targets}


def _collected(loop: _Loop, answers: Collection[str]) -> Iterator[tuple[str, bool]]:
    """Yield the variables that change as a loop collects its answers, and whether they are numbers.

    One is a sum (``score += reward``), or each answer that is kept (``screens.append(screen)``).
    """
    for node in walk(loop.body, inner_loops=False):
        match node:
            case ast.AugAssign(target=ast.Name(id=total), op=ast.Add(), value=ast.Name(id=name)) if name in answers:
                yield total, True
            case ast.Call(func=ast.Attribute(attr="append"), args=[ast.Name(id=name)]) if name in answers:
                yield name, False


def _stores(test: ast.expr) -> Iterator[ast.expr]:
    """Yield the containers that a condition checks for items: ``pending``, ``len(pending)``, ``not q.empty()``."""
    match test:
        case ast.Name() | ast.Attribute():
            yield test
        case ast.UnaryOp(op=ast.Not(), operand=ast.Call(func=ast.Attribute(value=held, attr="empty"))):
            yield held
        case ast.Call(func=ast.Name(id="len"), args=[held]):
            yield held
        case ast.Compare(left=left):
            yield from _stores(left) if isinstance(left, ast.Call) else ()
        case ast.BoolOp(values=values):
            for one in values:
                yield from _stores(one)


def _bound(loop: _Loop) -> Iterator[tuple[str, ast.expr]]:
    """Yield the variables that an iteration binds, with the value: in the condition, or in the body outside of inner loops."""
    for node in ast.walk(loop.test) if isinstance(loop, ast.While) else ():
        if isinstance(node, ast.NamedExpr):
            yield node.target.id, node.value
    for node in walk(loop.body, inner_loops=False):
        match node:
            case ast.Assign(targets=[target], value=value):
                yield from ((name, value) for name in _targets(target))
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                yield name, value
            case ast.NamedExpr(target=ast.Name(id=name), value=value):
                yield name, value


def _targets(target: ast.expr) -> Iterator[str]:
    match target:
        case ast.Name(id=name):
            yield name
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            for part in parts:
                yield from _targets(part)
        case ast.Starred(value=inner):
            yield from _targets(inner)


def _works_on(body: Sequence[ast.stmt], name: str) -> bool:
    """True if a call takes a variable, or is a method of it, unless the call is in a condition, a sleep or a message."""
    for node in walk(body):
        tests = (node.test,) if isinstance(node, (ast.If, ast.While)) else ()
        if isinstance(node, ast.stmt) and any(_is_given(call, name) for call in _calls_of(node, tests)):
            return True
    return False


def _calls_of(statement: ast.stmt, without: Collection[ast.expr]) -> Iterator[ast.Call]:
    """Yield the calls in a statement's own expressions, without sleeps and messages and their arguments."""
    rest = [n for n in ast.iter_child_nodes(statement) if isinstance(n, _PARTS) and n not in without]
    while rest:
        node = rest.pop()
        if isinstance(node, ast.Call):
            if called(node) in _PASTIMES:
                continue
            yield node
        rest.extend(n for n in ast.iter_child_nodes(node) if isinstance(n, _PARTS))


def _is_given(call: ast.Call, name: str) -> bool:
    receiver = (call.func.value,) if isinstance(call.func, ast.Attribute) else ()
    parts = (*receiver, *call.args, *(k.value for k in call.keywords if k.arg != "timeout"))
    return any(isinstance(n, ast.Name) and n.id == name for part in parts for n in ast.walk(part))
