"""Lines that generate: what has been chosen from their outcome goes into them again. Pure.

``token = logits.argmax(-1)`` further down in the loop around ``logits = model(token)`` is a decoding loop, whatever it is called
and whether or not the model is a module of torch's. What goes through an environment first is an episode, and no text.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Mapping, Sequence

from hangwatch.sources.stacks.iterations import called, read_in, spans, walk

_CHOOSES = frozenset({"argmax", "multinomial", "topk"})
_MAY_CHOOSE = re.compile(rf"\b(?:{'|'.join(sorted(_CHOOSES))}|sample)\(")
#: What makes the next input of a choice: it is put behind what was there, or where a sequence goes on.
_SHAPES = frozenset(
    {
        "Categorical", "append", "cat", "concat", "concatenate", "cpu", "div", "exp", "float", "full", "hstack", "int", "item",
        "log_softmax", "long", "masked_fill", "reshape", "sample", "softmax", "squeeze", "tensor", "to", "tolist", "unsqueeze",
        "view", "where",
    }
)  # fmt: skip
_LOOPS = (ast.For, ast.While)
_Statement = ast.Assign | ast.AugAssign | ast.Expr


def may_choose(source: str) -> bool:
    """Whether a file has any call that chooses: to look through a function takes longer."""
    return _MAY_CHOOSE.search(source) is not None


def chosen_for(body: Sequence[ast.stmt], line: int) -> ast.Call | None:
    """The choice that the statement at a line of a function uses in the next iteration of the loop that both are in."""
    around = [n for n in walk(body) if isinstance(n, _LOOPS) and n.lineno < line and spans(n, line)]
    loop = max(around, key=lambda n: n.lineno, default=None)
    if loop is None:
        return None
    nodes = [n for n in walk(loop.body) if isinstance(n, _Statement)]
    here = next((n for n in nodes if spans(n, line)), None)
    if not isinstance(here, ast.Assign):
        return None
    outcome, made = _outcome(here, nodes), dict[str, ast.Call]()
    while True:
        known = len(made)
        for one in nodes:
            choice = _chooses(one.value) if one is here else _choice(one.value, outcome, made)
            if choice is not None:
                made |= dict.fromkeys(_given(one) - made.keys(), choice)
        if len(made) == known:
            return next((made[name] for name in read_in(here.value) if name in made), None)


def _outcome(here: ast.Assign, nodes: Sequence[_Statement]) -> set[str]:
    """The variables that a statement gives a value, and those that are made of them."""
    found = _given(here)
    while True:
        known = len(found)
        for one in nodes:
            if not found.isdisjoint(read_in(one.value)):
                found |= _given(one)
        if len(found) == known:
            return found


def _chooses(value: ast.expr) -> ast.Call | None:
    """The call in an expression that chooses; a batch is sampled of something, and a token of what is known."""
    calls = (n for n in ast.walk(value) if isinstance(n, ast.Call))
    return next((n for n in calls if called(n) in _CHOOSES or (called(n) == "sample" and not n.args)), None)


def _choice(value: ast.expr, outcome: Collection[str], made: Mapping[str, ast.Call]) -> ast.Call | None:
    """The choice from the outcome that an expression is of, by itself or by a variable, if it only gives it another shape."""
    if any(called(n) not in _SHAPES | _CHOOSES for n in ast.walk(value) if isinstance(n, ast.Call)):
        return None
    own = _chooses(value) if any(name in outcome for name in read_in(value)) else None
    return own or next((made[name] for name in read_in(value) if name in made), None)


def _given(statement: _Statement) -> set[str]:
    """The variables that a statement puts its value into: its targets, or the list of ``tokens.append(token)``."""
    match statement:
        case ast.Assign(targets=targets):
            return {n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)}
        case ast.AugAssign(target=ast.Name(id=name)):
            return {name}
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append"))):
            return {name}
    return set()
