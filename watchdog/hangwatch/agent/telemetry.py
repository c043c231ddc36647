"""Training telemetry of one job: taken in with every tick, from the beats and from what the job writes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hangwatch.analysis.training import Ledger, Pace, make_series
from hangwatch.model.beats import Beat
from hangwatch.model.capture import Gap, RankIdentity
from hangwatch.model.telemetry import LoggedStep, TrainingSeries, TrainingSetup
from hangwatch.sources.training.beats import parse_setup, parse_steps


@dataclass
class TrainingTelemetry:
    """What a job has said of its training so far; ``series`` is the newest value, None until it has said something."""

    series: TrainingSeries | None = None
    gaps: tuple[Gap, ...] = ()
    _ledgers: dict[int | None, Ledger] = field(default_factory=dict)
    _setups: dict[int, TrainingSetup] = field(default_factory=dict)
    _paces: dict[int, Pace] = field(default_factory=dict)
    _counts: dict[tuple[int, int], int] = field(default_factory=dict)

    def update(
        self,
        ranks: Mapping[int, RankIdentity],
        beats: Mapping[int, Beat],
        written: Iterable[LoggedStep],
        now_ns: int,
    ) -> None:
        """Take in the beats of the job's ranks and the steps read from what the job has ``written``."""
        gaps: list[Gap] = []
        for rank, identity in ranks.items():
            beat = beats.get(identity.pid)
            if beat is not None and beat.telemetry is not None:
                gaps += self._take_beat(rank, beat)
        for step in written:
            self._ledgers.setdefault(step.rank, Ledger()).add(step)
            if step.step is not None:
                self._pace(step.rank or 0, step.step, step.at_ns)
        self.gaps = tuple(gaps)
        if self._ledgers or self._setups:
            self.series = make_series(now_ns, self._ledgers, self._setups, self._paces)

    def _take_beat(self, rank: int, beat: Beat) -> list[Gap]:
        key = (beat.pid, beat.start_ticks)
        found = parse_steps(beat, self._counts.get(key, 0), rank)
        if isinstance(found, Gap):
            return [found]
        self._counts[key], steps = found
        for step in steps:
            self._ledgers.setdefault(rank, Ledger()).add(step)
        setup = parse_setup(beat, rank)
        if setup is not None:
            self._setups[rank] = setup
        reached = beat.telemetry.reached if beat.telemetry is not None else None
        if reached is not None:
            self._paces.setdefault(rank, Pace()).note(reached, beat.at_ns)
        return []

    def _pace(self, rank: int, step: int, at_ns: int) -> None:
        """Output tells the pace of ranks whose beats do not."""
        if rank not in self._setups:
            self._paces.setdefault(rank, Pace()).note(step, at_ns)
