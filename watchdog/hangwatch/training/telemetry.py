"""Training telemetry of one job: taken in with every tick, from the beats and from what the job writes.

May import the model, ``training.analysis`` and ``training.sources``. Files are read in a thread: a hanging file
system must not stop the tick, which would detect just that.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from hangwatch.model.beats import Beat
from hangwatch.model.capture import Gap, RankIdentity
from hangwatch.model.telemetry import LoggedStep, TrainingSeries, TrainingSetup
from hangwatch.training.analysis.series import Pace, SeriesBuilder, make_series
from hangwatch.training.sources.beats import parse_setup, parse_steps
from hangwatch.training.sources.live_outputs import LiveOutputs, WatchedRank

_PERIOD_S = 1.0
#: How long a job's end waits until its files are read completely.
_FINISH_S = 0.5
#: How many steps may wait for the tick; if there are more, the oldest are dropped.
_WAITING_LIMIT = 20_000


@dataclass
class OutputReader:
    """Reads the files of one job once a second, from the first ``watch`` until ``stop``. ``patterns``: the user's globs."""

    patterns: tuple[str, ...] = ()
    gaps: tuple[Gap, ...] = ()
    _ranks: tuple[WatchedRank, ...] = ()
    _steps: deque[LoggedStep] = field(default_factory=lambda: deque(maxlen=_WAITING_LIMIT))
    _finishing: bool = False
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def watch(self, ranks: tuple[WatchedRank, ...]) -> None:
        """Read the files of these ranks from now on; start the thread if there is none."""
        self._ranks = ranks
        if self._thread is None and ranks:
            self._thread = threading.Thread(target=self._run, name="hangwatch-output", daemon=True)
            self._thread.start()

    def take(self) -> list[LoggedStep]:
        """Return the steps that were read since the last call."""
        taken = []
        while self._steps:
            taken.append(self._steps.popleft())
        return taken

    def stop(self) -> None:
        """Stop reading.

        A read that hangs in the kernel is abandoned: its thread keeps no process from exiting.
        """
        self._stop.set()

    async def finish(self) -> None:
        """Read once more to the end of the files, then stop.

        An exiting process does not wait for files that hang.
        """
        self._finishing = True
        self._stop.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, _FINISH_S)

    def _run(self) -> None:
        files = LiveOutputs(self.patterns)
        try:
            while not self._stop.is_set():
                self._poll(files)
                self._stop.wait(_PERIOD_S)
            if self._finishing:
                self._poll(files)
        finally:
            files.close()

    def _poll(self, files: LiveOutputs) -> None:
        try:
            steps, self.gaps = files.poll(self._ranks)
            self._steps.extend(steps)
        except OSError as error:
            self.gaps = (Gap("log", f"the job's output cannot be read: {error}"),)


@dataclass
class TrainingTelemetry:
    """What a job has reported of its training so far.

    ``series``: the newest value; None until there is one. ``logs``: globs of files that the user named as the job's.
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
        """Prepare the reader; it reads nothing before the first rank exists."""
        self._reader = OutputReader(self.logs)

    def restart(self) -> TrainingTelemetry:
        """Return the telemetry of the job's next incarnation; this one stops reading."""
        self.stop()
        return TrainingTelemetry(self.logs)

    @property
    def step(self) -> int | None:
        """The last step that all ranks which report steps themselves have reached; None if none does.

        Logs do not count: they have only some steps.
        """
        return min(self._reached.values(), default=None)

    def stop(self) -> None:
        """Stop reading files."""
        self._reader.stop()

    async def finish(self) -> None:
        """Read the files to their end, then stop."""
        await self._reader.finish()

    def update(self, ranks: Mapping[int, RankIdentity], beats: Mapping[int, Beat], now_ns: int) -> None:
        """Take in the ranks' beats, and what has been read meanwhile of the job's files."""
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
            if step.source == "report" and step.step is not None:  # a beat has ``reached`` only if it is new
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
        """Note the pace of a rank whose beats do not report it, from what the job writes."""
        if rank not in self._setups:
            self._paces.setdefault(rank, Pace()).note(step, at_ns)
