"""What may lead past a call: told from the text of a program with a line for each side, whatever dress it is in."""

from __future__ import annotations

import re

import msgspec
import pytest

from hangwatch.analysis.divergence.relate import Side, own_blocks, relate
from hangwatch.analysis.divergence.values import fewer_iterations
from hangwatch.causes.rules.diverged.operations import in_each_branch
from hangwatch.causes.rules.diverged.sharded import ends_by_outcome
from hangwatch.model.stacks import Frame, Position
from hangwatch.program.blocks import SourceTree


def _side(program: str, rank: int, mark: str, **counters: int) -> Side:
    """The path of the side whose lines are marked ``# MARK``, or ``# both``; a function's line is below the one that calls it."""
    tree, lines, found, name = SourceTree(program), program.splitlines(), [], "<module>"
    for number, line in enumerate(lines, 1):
        header = re.match(r"def (\w+)", line)
        name = header[1] if header else name
        if re.search(rf"# (?:{mark}|both)$", line):
            known = {counter: f"int={value}" for counter, value in counters.items()}
            found.append(Frame(name, "/srv/train/train.py", number, line.strip(), known, tuple(tree.blocks_at(number))))
    return Side(rank, tuple(found), tuple(found))


SWALLOWED = """
def score(model):
    rows = [parse(line) for line in read()]
    gather(rows)  # behind
def main():
    for step in range(80):
        loss.backward()  # ahead
        if step % 40 == 0:
            try:
                score(model)  # behind
            except Exception:
                log("failed")
"""
IF_AND_ELSE = """
def main():
    if rank == 0:
        dist.broadcast(sizes, 0)  # one
    else:
        dist.all_reduce(sizes)  # other
"""
RETURNS = """
def collect(figures):
    if rank == 0:
        dist.all_gather_object(parts, figures)  # one
        return parts
    dist.gather_object(figures)  # other
"""
BEHIND = """
def main():
    if rank == 0:
        dist.all_reduce(mean)  # one
    dist.barrier()  # other
"""
GOES_ON = """
def main():
    for batch in loader:
        if rank == 0:
            dist.all_reduce(mean)  # one
            continue
        dist.barrier()  # other
"""


@pytest.mark.parametrize(
    ("program", "opposite"), [(IF_AND_ELSE, True), (RETURNS, True), (BEHIND, False), (GOES_ON, False)]
)
def test_what_follows_a_return_is_the_other_branch(program: str, opposite: bool) -> None:
    """What merely follows an ``if`` is not."""
    assert relate(_side(program, 0, "one"), _side(program, 1, "other")).opposite is opposite


def test_own_blocks_leave_out_what_is_around_both() -> None:
    """The loop is shared; the condition and the try are one side's."""
    ahead, behind = _side(SWALLOWED, 0, "ahead"), _side(SWALLOWED, 1, "behind")
    assert [b.kind for b in own_blocks(_tail(behind), _tail(ahead))] == ["if", "try"]


@pytest.mark.parametrize(("leaves", "ranked"), [("raise ValueError", False), ("return", True)])
def test_a_check_that_raises_parts_no_ranks(leaves: str, ranked: bool) -> None:
    """Whoever it holds for has failed: that it speaks of the rank says nothing of who is past it."""
    program = f"def main():\n    wait()  # other\n    if rank == 2:\n        {leaves}\n    gather(rows)  # one\n"
    assert relate(_side(program, 0, "one"), _side(program, 1, "other")).ranked is ranked


def _tail(side: Side) -> Side:
    """The side as the divergence has it: deepest frame first, ``main`` the one in which the two part."""
    path = tuple(sorted(side.path, key=lambda frame: frame.function == "main"))
    return Side(side.rank, path, path)


CHAIN = """
def main():
    for step in range(80):
        if step == 40:
            if mode == "plain":
                pass
            elif mode == "sizes":
                pass
            elif mode == "extra":
                {call}
        dist.all_reduce(x)  # other
"""


@pytest.mark.parametrize(
    ("call", "condition"),
    [
        ("dist.all_reduce(x)  # one", 'elif mode == "extra":'),
        ("if rank == 0:\n                    dist.all_reduce(x)  # one", "if rank == 0:"),
        ("if failed:\n                    dist.all_reduce(x)  # one", 'elif mode == "extra":'),
    ],
)
def test_of_a_long_chain_the_branch_taken_is_named(call: str, condition: str) -> None:
    """Not the iteration, which is the same on every rank, and not the ``else`` of another branch."""
    one, other = (_tail(_side(CHAIN.format(call=call), n, mark)) for n, mark in enumerate(("one", "other")))
    fork = relate(one, other)
    assert fork.block is not None
    assert (fork.relation, fork.block.kind, fork.block.text) == ("branch", "if", condition)


UNDER_MORE = """
def main():
    if step == 40:
        {first}
    else:
        dist.all_gather(parts, x)  # other
"""


