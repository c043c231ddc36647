"""Logged steps of several sources become one series."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hangwatch.model.telemetry import LoggedStep
from hangwatch.training.analysis.series import FIRST_KEPT, LAST_KEPT, Pace, SeriesBuilder, make_series


def _step(source: str, number: int | None, **values: object) -> LoggedStep:
    return LoggedStep(source=source, at_ns=1, step=number, **values)  # type: ignore[arg-type]


def _ledger(*steps: LoggedStep) -> SeriesBuilder:
    builder = SeriesBuilder()
    for step in steps:
        builder.add(step)
    return builder


def test_sources_complete_each_other_and_are_named() -> None:
    """The trainer's word comes before the engine's, the engine adds what the trainer does not know, a file what neither does."""
    steps = (
        _step("/log", 1, loss=9.0, epoch=0.1),
        _step("deepspeed", 1, grad_norm=3.0, skipped_steps=1),
        _step("transformers", 1, loss=2.0, grad_norm=1.0),
    )
    for order in (steps, steps[::-1]):
        (merged,) = _ledger(*order).steps()
        assert (merged.source, merged.loss, merged.grad_norm, merged.skipped_steps, merged.epoch) == (
            "transformers", 2.0, 1.0, 1, 0.1,
        )  # fmt: skip


def test_a_step_that_goes_back_begins_a_new_run() -> None:
    """What the last run logged is forgotten, also what a slower source still says of it."""
    builder = _ledger(*(_step("transformers", n, loss=1.0) for n in (1, 2, 3)), _step("/log", 2, loss=1.0))
    builder.add(_step("transformers", 1, loss=5.0))
    builder.add(_step("/log", 3, loss=1.0))
    assert [(step.step, step.loss) for step in builder.steps()] == [(1, 5.0)]
    builder.add(_step("/log", 1, loss=4.0, epoch=0.5))
    assert [(step.step, step.loss, step.epoch) for step in builder.steps()] == [(1, 5.0, 0.5)]
    assert builder.runs == 2


def test_lines_without_a_step_are_counted_until_somebody_names_one() -> None:
    """Counts stand for steps only as long as no source tells both step and loss; DeepSpeed's bare numbers are none of them."""
    builder = _ledger(
        _step("deepspeed", 10, skipped_steps=2), _step("/log", None, loss=3.0), _step("/log", None, loss=2.0),
        _step("deepspeed", 20, skipped_steps=3),
    )  # fmt: skip
    assert [(step.step, step.loss, step.texts) for step in builder.steps()] == [
        (1, 3.0, {"step": "counted"}),
        (2, 2.0, {"step": "counted"}),
    ]
    builder.add(_step("transformers", 30, loss=1.0))
    builder.add(_step("/log", None, loss=1.0))
    assert [(step.step, step.loss) for step in builder.steps()] == [(30, 1.0)]


@given(st.lists(st.integers(1, 5000), unique=True, max_size=200))
def test_order_of_arrival_does_not_matter(numbers: list[int]) -> None:
    """Late and early entries of a lesser source end up in ascending order, each once."""
    builder = _ledger(_step("report", 5001, loss=1.0), *(_step("/log", number, loss=1.0) for number in numbers))
    assert [step.step for step in builder.steps()] == sorted([*numbers, 5001])


def test_a_long_series_keeps_its_ends() -> None:
    """Memory is bounded: the first and the last steps stay."""
    builder = _ledger(*(_step("report", number, loss=1.0) for number in range(10_000)))
    numbers = [step.step for step in builder.steps()]
    assert numbers == [*range(FIRST_KEPT), *range(10_000 - LAST_KEPT, 10_000)]


def test_pace_falls_while_no_step_follows() -> None:
    """Steps a second are those of the last observations, and fall once the next one is late."""
    pace = Pace()
    for number in range(11):
        pace.note(number, number * 500_000_000)
    assert pace.per_s(5_100_000_000) == 2.0
    late = pace.per_s(60_000_000_000)
    assert late is not None
    assert late < 0.2


def test_series_of_a_job_is_that_of_its_first_rank() -> None:
    """Rank 0 speaks for the job, output that names no rank completes it, other ranks stand beside it."""
    series = make_series(
        5,
        {
            1: _ledger(_step("report", 1, loss=7.0)),
            0: _ledger(_step("report", 1, loss=2.0)),
            None: _ledger(_step("/log", 1, learning_rate=0.1), _step("/log", 2, loss=1.5)),
        },
        {},
        {},
    )
    assert [(step.step, step.loss, step.learning_rate) for step in series.steps] == [(1, 2.0, 0.1), (2, 1.5, None)]
    assert [(found.rank, found.steps[0].loss) for found in series.ranks] == [(1, 7.0)]
    assert series.of_rank(1)[0].loss == 7.0
