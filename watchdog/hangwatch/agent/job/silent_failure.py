"""Silent failures of one job: when what training says of itself becomes an incident, and when that is over.

One incident at a time. A cause is told of once a run; the incident ends when the loss is well again, the run begins anew, or the
job ends.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from hangwatch.agent.capturing.capture import Beats, capture_job
from hangwatch.agent.capturing.redact import hide_secrets
from hangwatch.agent.incidents.record import Announce, Told, keep
from hangwatch.analysis.training.case import has_recovered
from hangwatch.diagnosis.document import make_incident
from hangwatch.diagnosis.training import diagnose_training
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.capture import Gap, Job, RankIdentity
from hangwatch.model.telemetry import DeepSpeedSettings, TrainingSeries, TrainingSetup
from hangwatch.sources.training.deepspeed_config import read_deepspeed_config
from hangwatch.sources.training.versions import read_versions


@dataclass
class SilenceWatch:
    """Follows one job's training. ``announce`` is told of an incident, of another cause of it, and of its end."""

    state_dir: Path
    announce: Announce
    told: Told | None = None
    _raised: set[tuple[int, str]] = field(default_factory=set)
    _run: int = 1
    _seen: tuple[object, ...] = ()
    _setup: TrainingSetup | None = None
    _gaps: tuple[Gap, ...] = ()

    @property
    def standing(self) -> Told | None:
        """The incident that was told and is not over."""
        return self.told if self.told is not None and self.told.active else None

    async def update(
        self,
        job: Job,
        series: TrainingSeries | None,
        ranks: Mapping[int, RankIdentity],
        reader: Beats | None,
        now_ns: int,
    ) -> None:
        """Take in what training has said by now."""
        if series is None or not self._is_new(series):
            return
        if has_recovered(series, job.world_size) or series.runs != self._run:
            await self.close(now_ns)
        if diagnose_training(series, job.world_size) is None:
            return
        series = self._completed(series, ranks)
        finding = diagnose_training(series, job.world_size)
        cause = finding.verdict.cause if finding is not None else None
        if cause is None or (series.runs, cause.id) in self._raised:
            return
        self._run = series.runs
        self._raised.add((series.runs, cause.id))
        await self._tell(job, series, [ranks[r] for r in sorted(ranks)], reader, now_ns)

    def begin_again(self) -> None:
        """The job was started anew: what was told of the one before says nothing of it."""
        self._raised.clear()
        self._setup, self._gaps, self._run = None, (), 0

    def take_up(self, told: Told) -> None:
        """Go on with an incident that an agent before this one has told."""
        self.told = told
        if told.incident.verdict.cause is not None:
            self._raised.add((self._run, told.incident.verdict.cause.id))

    async def close(self, at_ns: int) -> None:
        """The incident is over."""
        if self.standing is not None:
            await self.standing.close(self.state_dir, self.announce, at_ns)

    def _is_new(self, series: TrainingSeries) -> bool:
        """Whether anything was said since the last time: two ticks a step would otherwise be two looks at the same."""
        lasts = [steps[-1] for steps in (series.steps, *(found.steps for found in series.ranks)) if steps]
        seen = (series.runs, len(series.setups), *((s.step, s.at_ns, s.loss is None) for s in lasts))
        changed = seen != self._seen
        self._seen = seen
        return changed

    def _completed(self, series: TrainingSeries, ranks: Mapping[int, RankIdentity]) -> TrainingSeries:
        """The series with the configuration and versions that no rank told of, read from the first rank's own process."""
        first = min(ranks, default=None)
        if first is None or any(s.deepspeed is not None and s.versions for s in series.setups):
            return series
        if self._setup is None:
            versions = read_versions(ranks[first].pid)
            settings = read_deepspeed_config(ranks[first].pid, versions.get("deepspeed"))
            self._gaps = (msgspec.structs.replace(settings, rank=first),) if isinstance(settings, Gap) else ()
            given = settings if isinstance(settings, DeepSpeedSettings) else None
            self._setup = TrainingSetup(rank=first, versions=versions, deepspeed=given)
        told = next((s for s in series.setups if s.rank == first), TrainingSetup(rank=first))
        setup = msgspec.structs.replace(
            told,
            versions={**self._setup.versions, **told.versions},
            deepspeed=told.deepspeed or self._setup.deepspeed,
        )
        others = tuple(s for s in series.setups if s.rank != first)
        return msgspec.structs.replace(series, setups=(setup, *others))

    async def _tell(
        self, job: Job, series: TrainingSeries, ranks: list[RankIdentity], reader: Beats | None, detected_ns: int
    ) -> None:
        capture = await capture_job(job, ranks, reader=reader, samples=1, gaps=self._gaps)
        capture = hide_secrets(msgspec.structs.replace(capture, training=series))
        standing = self.standing
        incident = make_incident(
            diagnosis := diagnose(capture),
            detected_ns=detected_ns,
            confirmed_ns=time.time_ns(),
            id=standing.incident.id if standing is not None else None,
        )
        self.told = await keep(self.state_dir, incident, diagnosis, capture)
        await self.announce(self.told.incident, self.told.path)