@pytest.mark.parametrize(
    ("first", "each"),
    [("dist.all_reduce(x)  # one", True), ("if rank == 0:\n            dist.all_reduce(x)  # one", False)],
)
def test_a_call_under_a_further_condition_is_none_of_the_branch(first: str, each: bool) -> None:
    """What ``if rank == 0:`` is around in one branch, the others leave out."""
    one, other = (_tail(_side(UNDER_MORE.format(first=first), n, mark)) for n, mark in enumerate(("one", "other")))
    assert in_each_branch(relate(one, other)) is each


SHARED_LOOP = """
def main():
    for step in range(first, STEPS):
        loss.backward()  # behind
        for p in shared:
            reduce(p)  # ahead
"""


@pytest.mark.parametrize(("behind", "relation"), [({"step": 4}, "order"), ({"step": 5}, "loop"), ({}, "loop")])
def test_a_side_before_a_loop_has_not_been_in_it(behind: dict[str, int], relation: str) -> None:
    """Where both are in one iteration of the loop around; in the next one it is past it, and without a count it may be."""
    found = relate(_side(SHARED_LOOP, 1, "ahead", step=4), _side(SHARED_LOOP, 0, "behind", **behind))
    assert found.relation == relation


ITEMS = """
def train(steps):
    for step in range(steps):
        reduce(gradient)  # ahead
def main():
    for name in stages:
        scale = moments(name)  # behind
        train(steps)  # ahead
"""


def _at_item(side: Side, digest: str | None) -> Side:
    """The side at an item of the loop in ``main``, None: at one that was not seen."""
    positions = (Position("name", 6, digest),) if digest is not None else ()
    path = tuple(msgspec.structs.replace(f, positions=positions) if f.function == "main" else f for f in side.path)
    return Side(side.rank, path, path)


@pytest.mark.parametrize(("behind", "in_the_loop"), [("thin", False), ("thick", True), (None, True)])
def test_a_side_at_the_same_item_is_before_what_is_further_down(behind: str | None, in_the_loop: bool) -> None:
    """No number counts the iterations of the loop around both; what each is about is told alike in all processes of a node."""
    ahead, other = (_tail(_side(ITEMS, rank, mark)) for rank, mark in enumerate(("ahead", "behind")))
    found = relate(_at_item(other, behind), _at_item(ahead, "thin"))
    assert (found.relation == "loop") is in_the_loop


RESUMED = """
def main():
    for step in range(first, STEPS):
        reduce(gradient)  # inside
    dist.barrier()  # past
"""


@pytest.mark.parametrize(
    ("header", "inside", "past", "fewer"),
    [
        ("range(first, STEPS)", {"first": 20, "step": 39}, {"first": 30, "step": 39}, 10),
        ("range(first, STEPS)", {"first": 2, "step": 9}, {"first": 2, "step": 8}, 1),
        ("range(first, STEPS)", {"first": 20, "step": 39}, {"step": 39}, None),
        ("enumerate(loader)", {"step": 39}, {"step": 39}, 0),
        ("enumerate(loader, start=first + 1)", {"first": 4, "step": 20}, {"first": 6, "step": 20}, 2),
        ("enumerate(loader, first)", {"first": 100, "step": 120}, {"first": 200, "step": 220}, 0),
        ("enumerate(loader, start=first)", {"first": 4, "step": 20}, {"step": 20}, None),
    ],
)
def test_how_many_iterations_less_is_known_by_where_a_loop_began(
    header: str, inside: dict[str, int], past: dict[str, int], fewer: int | None
) -> None:
    """By what the variables hold on either side. A range has one end for all; what is enumerated is as long as it is."""
    program = RESUMED.replace("range(first, STEPS)", header)
    one, other = _side(program, 0, "inside", **inside), _side(program, 1, "past", **past)
    assert one.at is not None
    assert other.at is not None
    assert fewer_iterations(one.at.blocks[-1], one.at, other.at, inside["step"], past["step"]) == fewer


@pytest.mark.parametrize(
    ("header", "leaves", "by_outcome"),
    [
        ("while True", "if token == END:\n            break", True),
        ("for step in range(48)", "if token == END:\n            break", True),
        ("for step in range(48)", "if step == LIMIT:\n            break", False),
        ("for step in range(48)", "log(token)", False),
        ("for step, batch in enumerate(loader)", "if token == END:\n            break", False),
    ],
)
def test_a_loop_of_decoding_is_one_that_its_outcome_ends(header: str, leaves: str, by_outcome: bool) -> None:
    """A ``while``, or so many times at most; batches come from a ``for``, and may be counted."""
    program = f"""
def complete(tokens):
    {header}:
        token = model(tokens).argmax()  # inside
        {leaves}
"""
    side = _side(program, 0, "inside")
    assert side.at is not None
    assert ends_by_outcome(side.at.blocks[-1]) is by_outcome
