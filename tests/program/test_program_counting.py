"""Which variables count the iterations of a loop, and which loops may end before their data does."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import psutil
import pytest

from hangwatch.model.stacks import StackSample
from hangwatch.program.blocks import SourceTree
from hangwatch.sources.stacks.samples import sample_stacks
from support import JobRunner, wait_for


def _loop(header: str, *body: str, before: str = "pass") -> tuple[str | None, bool]:
    """The counter of a loop in a function, and whether it may end early."""
    lines = ["def train():", f"    {before}", f"    {header}", *(f"        {line}" for line in body), "        work()"]
    (block,) = (
        b for b in SourceTree("\n".join(lines)).blocks_at(len(lines)) if b.kind in {"for", "while"} and b.line == 3
    )
    return (block.iterations.counter, block.iterations.breaks) if block.iterations is not None else (None, False)


@pytest.mark.parametrize(
    ("header", "counter"),
    [
        ("for step, batch in enumerate(loader):", "step"),
        ("for step, (x, y) in enumerate(loader, start=1):", "step"),
        ("for epoch in range(epochs):", "epoch"),
        ("for _ in range(2, 9):", "_"),
        ("for i in trange(9):", "i"),
        ("for step, batch in tqdm.tqdm(enumerate(loader), disable=rank > 0):", "step"),
        ("for step, batch in zip(itertools.count(), loader):", "step"),
        ("for step, batch in zip(range(100), loader):", "step"),
        ("for i in range(9, 0, -1):", None),
        ("for i in reversed(range(9)):", None),
        ("for batch in loader:", None),
        ("for name, parameter in model.named_parameters():", None),
        ("for state.step, batch in enumerate(loader):", None),
        ("while step < steps:", None),
    ],
)
def test_a_counter_is_one_more_in_each_iteration(header: str, counter: str | None) -> None:
    """Only what is so by the words of the loop."""
    assert _loop(header)[0] == counter


@pytest.mark.parametrize(
    ("before", "resumed"),
    [("step = 0", False), ("step, state = journal.newest()", True), ("step = state['step']", True)],
)
def test_a_count_that_begins_elsewhere_is_of_more_than_these_iterations(before: str, resumed: bool) -> None:
    """Ranks that resume may begin with other numbers."""
    lines = ["def train():", f"    {before}", "    while step < steps:", "        step += 1", "        work()"]
    (block,) = SourceTree("\n".join(lines)).blocks_at(5)
    assert block.iterations is not None
    assert (block.iterations.counter, block.iterations.resumed) == ("step", resumed)


@pytest.mark.parametrize("other", ["step = 3", "step += 1", "del step", "(step := 4)"])
def test_what_is_bound_elsewhere_counts_nothing(other: str) -> None:
    """A variable with two meanings says nothing of a loop that has ended."""
    assert _loop("for step in range(3):", other)[0] is None
    assert _loop("for step in range(3):", before=other)[0] is None


def test_a_comprehension_has_variables_of_its_own() -> None:
    """They are no other meaning of the counter, be it beside the loop or in it."""
    other = "parts = [torch.empty_like(mine) for _ in range(world)]"
    assert _loop("for _ in range(3):", other)[0] == "_"
    assert _loop("for _ in range(3):", before=other)[0] == "_"


@pytest.mark.parametrize(
    ("body", "counter"),
    [
        (["step += 1"], "step"),
        (["if bad(batch):", "    continue", "step += 1"], None),
        (["for x in batch:", "    continue", "step += 1"], "step"),
        (["if good(batch):", "    step += 1"], None),
        (["step += len(batch)"], None),
        (["step += 1", "if step == 4:", "    step = 0"], None),
    ],
)
@pytest.mark.parametrize("header", ["for batch in loader:", "while step < 9:"])
def test_a_step_that_every_iteration_passes_counts(header: str, body: list[str], counter: str | None) -> None:
    """As long as no iteration can go round it, and nothing else is done to it."""
    assert _loop(header, *body, before="step = 0")[0] == counter
    assert _loop(header, *body)[0] is None


def test_a_function_inside_has_variables_of_its_own() -> None:
    """Neither does it bind ours, nor we its own."""
    assert _loop("for i in range(3):", before="def inner(): i = 1")[0] == "i"


@pytest.mark.parametrize(
    ("body", "breaks"),
    [
        (["if loss > 3:", "    break"], True),
        (["try:", "    work()", "except ValueError:", "    break"], True),
        (["if bad(batch):", "    return None"], True),
        (["with timer:", "    if bad(batch):", "        break"], True),
        (["if bad(batch):", "    continue"], False),
        (["for x in batch:", "    break"], False),
        (["for x in batch:", "    return x"], True),
        (["def inner():", "    return 1"], False),
        (["if step >= limit:", "    break"], False),
        (["if step >= limit:", "    pass", "elif bad(batch):", "    break"], True),
    ],
)
def test_a_loop_may_end_before_its_data(body: list[str], breaks: bool) -> None:
    """By a break or return of its own, unless which iteration it is decides: that is the same on every rank."""
    assert _loop("for step, batch in enumerate(loader):", *body)[1] is breaks


_PROGRAM = """
import sys, time

