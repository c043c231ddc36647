"""Lines that belong to saving a model, whatever their function is called. Pure.

``torch.save(model.state_dict(), path)`` and a barrier beside it belong together. So do ``weights = parameter.full_tensor()`` and
a later ``torch.save(weights, path)``, and everything that is made only to be saved.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence

from hangwatch.program.iterations import called, names_in, spans, walk

_BARRIER = re.compile(r"barrier|^wait_for_everyone$")
#: Calls in which all ranks meet, perhaps to collect what is saved.
_MEETS = re.compile(r"(?:barrier|wait_for_everyone|gather\w*|broadcast_object_list)\(")
#: Calls that train or evaluate.
_WORKS = re.compile(
    r"^(?:backward|step|zero_grad|train|fit|eval|evaluate|validate|test|predict|generate|reduce|all_reduce)$"
)
_WRITES = re.compile(r"(?:^|_)(?:save|write|dump|store|persist|export)(?:_|$|r$)")
_STATE = re.compile(r"(?:^|_)state_dict$|^save_(?:pretrained|model|checkpoint|state)$")
#: Names of a step's number, and of a file of tensors.
_STEP = re.compile(r"(?:^|_)(?:step|epoch|iter(?:ation)?)s?$")
_TENSORS = re.compile(r"\.(?:pt|pth|pkl|ckpt|safetensors)$")
_READS = re.compile(r"(?:^|_)(?:load|read|open|get|exists|is_file|download|fetch|join|Path|unlink|remove)(?:_|$)")
#: Calls that write tensors to a file: of torch and safetensors.
_SAVES = frozenset({"save", "save_file", "save_model"})
_SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr)
#: Messages that may stand between a save and the barrier.
_SAYS = frozenset({"print", "debug", "info", "warning", "log"})


def saved_beside(body: Sequence[ast.stmt], line: int) -> ast.Call | None:
    """Return the call that writes the state of a model just before or after a barrier at the line, in the same suite; or None."""
    found = next((i for i, one in enumerate(body) if spans(one, line)), None)
    if found is None or not any(_BARRIER.search(called(call)) for call in _calls(body[found])):
        return None
    before = [one for one in body[:found] if not _is_said(one)]
    after = [one for one in body[found + 1 :] if not _is_said(one)]
    takes = len(after) > 1 and not _made(after[:1]).isdisjoint(_names(after[1]))
    behind = after[: 2 if takes else 1]
    return _writes_state(before[-1:], before) or _writes_state(behind, behind)


def meets_all(text: str) -> bool:
    """True if a line calls something in which all ranks meet, perhaps to collect what is saved."""
    return _MEETS.search(text) is not None


def saved_by(body: Sequence[ast.stmt]) -> ast.Call | None:
    """Return the call that writes the state of a model, or takes it to keep it, in a function that only saves; or None.

    Such a function has no loop and neither trains nor evaluates.
    """
    nodes = list(walk(body))
    works = any(
        isinstance(n, ast.For | ast.While) or (isinstance(n, ast.Call) and _WORKS.search(called(n))) for n in nodes
    )
    return None if works else _writes_state(body, body) or _keeps_state(nodes)


def _keeps_state(nodes: Sequence[ast.AST]) -> ast.Call | None:
    """Return the call that takes the state of a model, if the result outlives the function: ``self.best = ..``,
    ``self.shelf.append(..)``."""
    statements = [n for n in nodes if isinstance(n, _SIMPLE)]
    taken = next((call for one in statements for call in _calls(one) if _STATE.search(called(call))), None)
    if taken is None:
        return None
    made = _made(one for one in statements if any(call is taken for call in _calls(one)))
    for one in statements:
        match one:
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript()], value=value):
                kept: ast.AST = value
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Attribute(), attr="append")) as call):
                kept = call
            case _:
                continue
        if not made.isdisjoint(_names(kept)) or any(n is taken for n in ast.walk(kept)):
            return taken
    return None


def _writes_state(beside: Sequence[ast.stmt], where: Sequence[ast.stmt]) -> ast.Call | None:
    """Return a call of ``beside`` that writes, if ``where`` takes the state of a model, or that writes a file for a step."""
    of_a_step = next((call for one in beside for call in _calls(one) if _names_a_step(call)), None)
    if of_a_step is not None or not any(_STATE.search(called(call)) for one in where for call in _calls(one)):
        return of_a_step
    return next((call for one in beside for call in _calls(one) if _WRITES.search(called(call))), None)


def _names_a_step(call: ast.Call) -> bool:
    """True if a call writes a file of tensors whose name has the number of a step."""
    if _READS.search(called(call)):
        return False
    for one in (*call.args, *(keyword.value for keyword in call.keywords)):
        match one:
            case ast.JoinedStr(values=[*parts, ast.Constant(value=str(end))]) if _TENSORS.search(end):
                return any(_STEP.search(name) for part in parts for name in names_in(part))
    return False


def _made(statements: Iterable[ast.stmt]) -> set[str]:
    """Return the variables that statements bind or add to."""
    return {name for one in statements for target in _targets(one) for name in _names(target)}


def saved_later(body: Sequence[ast.stmt], line: int) -> ast.Call | None:
    """Return the later call that saves what the statement at a line made, or what holds it; None if there is none."""
    statements = sorted(
        (n for one in body for n in ast.walk(one) if isinstance(n, _SIMPLE)),
        key=lambda node: (node.lineno, node.col_offset),
    )
    made = _made(one for one in statements if spans(one, line))
    for one in statements:
        if one.lineno <= line or made.isdisjoint(_names(one)):
            continue
        call = next((call for call in _calls(one) if called(call) in _SAVES), None)
        if call is not None:
            return None if made.isdisjoint(_names(call)) else call
        made |= _made([one])
    return None


def made_to_save(body: Sequence[ast.stmt], line: int) -> ast.Call | None:
    """Return the later call that saves the result of the call at a line; None if it is also used otherwise."""
    nodes = [node for one in body for node in ast.walk(one)]
    made = next((n for n in nodes if isinstance(n, ast.Assign) and spans(n, line)), None)
    match made:
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call()):
            used = [n for n in nodes if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load)]
        case _:
            return None
    saves = [n for n in nodes if isinstance(n, ast.Call) and called(n) in _SAVES and n.lineno > line]
    within = {id(n): call for call in saves for n in ast.walk(call)}
    return within[id(used[0])] if used and all(id(n) in within for n in used) else None


def _targets(statement: ast.stmt) -> Sequence[ast.expr]:
    """Return what a statement binds or adds to: its targets, or the object of ``states.append(value)``."""
    match statement:
        case ast.Assign(targets=targets):
            return targets
        case ast.AnnAssign(target=target) | ast.AugAssign(target=target):
            return [target]
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=holder))):
            return [holder]
    return []


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} - {"self"}


def _calls(statement: ast.stmt) -> Iterator[ast.Call]:
    return (node for node in ast.walk(statement) if isinstance(node, ast.Call))


def _is_said(statement: ast.stmt) -> bool:
    """True if a statement is only a message."""
    return isinstance(statement, ast.Expr) and {called(call) for call in _calls(statement)} <= {
        *_SAYS,
        "item",
        "format",
    }
