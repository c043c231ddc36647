"""The explanation names what the deciding variable holds on both sides, where the condition's outcome is as the fork shows it."""

from __future__ import annotations

import msgspec
import pytest

from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.capture import Capture
from hangwatch.model.incident import Verdict
from hangwatch.model.stacks import Frame
from recorded import load

_CAPTURE, _CONDITION = "rank_conditional", "if rank == 0:"


def _holding(capture: Capture, condition: str, held: dict[int, dict[str, str]], old_text: str = _CONDITION) -> Capture:
    """The hang with another condition, and what each rank's variables held."""
    kind = condition.partition(" ")[0]

    def frame(rank: int, old: Frame) -> Frame:
        blocks = tuple(
            msgspec.structs.replace(b, kind=kind, text=condition) if b.text == old_text else b for b in old.blocks
        )
        return msgspec.structs.replace(old, blocks=blocks, locals={**(old.locals or {}), **held.get(rank, {})})

    ranks = []
    for one in capture.ranks:
        stacks = tuple(
            msgspec.structs.replace(
                s,
                threads=tuple(
                    msgspec.structs.replace(t, frames=tuple(frame(one.rank, f) for f in t.frames)) for t in s.threads
                ),
            )
            for s in one.stacks
        )
        ranks.append(msgspec.structs.replace(one, stacks=stacks))
    return msgspec.structs.replace(capture, ranks=tuple(ranks))


def _verdict(condition: str, here: dict[str, str], others: dict[str, str]) -> Verdict:
    """``here``: on the rank that is under the condition."""
    capture = load(_CAPTURE)
    inside = [r.rank for r in capture.ranks if _is_under(r.stacks[-1].main.frames if r.stacks[-1].main else ())]
    assert len(inside) == 1, "one rank of the capture is under an `if`"
    held = {r.rank: here if r.rank in inside else others for r in capture.ranks}
    return diagnose(_holding(capture, condition, held)).verdict


def _is_under(frames: tuple[Frame, ...]) -> bool:
    return any(b.text == _CONDITION for f in frames for b in f.blocks)


def _said(verdict: Verdict) -> str:
    assert verdict.cause is not None
    return verdict.cause.explanation


@pytest.mark.parametrize(
    ("condition", "here", "others", "told"),
    [
        ("if n_tokens > 0:", {"n_tokens": "int=31"}, {"n_tokens": "int=0"}, "`n_tokens` is 31 on rank"),
        ("if len(found) == 0:", {"found": "list[]"}, {"found": "list[Tensor, ...]"}, "`found` is empty on rank"),
        ("if batch is not None:", {"batch": "Tensor"}, {"batch": "None"}, "`batch` is a Tensor on rank"),
        ("if stop or n < 4:", {"stop": "bool=True", "n": "int=7"}, {"stop": "bool=False", "n": "int=7"}, "`stop` is True"),
        ("if 10 % 5 == k:", {"k": "int=0"}, {"k": "int=1"}, "`k` is 0 on rank"),
    ],
)  # fmt: skip
def test_values_on_both_sides_are_told(condition: str, here: dict[str, str], others: dict[str, str], told: str) -> None:
    """A number, a switch, nothing instead of something: in the explanation, and as evidence on a rank of each side."""
    verdict = _verdict(condition, here, others)
    assert told in _said(verdict)
    assert verdict.cause is not None
    assert len({e.rank for e in verdict.cause.evidence if e.says.startswith("`") and "` is " in e.says}) == 2


@pytest.mark.parametrize(
    ("condition", "here", "others"),
    [
        ("if n > 0:", {"n": "int=3"}, {"n": "int=4"}),
        ("if n > 0:", {"n": "int=0"}, {"n": "int=3"}),
        ("if n > least:", {"n": "int=3", "least": "float"}, {"n": "int=4", "least": "float"}),
        ("if self.n > 0:", {"n": "int=3"}, {"n": "int=0"}),
        ("if check(n):", {"n": "int=3"}, {"n": "int=0"}),
        ("if n > 0:", {"n": "int"}, {"n": "int=0"}),
        ("if step % 2:", {"step": "int=3"}, {"step": "int=0"}),
        ("if rank == 3:", {"rank": "int=3"}, {"rank": "int=0"}),
    ],
)
def test_what_explains_nothing_is_not_told(condition: str, here: dict[str, str], others: dict[str, str]) -> None:
    """It holds on both sides, on the wrong one, or its outcome is not known: the variables may have changed since."""
    said = _said(_verdict(condition, here, others))
    assert "` is 3 on" not in said
    assert "` is 0 on" not in said


@pytest.mark.parametrize(
    ("header", "inside", "past", "told"),
    [
        ("for _ in range(n_batches):", "int=9", "int=8", "`n_batches` is 9 on rank 1 and 8 on rank"),
        ("while n_batches > 0:", "int=2", "int=0", "`n_batches` is 2 on rank 1 and 0 on rank"),
        ("for _ in range(n_batches):", "int=8", "int=9", ""),
        ("for _ in reversed(range(n_batches)):", "int=9", "int=8", ""),
    ],
)
def test_bounds_of_a_loop_are_told_where_they_differ(header: str, inside: str, past: str, told: str) -> None:
    """Of a loop that one rank is in and the other past: only if the one in it had more iterations."""
    capture = load("uneven_while")
    held = {r.rank: {"n_batches": inside if r.rank == 1 else past} for r in capture.ranks}
    said = _said(diagnose(_holding(capture, header, held, "while True:")).verdict)
    assert (told in said) if told else ("n_batches` is" not in said)
