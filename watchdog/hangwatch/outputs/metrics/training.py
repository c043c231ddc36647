"""Metrics of training itself: the last logged values of each job. May import the model and prometheus_client.

A job has one series for its main rank (0, or the lowest rank that logs). Another rank has one only while it differs: in
most jobs every rank logs the same mean, and a thousand equal series would be useless. At most ``OTHERS_LIMIT`` differing
ranks are exported, lowest first: a log may name any number of ranks. NaN and infinities are exported unchanged, so that
alerts can match them (``hangwatch_training_loss != hangwatch_training_loss`` finds NaN).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from prometheus_client.core import Metric

from hangwatch.model.telemetry import LoggedStep, TrainingSeries
from hangwatch.outputs.metrics.families import counter, gauge

_WHERE = ("job_id", "rank")
_GAUGES = {
    "loss": "Loss as last logged.",
    "grad_norm": "Gradient norm as last logged.",
    "learning_rate": "Learning rate as last logged.",
}
#: Ranks are read one after the other, so they may appear this many steps apart without being so.
_STEPS_APART = 2
#: Maximum number of ranks besides the main one.
OTHERS_LIMIT = 100


def training_families(jobs: Iterable[tuple[str, TrainingSeries]]) -> Iterator[Metric]:
    """The families of all jobs, by (job label, series); none if no job has logged anything."""
    logging = [(job, series) for job, series in jobs if series.steps or series.reached]
    if not logging:
        return
    gauges = {name: gauge(f"training_{name}", text, _WHERE) for name, text in _GAUGES.items()}
    step = gauge("training_step", "Optimizer step reached.", _WHERE)
    skipped = counter("training_skipped_steps", "Optimizer steps skipped since the start of the run.", _WHERE)
    pace = gauge("training_steps_per_second", "Optimizer steps per second over the last minute.", _WHERE)
    for job, series in logging:
        main = _main_rank(series)
        for rank, steps in _differing_series(series, main):
            where = [job, str(rank)]
            for name, family in gauges.items():
                value = _last(steps, name)
                if value is not None:
                    family.add_metric(where, value)
            count = _last(steps, "skipped_steps")
            if count is not None:
                skipped.add_metric(where, count)
        for rank, reached in _differing_steps(_reached(series, main), main):
            step.add_metric([job, str(rank)], reached)
        if main in series.steps_per_s:
            pace.add_metric([job, str(main)], series.steps_per_s[main])
    yield from (*gauges.values(), step, skipped, pace)


def _main_rank(series: TrainingSeries) -> int:
    ranks = [*series.reached, *(setup.rank for setup in series.setups if setup.rank is not None)]
    return min(ranks, default=0)


def _reached(series: TrainingSeries, main: int) -> dict[int, int]:
    """The step of each rank; for the main rank its last logged step if nothing else is known."""
    last = next((step.step for step in reversed(series.steps) if step.step is not None), None)
    known = dict(series.reached)
    return known if main in known or last is None else {main: last, **known}


def _differing_steps(reached: Mapping[int, int], main: int) -> Iterator[tuple[int, int]]:
    """The step of the main rank, and of ranks at a different step."""
    if main in reached:
        yield main, reached[main]
        others = (rank for rank in sorted(reached) if abs(reached[rank] - reached[main]) > _STEPS_APART)
        yield from ((rank, reached[rank]) for rank in islice(others, OTHERS_LIMIT))


def _differing_series(series: TrainingSeries, main: int) -> Iterator[tuple[int, Sequence[LoggedStep]]]:
    """The job's own series, and those of ranks that differ from it at the last common step."""
    yield main, series.steps
    own = {step.step: step for step in series.steps}
    shown = 0
    others = {one.rank: one for one in series.ranks if one.rank is not None and one.rank != main}
    for rank, found in sorted(others.items()):
        both = next((step for step in reversed(found.steps) if step.step in own), None)
        if shown < OTHERS_LIMIT and both is not None and _differ(both, own[both.step]):
            shown += 1
            yield rank, found.steps


def _differ(one: LoggedStep, other: LoggedStep) -> bool:
    pairs = ((getattr(one, name), getattr(other, name)) for name in (*_GAUGES, "skipped_steps"))
    return any(a is not None and b is not None and a != b and not (math.isnan(a) and math.isnan(b)) for a, b in pairs)


def _last(steps: Sequence[LoggedStep], name: str) -> float | None:
    """The newest known value of that name."""
    return next((value for step in reversed(steps) if (value := getattr(step, name)) is not None), None)
