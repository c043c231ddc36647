"""Files that a training left, put together: the run that was written last, and what belongs to it."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from hangwatch.model.telemetry import LoggedStep
from hangwatch.training.analysis.runs import OutputSeries, choose_run, join


def _steps(losses: list[float], *, named: bool = True, source: str = "a", **more: float) -> tuple[LoggedStep, ...]:
    return tuple(
        LoggedStep(source, 1, step=number if named else None, loss=loss, **more)  # type: ignore[arg-type]
        for number, loss in enumerate(losses, 1)
    )


def _reported(
    name: str, at_ns: int, steps: tuple[LoggedStep, ...], rank: int | None = None, family: str = ""
) -> OutputSeries:
    return OutputSeries(family or name, name, at_ns, rank, steps)


def test_the_newest_run_is_taken_and_others_are_named() -> None:
    """A file with other losses at the same steps is of another run."""
    run = choose_run([_reported("new", 2, _steps([3.0, 2.0])), _reported("old", 1, _steps([9.0, 8.0]))])
    assert [step.loss for step in run.builders[None].steps()] == [3.0, 2.0]
    assert run.others == ("old",)


def test_files_of_one_run_complete_each_other() -> None:
    """The same losses, rounded or with 0 for NaN, are of the same run: each adds what the other does not tell."""
    state = _steps([3.12345, 2.5, math.nan], source="state")
    events = _steps([3.1234, 2.5, 0.0], source="events", grad_norm=1.5)
    run = choose_run([_reported("state", 2, state), _reported("events", 1, events)])
    steps = run.builders[None].steps()
    assert run.others == ()
    assert [step.grad_norm for step in steps] == [1.5, 1.5, 1.5]


def test_lines_that_name_no_step_get_the_numbers_of_a_file_that_does() -> None:
    """A console log and a state of the same run, whichever is the newer."""
    lines, state = _steps([3.0, 2.0, 1.0], named=False, grad_norm=2.0), _steps([3.0, 2.0, 1.0], source="state")
    for at_ns in (1, 3):
        run = choose_run([_reported("log", at_ns, lines), _reported("state", 2, state)])
        steps = run.builders[None].steps()
        assert [(step.step, step.grad_norm, step.texts) for step in steps] == [(n, 2.0, {}) for n in (1, 2, 3)]
    assert choose_run([_reported("log", 3, lines), _reported("state", 2, state[:2])]).others == ("state",)


def test_ranks_of_one_run_stay_apart() -> None:
    """What the ranks of a run wrote is not merged, and an older run's ranks are left out."""
    reported = [
        _reported("new/0", 2, _steps([1.0]), 0, "new"), _reported("new/1", 3, _steps([5.0]), 1, "new"),
        _reported("old/0", 1, _steps([7.0]), 0, "old"),
    ]  # fmt: skip
    run = choose_run(reported)
    assert {rank: builder.steps()[0].loss for rank, builder in run.builders.items()} == {0: 1.0, 1: 5.0}
    assert run.others == ("old",)


def test_a_long_run_is_kept_whole() -> None:
    """The step that began it lies thousands of lines before the end, and is there."""
    run = choose_run([_reported("log", 1, _steps([1.0] * 3000))])
    assert len(run.builders[None].steps()) == 3000


@given(st.lists(st.floats(allow_infinity=True, allow_nan=True), min_size=1, max_size=8))
def test_a_series_always_belongs_to_itself(losses: list[float]) -> None:
    """Whatever the losses are."""
    steps = _steps(losses)
    assert join(steps, steps) is not None
