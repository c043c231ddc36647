"""What a scrape shows of training: the job's values once, a rank's own where they differ, and never more than a bound."""

from __future__ import annotations

import math

from hangwatch.model.telemetry import LoggedStep, RankSteps, TrainingSeries
from hangwatch.outputs.metrics.exposition import OTHERS_LIMIT, training_families


def steps(rank: int, loss: float, count: int = 3, **values: float) -> tuple[LoggedStep, ...]:
    """A few logged steps."""
    return tuple(LoggedStep("report", 0, step, rank, loss=loss, **values) for step in range(1, count + 1))


def shown(series: TrainingSeries) -> dict[tuple[str, int], float]:
    """Every value by metric and rank."""
    families = training_families([("job", series)])
    return {(s.name, int(s.labels["rank"])): s.value for family in families for s in family.samples}


def test_a_job_that_has_said_nothing_has_no_families() -> None:
    """Nothing is shown before the first step."""
    assert list(training_families([("job", TrainingSeries(0))])) == []


def test_a_rank_that_agrees_is_not_shown_again() -> None:
    """The job has one series under its main rank; another rank has one while its values differ at a step that both logged."""
    series = TrainingSeries(
        0, steps(0, 2.5), (RankSteps(1, steps(1, 2.5)), RankSteps(2, steps(2, 9.0)), RankSteps(None, steps(3, 7.0))),
        reached={0: 30, 1: 31, 2: 12}, steps_per_s={0: 4.0, 1: 4.0},
    )  # fmt: skip
    assert shown(series) == {
        ("hangwatch_training_loss", 0): 2.5,
        ("hangwatch_training_loss", 2): 9.0,
        ("hangwatch_training_step", 0): 30,
        ("hangwatch_training_step", 2): 12,
        ("hangwatch_training_steps_per_second", 0): 4.0,
    }


def test_what_is_not_finite_is_shown_as_it_is() -> None:
    """An alert on NaN needs the NaN, and two ranks of NaN are no difference."""
    series = TrainingSeries(0, steps(0, math.nan, grad_norm=math.inf), (RankSteps(1, steps(1, math.nan)),))
    found = shown(series)
    assert math.isnan(found["hangwatch_training_loss", 0])
    assert found["hangwatch_training_grad_norm", 0] == math.inf
    assert ("hangwatch_training_loss", 1) not in found


def test_the_ranks_of_a_log_are_bounded() -> None:
    """A log may name any number of ranks: no more than the lowest hundred are shown beside the main one."""
    others = range(1, 5000)
    series = TrainingSeries(
        0, steps(0, 1.0), tuple(RankSteps(rank, steps(rank, 2.0)) for rank in reversed(others)),
        reached={0: 9, **dict.fromkeys(others, 1)},
    )  # fmt: skip
    found = shown(series)
    for name in ("hangwatch_training_loss", "hangwatch_training_step"):
        assert [rank for metric, rank in sorted(found) if metric == name] == list(range(OTHERS_LIMIT + 1))
