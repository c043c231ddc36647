"""Merges logged steps of several sources into one series, by step; every value keeps its source. Pure."""

from __future__ import annotations

from collections import deque

import msgspec

from hangwatch.model.telemetry import VALUES, LoggedStep, RankSteps, TrainingSeries, TrainingSetup

#: How many first and last steps of a long series are kept.
FIRST_KEPT = 64
LAST_KEPT = 512
#: The order in which sources are trusted if they differ on a step; files come last.
_ORDER = ("report", "transformers", "deepspeed", "lightning")
#: Over how many observations of the step the pace is taken, and after how long without a move it is 0.
_PACE_KEPT = 32
_PACE_WINDOW_NS = 60_000_000_000
#: Lines that name no step begin anew where the epoch goes back by more than this, and than a tenth of it: two nodes that
#: write into one log are a step apart, and epochs are printed with two digits.
_EPOCHS_BACK = 0.02
#: What ``texts`` says of a step number that is a mere count of lines.
COUNTED = "counted"


def precedence(source: str) -> int:
    """Return the rank of a source; the lower, the more it is trusted."""
    return _ORDER.index(source) if source in _ORDER else len(_ORDER)


def merge(one: LoggedStep, other: LoggedStep) -> LoggedStep:
    """Return one step from two reports of it; of two by the same source the later one counts."""
    first, second = (other, one) if precedence(other.source) <= precedence(one.source) else (one, other)
    values: dict[str, object] = {}
    texts = dict(second.texts)
    for name in VALUES:
        known = getattr(first, name)
        if known is None and (value := getattr(second, name)) is not None:
            values[name] = value
        elif known is not None:
            texts.pop(name, None)
    rank = first.rank if first.rank is not None else second.rank
    at_ns = min(one.at_ns, other.at_ns)
    return msgspec.structs.replace(first, **values, rank=rank, at_ns=at_ns, texts={**texts, **first.texts})


class SeriesBuilder:
    """The steps of one rank (or of output that names none), added one by one, limited in number.

    A step number of the best source that goes back begins a new run: earlier steps are forgotten, and other sources'
    later reports of them ignored. The first ``FIRST_KEPT`` steps of a run are kept, and the last ``last_kept``.
    """

    def __init__(self, last_kept: int = LAST_KEPT) -> None:
        self.runs = 1
        self._last_kept = last_kept
        self._steps: dict[int, LoggedStep] = {}
        self._sorted = True
        self._last: dict[str, int] = {}
        self._stale: dict[str, int] = {}
        #: The number of counted lines by source, for sources without step numbers; empty once a source with them has a loss.
        self._counts: dict[str, int] = {}
        self._epochs: dict[str, float] = {}
        self._loss_numbered = False

    def add(self, entry: LoggedStep) -> None:
        """Take in what one source says of one step.

        Step numbers and counted lines are never mixed. A source that names both step and loss is preferred. While
        only output without step numbers has losses, reports without a loss are ignored: they belong to no known line.
        """
        found: LoggedStep | None = entry
        if entry.step is None:
            found = self._count(entry)
        elif entry.loss is not None:
            self._loss_numbered = True
            if self._counts:
                self._begin_again()
        elif self._counts:
            return
        if found is None or found.step is None or not self._is_current(found.source, found.step):
            return
        self._put(found, found.step)

    def _count(self, entry: LoggedStep) -> LoggedStep | None:
        """Return a step without a number with one; None if it tells nothing new."""
        if entry.loss is None or self._loss_numbered:
            return None
        if not self._counts:
            self._begin_again()
        if entry.epoch is not None:
            last = self._epochs.get(entry.source, 0.0)
            if entry.epoch + _EPOCHS_BACK < 0.9 * last:
                self.runs += 1
                self._begin_again()
            self._epochs[entry.source] = entry.epoch
        count = self._counts[entry.source] = self._counts.get(entry.source, 0) + 1
        return msgspec.structs.replace(entry, step=count, texts={**entry.texts, "step": COUNTED})

    def _put(self, entry: LoggedStep, step: int) -> None:
        known = self._steps.get(step)
        if known is None and self._steps and self._sorted:
            self._sorted = next(reversed(self._steps)) < step
        self._steps[step] = merge(known, entry) if known is not None else entry
        self._last[entry.source] = step
        if len(self._steps) > FIRST_KEPT + 2 * self._last_kept:
            self._thin()

    def steps(self) -> tuple[LoggedStep, ...]:
        """Return the series, ascending by step."""
        self._sort()
        if len(self._steps) > FIRST_KEPT + self._last_kept:
            kept = tuple(self._steps.values())
            return (*kept[:FIRST_KEPT], *kept[-self._last_kept :])
        return tuple(self._steps.values())

    def _is_current(self, source: str, step: int) -> bool:
        """True if a step belongs to the present run. Begins a new run if the best source goes back."""
        stale = self._stale.get(source)
        if stale is not None:
            if step > stale:
                self._stale[source] = step
                return False
            del self._stale[source]
            return True
        last = self._last.get(source)
        if last is not None and step < last and precedence(source) <= min(map(precedence, self._last)):
            self.runs += 1
            self._stale = {name: number for name, number in self._last.items() if name != source}
            self._begin_again()
        return True

    def _begin_again(self) -> None:
        self._steps.clear()
        self._last.clear()
        self._counts.clear()
        self._epochs.clear()
        self._sorted = True

    def _sort(self) -> None:
        if not self._sorted:
            self._steps = dict(sorted(self._steps.items()))
            self._sorted = True

    def _thin(self) -> None:
        self._sort()
        numbers = list(self._steps)
        for number in numbers[FIRST_KEPT : -self._last_kept]:
            del self._steps[number]


