"""Calls that a line makes only as others in it turn out."""

from __future__ import annotations

import pytest

from hangwatch.program.lines import is_called_in_part


@pytest.mark.parametrize(
    ("line", "callee"),
    [
        ("if rises(loss) and consensus(True):", "consensus"),
        ("done = bad(x) or agreed(x)", "agreed"),
        ("scale = peak(values) / 127 if values.max() > 6 else 1.0", "peak"),
        ("return function(run) if ready(run) else None", "compare"),
        ("return any(self._fails(name) for name in self.checks)", "<genexpr>"),
        ("elif small and gather(x):", "gather"),
    ],
)
def test_what_may_be_left_out(line: str, callee: str) -> None:
    """The later part of a condition, either branch of a choice, items behind the one that decides."""
    assert is_called_in_part(line, callee)


@pytest.mark.parametrize(
    ("line", "callee"),
    [
        ("run.step(torch.ones(2) * (3.0 if harder else 1.0))", "step"),
        ("if rises(loss) and consensus(True):", "rises"),
        ("dist.all_reduce(x)", "all_reduce"),
        ("total = sum(gather(x) for x in batch)", "<genexpr>"),
        ("outer(", "outer"),
        ("", "f"),
        ("x = f(a) if f(b) else f", "g"),
    ],
)
def test_what_is_called_in_any_case(line: str, callee: str) -> None:
    """Arguments may choose; the call itself is made. Of half a statement nothing is known."""
    assert is_called_in_part(line, callee) == (callee == "g")