def rest():
    pin, turns, words = 4711, 0, 0
    for epoch in range(3):
        for step, word in enumerate("abcdef"):
            turns += 1
            words += len(word)
    open(sys.argv[1], "w").close()
    time.sleep(600)

rest()
"""


def test_only_counters_keep_their_value(jobs: JobRunner, tmp_path: Path) -> None:
    """Of a real process: a loop's counter is read, after the loop as well; no other number leaves the reader."""
    script, ready = tmp_path / "program.py", tmp_path / "ready"
    script.write_text(_PROGRAM)
    job = jobs.start([sys.executable, script, ready])
    wait_for(ready.exists, what="the program")
    wait_for(lambda: psutil.Process(job.pid).status() == psutil.STATUS_SLEEPING, what="its rest")

    def held() -> dict[str, str] | None:
        found = asyncio.run(sample_stacks([job.pid]))[job.pid]
        assert isinstance(found, StackSample)
        assert found.main is not None
        return found.main.frames[0].locals

    assert held() == {"pin": "int", "turns": "int", "words": "int", "epoch": "int=2", "step": "int=5", "word": "str(1)"}
    script.unlink()
    assert held() == {"pin": "int", "turns": "int", "words": "int", "epoch": "int", "step": "int", "word": "str(1)"}


@pytest.mark.parametrize(
    ("header", "body", "bounded"),
    [
        ("for i in range(n):", ("put(i)", "time.sleep(1)"), True),
        ("for i, tile in enumerate(tiles):", ("put(tile)",), True),
        ("for i in range(n):", ("try:", "    put(i)", "except OSError:", "    time.sleep(1)"), True),
        ("for i in range(n):", ("time.sleep(1)",), False),
        ("for i in range(n):", ("if ready():", "    break", "time.sleep(1)"), False),
        ("for i in range(n):", ("if late():", "    note(i)", "time.sleep(1)"), False),
        ("for i in itertools.count():", ("put(i)",), False),
        ("for i, x in enumerate(iter(get, None)):", ("put(x)",), True),
        ("for i, x in enumerate(iter(get, 'done')):", ("put(x)",), False),
        ("while i < n:", ("i += 1", "put(i)"), True),
        ("while not ready():", ("i += 1", "put(i)"), False),
        ("while not done and i < n:", ("i += 1", "done = ready()"), False),
        ("while i < limit():", ("i += 1", "put(i)"), False),
        ("while True:", ("i += 1", "put(i)"), False),
    ],
)
def test_loops_that_their_number_of_iterations_ends(header: str, body: tuple[str, ...], bounded: bool) -> None:
    """Whoever is in the next iteration has got on: not where it polls, and not where it only passes the time."""
    before = "i = 0" if header.startswith("while") else "pass"
    lines = ["def f(n):", f"    {before}", f"    {header}", *(f"        {line}" for line in body)]
    blocks = SourceTree("\n".join(lines)).blocks_at(len(lines))
    (block,) = (b for b in blocks if b.line == 3)
    assert (block.iterations is not None and block.iterations.bounded) == bounded