class Pace:
    """Steps per second of one rank, from when it was seen at which step."""

    def __init__(self) -> None:
        self._seen: deque[tuple[int, int]] = deque(maxlen=_PACE_KEPT)
        self.step: int | None = None

    def note(self, step: int, at_ns: int) -> None:
        """Note that the rank was at ``step`` at that time."""
        if self.step is not None and step < self.step:
            self._seen.clear()
        if step != self.step or not self._seen:
            self._seen.append((step, at_ns))
        self.step = step

    def per_s(self, now_ns: int) -> float | None:
        """Return optimizer steps per second over the last observations; None before there are two.

        It falls while no new step is seen.
        """
        if len(self._seen) < 2:
            return None
        seen = list(self._seen)
        recent = [one for one in seen if now_ns - one[1] <= _PACE_WINDOW_NS]
        (first, first_ns), (last, last_ns) = (recent if len(recent) > 1 else seen[-2:])[0], seen[-1]
        steps, duration_ns = last - first, last_ns - first_ns
        if now_ns - last_ns > 2 * duration_ns / max(len(recent) - 1, 1):  # the next one is late
            duration_ns = now_ns - first_ns
        return 1e9 * steps / duration_ns if duration_ns > 0 else None


def make_series(
    at_ns: int,
    builders: dict[int | None, SeriesBuilder],
    setups: dict[int, TrainingSetup],
    paces: dict[int, Pace],
) -> TrainingSeries:
    """Return everything known as one value.

    ``builders``: by rank; under None is what names no rank, which completes the job's own series.
    """
    ranked = sorted(rank for rank in builders if rank is not None)
    main = ranked[0] if ranked else None
    own = builders[main].steps() if main is not None else ()
    unranked = builders[None].steps() if None in builders else ()
    return TrainingSeries(
        at_ns=at_ns,
        steps=_join(own, unranked),
        ranks=tuple(RankSteps(rank, steps) for rank in ranked[1:] if (steps := builders[rank].steps())),
        setups=tuple(setups[rank] for rank in sorted(setups)),
        reached={rank: pace.step for rank, pace in sorted(paces.items()) if pace.step is not None},
        runs=max((builder.runs for rank, builder in builders.items() if rank in {main, None}), default=1),
        steps_per_s={rank: speed for rank, pace in sorted(paces.items()) if (speed := pace.per_s(at_ns)) is not None},
    )


def _join(own: tuple[LoggedStep, ...], unranked: tuple[LoggedStep, ...]) -> tuple[LoggedStep, ...]:
    """Return a rank's own steps completed by output that names no rank.

    Lines with counted numbers match no step of the other side.
    """
    if not own or not unranked:
        return own or unranked
    if unranked[-1].texts.get("step") == COUNTED:
        return own if any(step.loss is not None for step in own) else unranked
    merged = {step.step: step for step in own}
    for step in unranked:
        known = merged.get(step.step)
        merged[step.step] = merge(known, step) if known is not None else step
    return tuple(merged[number] for number in sorted(merged, key=lambda number: number or 0))
