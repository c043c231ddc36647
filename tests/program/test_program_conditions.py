"""Of a rank's variables only small values that a condition of their function names are kept, and only where that is allowed."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangwatch.model.stacks import StackSample
from hangwatch.program.blocks import SourceTree
from hangwatch.sources.stacks.locals import settle_values
from hangwatch.sources.stacks.samples import parse_pyspy
from hangwatch.sources.stacks.source_lines import SourceLines

_PROGRAM = """\
def train(n_tokens, flag, pin, n_steps, seed, token, batch, held, size, account):
    if n_tokens > 0 and batch.size > 1:
        work(seed, account)
    while not flag:
        work(pin)
    for step in range(n_steps):
        if token == 3 or size:
            held[pin].work()
    work(seed)
"""
_LAST = _PROGRAM.count("\n")


@pytest.mark.parametrize(
    ("condition", "names"),
    [
        ("if n > 0:", {"n"}),
        ("if self.n > 0 and other.n:", set()),
        ("if check(n, m):", {"n", "m"}),
        ("if table[i]:", {"i"}),
        ("while not done:", {"done"}),
        ("for i in range(2, stop):", {"stop"}),
        ("for item in items:", set()),
        ("if (n := count()) > least:", {"n", "least"}),
    ],
)
def test_names_of_a_condition(condition: str, names: set[str]) -> None:
    """What a condition asks the own value of; not whose attribute, item or result it asks for."""
    tree = SourceTree(f"def f():\n    {condition}\n        pass\n    here()\n")
    assert tree.deciders_at(4) == names


def test_other_functions_name_nothing() -> None:
    """What the conditions of a function further in name is not named by the one around it; outside of all there is nothing."""
    tree = SourceTree("def f():\n    def g():\n        if n:\n            pass\n    here()\nif n:\n    here()\n")
    assert tree.deciders_at(5) == frozenset()
    assert tree.deciders_at(7) == frozenset()


def _values(sample: StackSample) -> Iterator[str]:
    """All texts in a sample, whatever type they are part of."""
    rest: list[object] = [msgspec.to_builtins(sample)]
    while rest:
        one = rest.pop()
        if isinstance(one, dict):
            rest += [*one.keys(), *one.values()]
        elif isinstance(one, (list, tuple)):
            rest += one
        elif isinstance(one, str):
            yield one


def _sample(path: Path, held: dict[str, str], *, condition_values: bool) -> StackSample:
    """A rank in the last line of the program, as it is stored."""
    frame = {
        "name": "train", "filename": str(path), "line": _LAST,
        "locals": [{"name": name, "repr": shown} for name, shown in held.items()],
    }  # fmt: skip
    thread = {"frames": [frame], "os_thread_id": os.getpid(), "active": True}
    parsed = parse_pyspy(msgspec.json.encode([thread]), at_ns=1, pid=os.getpid(), unsettled=True)
    attached = SourceLines().attach({os.getpid(): parsed}, condition_values=condition_values)
    return asyncio.run(attached)[os.getpid()]


_NAMES = ("n_tokens", "flag", "pin", "n_steps", "seed", "token", "batch", "held", "size", "account")


def test_small_values_that_a_condition_names_are_kept(tmp_path: Path) -> None:
    """No other variable's, none with many digits, none whose name says that it is secret; none at all if that is switched off."""
    path = tmp_path / "train.py"
    path.write_text(_PROGRAM)
    held = {
        "n_tokens": "0", "flag": "False", "pin": "4711", "n_steps": "-3", "seed": "815", "token": "1234",
        "batch": "None", "held": "[1, 2]", "size": "4929123412341234"[:12], "account": "True",
    }  # fmt: skip
    (frame,) = _sample(path, held, condition_values=True).threads[0].frames
    assert frame.locals == {
        "n_tokens": "int=0", "flag": "bool=False", "pin": "int", "n_steps": "int=-3", "seed": "int", "token": "int",
        "batch": "None", "held": "list[int, ...]", "size": "int", "account": "bool",
    }  # fmt: skip
    (off,) = _sample(path, held, condition_values=False).threads[0].frames
    assert not [text for text in (off.locals or {}).values() if "=" in text or "~" in text]


@given(
    shown=st.dictionaries(
        st.sampled_from(_NAMES),
        st.one_of(
            st.integers().map(str),
            st.sampled_from(["True", "False"]),
            st.from_regex(r'"[a-z0-9]{0,20}"', fullmatch=True),
        ),
    ),
    allowed=st.booleans(),
)
def test_nothing_else_is_stored_in_any_type(
    shown: dict[str, str], allowed: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Every text of every type of a stored sample is searched: a value stands there only after ``=``, and only where it may."""
    path = tmp_path_factory.getbasetemp() / "train.py"
    path.write_text(_PROGRAM)
    sample = _sample(path, shown, condition_values=allowed)
    (frame,) = sample.threads[0].frames
    kept = {name for name, text in (frame.locals or {}).items() if "=" in text}
    assert kept <= ({"n_tokens", "flag", "n_steps", "size"} if allowed else set())
    for text in _values(sample):
        assert "~" not in text
        assert re.fullmatch(r"(?:int=-?\d{1,6}|bool=(?:True|False))", text) or "=" not in text or text in _PROGRAM


@given(st.dictionaries(st.sampled_from(_NAMES), st.from_regex(r"(?:int~-?\d{1,12}|bool~True)", fullmatch=True)))
def test_without_the_source_nothing_is_kept(marked: dict[str, str]) -> None:
    """Where the source was not read, no value stays."""
    assert set(settle_values(marked, frozenset()).values()) <= {"int", "bool"}
