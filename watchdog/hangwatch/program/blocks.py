"""The blocks of code around a line: what has to hold for it to run. Pure; may import hangwatch.model and the standard library.

``if rank == 0:`` around a collective explains more than the collective. Files are read with ``ast``; one in the syntax of a newer
Python has no blocks.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from hangwatch.model.stacks import Block, Fact, Iterations
from hangwatch.program.conditions import find_deciders
from hangwatch.program.coroutines import run_to_their_end
from hangwatch.program.deadlines import Countdown, Deadline, find_deadlines
from hangwatch.program.iterations import exits_of, find_counters, has_no_end, is_named, name_of, spans
from hangwatch.program.positions import Holder, ends_with_its_data, find_holders
from hangwatch.program.saving import made_to_save, meets_all, saved_beside, saved_by, saved_later

_TEXT_LIMIT_CHARS = 200
_GOES_ON = (ast.Return, ast.Continue, ast.Break)
_LEAVES = (*_GOES_ON, ast.Raise)
#: After these, the code behind it and the next iteration do not follow.
_ENDS = (ast.Return, ast.Break, ast.Raise)
#: ``ast.TryStar`` (``except*``) came with Python 3.11 and has the same fields.
_TRIES: tuple[type[ast.Try], ...] = (ast.Try, *((vars(ast)["TryStar"],) if "TryStar" in vars(ast) else ()))
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)
#: Iterables that call nothing of the program.
_PLAIN = frozenset({"range", "enumerate", "zip", "len", "sorted", "reversed", "items", "keys", "values"})
#: Calls that go through all of their argument.
_EXHAUST = frozenset({"sum", "list", "tuple", "set", "dict", "max", "min", "sorted", "frozenset"})
#: Calls that take all items of a comprehension, and wait for no rank.
_COLLECT = frozenset(
    {"stack", "cat", "concat", "concatenate", "tensor", "as_tensor", "array", "mean", "extend", "append", "update"}
)
#: Decorators that return a kept result: those of functools, and usual names of others.
_CACHES = frozenset({"lru_cache", "cache", "cached_property", "cached", "memoize"})
#: A file without a match calls none of them.
_MAY_WRAP = re.compile(rf"\b(?:{'|'.join(sorted(_CACHES))})\b.*\(")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SCOPES = (*_FUNCTIONS, ast.ClassDef)


class SourceTree:
    """A parsed file. For a file that is no Python, everything is empty."""

    def __init__(self, source: str) -> None:
        self._lines = [line.encode(errors="replace") for line in re.split(r"\r\n|\r|\n", source)]
        try:
            self._tree: ast.Module | None = ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            self._tree = None
        # A walk takes half as long as parsing, and few files have any.
        self._wraps = _cached_functions(self._tree) if _MAY_WRAP.search(source) is not None else {}
        self._counted: dict[int, dict[int, Iterations]] = {}
        self._named: dict[int, frozenset[str]] = {}

    def blocks_at(self, line: int) -> tuple[Block, ...]:
        """Return the blocks around a line within its function, outermost first, with the guards before it."""
        if self._tree is None:
            return ()
        counters = self._counters(line)
        return tuple(_with_counter(b, counters) for b in self._descend(self._tree.body, line))

    def facts_at(self, line: int) -> tuple[Fact, ...]:
        """Return what else the text around a line says: that it belongs to saving, or to an event loop that ends."""
        if self._tree is None:
            return ()
        text, function = self._line(line), self._function(line)
        body = function.body if function is not None else self._tree.body
        saved, saves = saved_beside(self._suite(body, line), line), None
        if function is not None and saved is None and meets_all(text):
            saved = saved_by(body)
        if function is not None and "(" in text and "=" in text:
            saves = (saved_later if "full_tensor" in text else made_to_save)(body, line)
        ends = run_to_their_end(self._tree, line) if "run" in text else None
        calls: dict[Literal["saved", "saves", "ends"], ast.Call | None] = {"saved": saved, "saves": saves, "ends": ends}
        return tuple(Fact(kind, _one_line(self._text(call))) for kind, call in calls.items() if call is not None)

    def holders_at(self, line: int) -> tuple[Holder, ...]:
        """Return the variables that tell how far the loops around a line are in their data."""
        return find_holders(self._body(line), line)

    def deadlines_at(self, line: int) -> tuple[Deadline | Countdown, ...]:
        """Return when the loops around a line end, for those that end at a certain time."""
        return find_deadlines(self._body(line), line)

    def counters_at(self, line: int) -> frozenset[str]:
        """Return the variables that count iterations of loops in the function around a line; none outside of a function."""
        return frozenset(counted.counter for counted in self._counters(line).values())

    def deciders_at(self, line: int) -> frozenset[str]:
        """Return the variables in the conditions of the function around a line; none outside of a function."""
        function = self._function(line)
        if function is None:
            return frozenset()
        if function.lineno not in self._named:
            self._named[function.lineno] = find_deciders(function.body)
        return self._named[function.lineno]

    def function_at(self, line: int) -> str:
        """Return the qualified name of the function around a line (``Trainer.fit``); empty outside of a function."""
        scopes = tuple(_scopes_at(self._tree, line)) if self._tree is not None else ()
        names = (f"{one.name}.<locals>" if isinstance(one, _FUNCTIONS) else one.name for one in scopes)
        inside = any(isinstance(one, _FUNCTIONS) for one in scopes)
        return ".".join(names).removesuffix(".<locals>") if inside else ""

    def _function(self, line: int) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        """Return the innermost function whose body has the line; None if there is none."""
        scopes = _scopes_at(self._tree, line) if self._tree is not None else ()
        return next((one for one in reversed(tuple(scopes)) if isinstance(one, _FUNCTIONS)), None)

    def _body(self, line: int) -> Sequence[ast.stmt]:
        """Return the statements of that function; outside of a function those of the file."""
        function = self._function(line)
        if function is not None:
            return function.body
        return self._tree.body if self._tree is not None else ()

    def _counters(self, line: int) -> Mapping[int, Iterations]:
        """Return the counters of the function around a line, by the line of the loop."""
        function = self._function(line)
        if function is None:
            return {}
        if function.lineno not in self._counted:
            self._counted[function.lineno] = find_counters(function.body)
        return self._counted[function.lineno]

    def _descend(self, body: Sequence[ast.stmt], line: int) -> list[Block]:
        """Return the blocks from this suite down to the line; those around an inner function are left out."""
        found: list[Block] = []
        for statement in body:
            if not spans(statement, line):
                if statement.lineno < line:
                    found.extend(self._guard(statement))
                continue
            if isinstance(statement, _SCOPES):
                inside = _within(statement.body, line)
                return [*self._cache(statement), *self._descend(statement.body, line)] if inside else found
            for kind, header, text, suite in self._suites(statement):
                if _within(suite, line):
                    exhausts = kind in {"for", "while"} and ends_with_its_data(statement)
                    exits = self._exits(statement) if kind in {"for", "while"} else ()
                    block = Block(kind, header, _one_line(text), exhausts=exhausts, exits=exits)
                    return [*found, block, *self._descend(suite, line)]
            return [*found, *self._comprehensions(statement, line)]
        return []

    def _exits(self, loop: ast.stmt) -> tuple[str, ...]:
        """Return the conditions under which a loop is left by a ``break``."""
        ways = exits_of(loop) if isinstance(loop, (ast.For, ast.AsyncFor, ast.While)) else ()
        return tuple(dict.fromkeys(_one_line(f"{self._word(one)} {self._text(one.test)}: break") for one in ways))

    def _suite(self, body: Sequence[ast.stmt], line: int) -> Sequence[ast.stmt]:
        """Return the innermost suite with the line, of this one and those in it; empty in the header of a function or class."""
        around = next((one for one in body if spans(one, line)), None)
        if around is None or isinstance(around, _SCOPES):
            return ()
        inner = next((suite for _, _, _, suite in self._suites(around) if _within(suite, line)), None)
        return self._suite(inner, line) if inner is not None else body

    def _comprehensions(self, statement: ast.stmt, line: int) -> Iterator[Block]:
        """Yield the comprehensions around a line as ``for``, if a call in the line can only be in the comprehension."""
        suites = [suite for _, _, _, suite in self._suites(statement)]
        inner = {id(node) for suite in suites for one in suite for node in ast.walk(one)}
        # `any` and `next` may stop before the data end.
        whole = {
            id(a) for n in ast.walk(statement) if isinstance(n, ast.Call) and is_named(n, _EXHAUST) for a in n.args
        }
        for node in ast.walk(statement):
            if id(node) in inner or not isinstance(node, _COMPREHENSIONS):
                continue
            if _called_beside(statement, node, inner):
                continue
            if isinstance(node, ast.GeneratorExp) and id(node) not in whole:
                continue
            repeated = (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)
            first = node.generators[0]
            spanned = any(spans(one, line) for one in repeated)
            if spanned and any(map(_calls, repeated)) and not _calls(first.iter):
                text = _one_line(f"for {self._text(first.target)} in {self._text(first.iter)}:")
                yield Block("for", node.lineno, text, exhausts=not has_no_end(first.iter))

    def _cache(self, scope: ast.stmt) -> Iterator[Block]:
        """Yield the decorators and calls that keep results, as guards: inside the function there was no result yet."""
        for one in getattr(scope, "decorator_list", ()):
            if _is_cache(one):
                yield Block("guard", one.lineno, _one_line(f"@{self._text(one)}: return"))
        for call in self._wraps.get(getattr(scope, "name", ""), ()):
            yield Block("guard", call.lineno, _one_line(f"{self._text(call)}: return"))

    def _guard(self, statement: ast.stmt) -> Iterator[Block]:
        """Yield what a statement before the line tells.

        Past an ``if`` that leaves, its condition was false. Past an ``except`` that leaves, nothing was caught. Past a ``try``
        that leaves, with an ``except`` that does not, something was caught; the same past a ``suppress``.
        """
        if isinstance(statement, _TRIES):
            for handler in statement.handlers:
                last = _last(handler.body)
                if isinstance(last, _GOES_ON):
                    leaves = type(last).__name__.lower()
                    yield Block("guard", handler.lineno, f"{_one_line(self._except(handler))} {leaves}")
            caught = [h for h in statement.handlers if not isinstance(_last(h.body), _LEAVES)]
            if isinstance(_last(statement.body), _LEAVES) and not statement.orelse and caught:
                text = " or ".join(self._except(handler) for handler in caught)
                yield Block("except", caught[0].lineno, _one_line(text))
        if isinstance(statement, ast.With) and isinstance(_last(statement.body), _LEAVES) and _suppresses(statement):
            yield Block("except", statement.lineno, _one_line(f"with {self._items(statement)}:"))
        if (
            isinstance(statement, ast.If)
            and not statement.orelse
            and isinstance(last := _last(statement.body), _LEAVES)
        ):
            leaves = type(last).__name__.lower()  # return, continue, break or raise
            text = _one_line(f"{self._word(statement)} {self._text(statement.test)}:")
            yield Block("guard", statement.lineno, f"{text} {leaves}")

    def _suites(self, statement: ast.stmt) -> Iterator[tuple[str, int, str, Sequence[ast.stmt]]]:
        """Yield kind, line and text of the header, and the statements, of each suite of a compound statement."""
        line = statement.lineno
        if isinstance(statement, ast.If):
            header = f"{self._word(statement)} {self._text(statement.test)}:"
            yield "if", line, header, statement.body
            yield "else", line, header, statement.orelse
        elif isinstance(statement, (ast.For, ast.AsyncFor, ast.While)):
            if isinstance(statement, ast.While):
                kind, header = "while", f"while {self._text(statement.test)}:"
            else:
                kind, header = "for", f"for {self._text(statement.target)} in {self._text(statement.iter)}:"
            yield kind, line, header, statement.body
            yield "after", line, header, statement.orelse
        elif isinstance(statement, (ast.With, ast.AsyncWith)):
            yield "with", line, f"with {self._items(statement)}:", statement.body
        elif isinstance(statement, ast.Match):
            for case in statement.cases:
                guard = f" if {self._text(case.guard)}" if case.guard else ""
                yield "case", case.pattern.lineno, f"case {self._text(case.pattern)}{guard}:", case.body
        elif isinstance(statement, _TRIES):
            caught = [h for h in statement.handlers if not isinstance(_last(h.body), _ENDS)]
            header = f"try: .. {self._except(caught[0])}" if caught else "try:"
            yield "try" if caught else "with", line, header, statement.body
            for handler in statement.handlers:
                yield "except", handler.lineno, self._except(handler), handler.body
            yield "after", line, "try:", statement.orelse
            yield "finally", line, "finally:", statement.finalbody

    def _items(self, statement: ast.With | ast.AsyncWith) -> str:
        return ", ".join(
            self._text(item.context_expr) + (f" as {self._text(item.optional_vars)}" if item.optional_vars else "")
            for item in statement.items
        )

    def _except(self, handler: ast.ExceptHandler) -> str:
        what = f" {self._text(handler.type)}" if handler.type else ""
        name = f" as {handler.name}" if handler.name else ""
        return f"except{what}{name}:"

    def _word(self, statement: ast.If) -> str:
        """Return ``if`` or ``elif``, as in the source."""
        text = self._lines[statement.lineno - 1] if statement.lineno <= len(self._lines) else b""
        return "elif" if text[statement.col_offset :].startswith(b"elif") else "if"

    def _line(self, line: int) -> str:
        return self._lines[line - 1].decode(errors="replace") if line <= len(self._lines) else ""

    def _text(self, node: ast.expr | ast.pattern) -> str:
        """Return the source of an expression (``ast.get_source_segment`` splits the whole file each time; offsets are bytes)."""
        lines = self._lines[node.lineno - 1 : node.end_lineno or node.lineno]
        if not lines:
            return ""
        lines[-1] = lines[-1][: node.end_col_offset]
        lines[0] = lines[0][node.col_offset :]
        return b"\n".join(lines).decode(errors="replace")


def _scopes_at(node: ast.AST, line: int) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """Yield the functions and classes whose bodies have the line, outermost first."""
    for child in ast.iter_child_nodes(node):
        # Expressions hold no functions, and may be nested deeply.
        if not isinstance(child, (ast.stmt, ast.ExceptHandler, ast.match_case)):
            continue
        if isinstance(child, ast.stmt) and not spans(child, line):
            continue
        if isinstance(child, _SCOPES) and _within(child.body, line):
            yield child
        yield from _scopes_at(child, line)


def _with_counter(block: Block, counters: Mapping[int, Iterations]) -> Block:
    """Return the block, a loop with what counts its iterations."""
    if block.kind not in {"for", "while"} or block.line not in counters:
        return block
    return msgspec.structs.replace(block, iterations=counters[block.line])


def _last(body: Sequence[ast.stmt]) -> ast.stmt:
    """Return the last statement of a suite; for a ``with`` that lets exceptions through, the last one in it."""
    last = body[-1]
    if not isinstance(last, (ast.With, ast.AsyncWith)):
        return last
    return last if _suppresses(last) else _last(last.body)


def _suppresses(statement: ast.With | ast.AsyncWith) -> bool:
    """True if a ``with`` suppresses exceptions."""
    managers = (item.context_expr for item in statement.items)
    return any(isinstance(one, ast.Call) and is_named(one, frozenset({"suppress"})) for one in managers)


def _calls(node: ast.expr) -> bool:
    """True if an expression calls something that may call the program."""
    return any(not is_named(one, _PLAIN) for one in ast.walk(node) if isinstance(one, ast.Call))


def _called_beside(statement: ast.stmt, comprehension: ast.expr, inner: Collection[int]) -> bool:
    """True if the statement has a call outside of the comprehension that the line may be in as well."""
    own = {id(node) for node in ast.walk(comprehension)}
    calls = (n for n in ast.walk(statement) if isinstance(n, ast.Call) and id(n) not in own and id(n) not in inner)
    return not all(is_named(call, _PLAIN | _EXHAUST | _COLLECT) for call in calls)


def _is_cache(made: ast.expr) -> bool:
    """True if a decorator keeps results: ``cache`` or ``lru_cache(maxsize=8)``."""
    return name_of(made.func if isinstance(made, ast.Call) else made) in _CACHES


def _cached_functions(tree: ast.AST | None) -> dict[str, list[ast.Call]]:
    """Return the functions whose results a call keeps, by name: ``self.get = lru_cache(maxsize=8)(self._compute)``."""
    found: dict[str, list[ast.Call]] = {}
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords and _is_cache(node.func):
            found.setdefault(name_of(node.args[0]), []).append(node)
    return found


def _within(suite: Sequence[ast.stmt], line: int) -> bool:
    """True if the suite has the line."""
    return bool(suite) and suite[0].lineno <= line <= (suite[-1].end_lineno or suite[-1].lineno)


def _one_line(text: str) -> str:
    """Return a header without line breaks, cut at a limit."""
    text = re.sub(r"\s+", " ", text)
    return text if len(text) <= _TEXT_LIMIT_CHARS else text[: _TEXT_LIMIT_CHARS - 1] + "…"
