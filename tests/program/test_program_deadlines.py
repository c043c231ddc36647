"""When a loop ends that goes on until a time: from its condition, and of a real process."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import pytest

from hangwatch.model.stacks import StackSample
from hangwatch.program.blocks import SourceTree
from hangwatch.program.deadlines import left_s
from hangwatch.sources.stacks.samples import sample_stacks
from support import JobRunner, wait_for

PROGRAM = """
import time

def work(seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        sum(range(1000))
        time.sleep(0.05)

print("begins", flush=True)
work(600)
"""


@pytest.mark.parametrize(
    ("text", "values", "found"),
    [
        ("while time.monotonic() < until:", {"until": 30.0}, 30.0),
        ("while until > time.perf_counter():", {"until": 30.0}, 30.0),
        ("while monotonic() - began < 45:", {"began": -5.0}, 40.0),
        ("while time.monotonic() - began <= limit:", {"began": 0.0}, None),
        ("while time.monotonic() < self.until:", {}, None),
        ("while not done:", {"done": 30.0}, None),
        ("while time.monotonic() > until:", {"until": 30.0}, None),
        ("while time.monotonic( < until:", {"until": 30.0}, None),
    ],
)
def test_its_end_is_in_its_condition(text: str, values: dict[str, float], found: float | None) -> None:
    """As a time, or as what may have passed since one. Values are told from the clock now."""
    now = time.monotonic()
    held = {name: repr(now + value) for name, value in values.items()}
    left = left_s(SourceTree(f"{text}\n    work()").deadlines_at(2), held)
    assert left == ((pytest.approx(found, abs=1.0), 0.0) if found is not None else None)


@pytest.mark.parametrize(
    ("body", "values", "found"),
    [
        (("while left > 0:", "    print(left)", "    time.sleep(1)", "    left -= 1"), {"left": "7"}, (7.0, 1.0)),
        (("while tries < limit:", "    sleep(0.5)", "    tries += 1"), {"tries": "2", "limit": "8"}, (3.0, 0.5)),
        (("while left >= 1:", "    sleep(2)", "    left -= 3"), {"left": "8"}, (6.0, 2.0)),
        (("while left > 0:", "    sleep(1)", "    left += 1"), {"left": "7"}, None),
        (("while left > 0:", "    sleep(1)", "    if ready():", "        left -= 1"), {"left": "7"}, None),
        (("while left > 0:", "    if ready(): continue", "    sleep(1)", "    left -= 1"), {"left": "7"}, None),
        (("while left > 0:", "    sleep(pause)", "    left -= 1"), {"left": "7", "pause": "0.5"}, (3.5, 0.5)),
        (("while left > 0:", "    sleep(pause)", "    left -= 1"), {"left": "7"}, None),
        (("for minute in range(n):", "    sleep(2)", "    print(minute)"), {"minute": "1", "n": "4"}, (6.0, 2.0)),
        (("for _ in range(1, 5):", "    sleep(2)", "    sleep(1)"), {"_": "3"}, (6.0, 3.0)),
        (("for _ in range(0, 5, 2):", "    sleep(2)"), {"_": "3"}, None),
        (("for item in items:", "    sleep(2)"), {"item": "3", "items": "5"}, None),
        (("while not ready():", "    sleep(1)", "    left -= 1"), {"left": "7"}, None),
        (("while left > 0:", "    sleep(1)", "    left -= 1"), {}, None),
    ],
)
def test_a_loop_that_counts_its_sleeps_ends_with_the_last(
    body: tuple[str, ...], values: dict[str, str], found: tuple[float, float] | None
) -> None:
    """By a step of a fixed width and the sleeps that every iteration comes by."""
    tree = SourceTree("\n".join(["def work():", *(f"    {one}" for one in body)]))
    assert left_s(tree.deadlines_at(3), values) == found


def test_what_is_no_time_of_the_clock_says_nothing() -> None:
    """A variable may be called so and hold something else."""
    loop = SourceTree("for x in y:\n  while time.monotonic() < until:\n    work()").deadlines_at(3)
    assert len(loop) == 1
    assert left_s(loop, {"until": "1e12"}) is None
    assert left_s(loop, {"until": "soon"}) is None
    assert left_s((), {}) is None


def test_a_loop_of_a_real_process_is_known_by_its_end(jobs: JobRunner, tmp_path: Path) -> None:
    """Of the time itself nothing is kept."""
    program = tmp_path / "worker.py"
    program.write_text(PROGRAM)
    job = jobs.start([sys.executable, program])
    job.wait_for_output("begins")

    def sampled() -> StackSample | None:
        found = asyncio.run(sample_stacks([job.pid])).get(job.pid)
        main = found.main if isinstance(found, StackSample) else None
        return found if main is not None and any(f.ends_in_s is not None for f in main.frames) else None

    sample = wait_for(sampled)
    assert sample.main is not None
    (frame,) = (f for f in sample.main.frames if f.ends_in_s is not None)
    assert 0 < (frame.ends_in_s or 0) <= 600
    assert (frame.locals or {})["until"] == "float"
