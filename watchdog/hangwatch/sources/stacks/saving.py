"""Barriers that belong to saving: what is written just before them. Pure.

``torch.save(model.state_dict(), path)`` and a barrier behind it are one thing, whatever their function is called.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from hangwatch.sources.stacks.iterations import called

_BARRIER = re.compile(r"barrier|^wait_for_everyone$")
_WRITES = re.compile(r"(?:^|_)(?:save|write|dump|store|persist|export)(?:_|$|r$)")
_STATE = re.compile(r"(?:^|_)state_dict$|^save_(?:pretrained|model|checkpoint|state)$")
#: What a program says of its saving, between it and the barrier.
_SAYS = frozenset({"print", "debug", "info", "warning", "log"})


def saved_before(body: Sequence[ast.stmt], line: int) -> ast.Call | None:
    """The call that writes the state of a model just before a barrier at the line, in the same suite; None where none does."""
    found = next((i for i, one in enumerate(body) if one.lineno <= line <= (one.end_lineno or one.lineno)), None)
    if found is None or not any(_BARRIER.search(called(call)) for call in _calls(body[found])):
        return None
    before = [one for one in body[:found] if not _is_said(one)]
    writes = (call for one in before[-1:] for call in _calls(one) if _WRITES.search(called(call)))
    states = (call for one in before for call in _calls(one) if _STATE.search(called(call)))
    return next(writes, None) if any(states) else None


def _calls(statement: ast.stmt) -> Iterator[ast.Call]:
    return (node for node in ast.walk(statement) if isinstance(node, ast.Call))


def _is_said(statement: ast.stmt) -> bool:
    """Whether a statement is a line for people and nothing else."""
    return isinstance(statement, ast.Expr) and {called(call) for call in _calls(statement)} <= {
        *_SAYS,
        "item",
        "format",
    }
