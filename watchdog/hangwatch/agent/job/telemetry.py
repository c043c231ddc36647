"""Training telemetry of one job: taken in with every tick, from the beats and from what the job writes.

May import the model, ``analysis.training``, ``sources.training`` and its own room.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hangwatch.agent.job.output_reader import OutputReader
from hangwatch.analysis.training.series import Pace, SeriesBuilder, make_series
from hangwatch.model.beats import Beat
from hangwatch.model.capture import Gap, RankIdentity
from hangwatch.model.telemetry import TrainingSeries, TrainingSetup
from hangwatch.sources.training.beats import parse_setup, parse_steps
from hangwatch.sources.training.live_outputs import WatchedRank


@dataclass
class TrainingTelemetry:
    """What a job has reported of its training so far; ``series`` is the newest value, None until it has said something.

    ``logs`` are globs of files the user has named as the job's.
    """

    logs: tuple[str, ...] = ()
    series: TrainingSeries | None = None
    gaps: tuple[Gap, ...] = ()
    _builders: dict[int | None, SeriesBuilder] = field(default_factory=dict)
    _setups: dict[int, TrainingSetup] = field(default_factory=dict)
    _paces: dict[int, Pace] = field(default_factory=dict)
    _counts: dict[tuple[int, int], int] = field(default_factory=dict)
    _known: set[int] = field(default_factory=set)
    _reached: dict[int, int] = field(default_factory=dict)
    _reader: OutputReader = field(init=False)

    def __post_init__(self) -> None:
        """Nothing is read before the first rank is there."""
        self._reader = OutputReader(self.logs)

    def restart(self) -> TrainingTelemetry:
        """The telemetry of the next incarnation of the job; this one reads no more."""
        self.stop()
        return TrainingTelemetry(self.logs)

    @property
    def step(self) -> int | None:
        """The step that all ranks have reached that say so themselves; logs have only some steps."""
        return min(self._reached.values(), default=None)

    def stop(self) -> None:
        """Read no more files."""
        self._reader.stop()

    async def finish(self) -> None:
        """Read the files to their end, and no more then."""
        await self._reader.finish()

    def update(self, ranks: Mapping[int, RankIdentity], beats: Mapping[int, Beat], now_ns: int) -> None:
        """Take in the beats of the job's ranks, and what has been read meanwhile of what the job writes."""
        gaps: list[Gap] = []
        for rank, identity in ranks.items():
            beat = beats.get(identity.pid)
            if beat is not None and beat.telemetry is not None:
                gaps += self._take_beat(rank, beat)
        self._reader.watch(tuple(self._watched(identity) for identity in ranks.values()))
        self._known.update(ranks)
        for step in self._reader.take():
            if step.rank is not None and step.rank not in self._known:
                continue  # a launcher counts the ranks of its own node, and these are another's
            self._builders.setdefault(step.rank, SeriesBuilder()).add(step)
            if step.step is not None:
                self._pace(step.rank or 0, step.step, step.at_ns)
        self.gaps = (*gaps, *self._reader.gaps)
        if self._builders or self._setups:
            self.series = make_series(now_ns, self._builders, self._setups, self._paces)

    def _take_beat(self, rank: int, beat: Beat) -> list[Gap]:
        key = (beat.pid, beat.start_ticks)
        found = parse_steps(beat, self._counts.get(key, 0), rank)
        if isinstance(found, Gap):
            return [found]
        self._counts[key], steps = found
        for step in steps:
            self._builders.setdefault(rank, SeriesBuilder()).add(step)
            if step.source == "report" and step.step is not None:  # a beat has it as reached only when it is new
                self._reached[rank] = step.step
        setup = parse_setup(beat, rank)
        if setup is not None:
            self._setups[rank] = setup
        reached = beat.telemetry.reached if beat.telemetry is not None else None
        if reached is not None:
            self._paces.setdefault(rank, Pace()).note(reached, beat.at_ns)
            self._reached[rank] = reached
        return []

    def _watched(self, identity: RankIdentity) -> WatchedRank:
        trainer = self._setups[identity.rank].trainer if identity.rank in self._setups else None
        return WatchedRank(
            rank=identity.rank,
            pid=identity.pid,
            start_time=identity.start_time,
            configured=(trainer.output_dir, trainer.logging_dir) if trainer is not None else (),
            probed=trainer is not None,
        )

    def _pace(self, rank: int, step: int, at_ns: int) -> None:
        """The pace of ranks whose beats do not report it, by what the job writes."""
        if rank not in self._setups:
            self._paces.setdefault(rank, Pace()).note(step, at_ns)
