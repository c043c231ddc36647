"""Silent failures of one job: when what training reports of itself becomes an incident, and when that is over.

One incident at a time. A cause is reported once per run; the incident ends when the loss has recovered, a new run begins, or
the job ends. May import the capturing and the incidents rooms, the analysis, the diagnosis and ``training.sources``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from hangwatch.agent.capturing.redact import hide_secrets
from hangwatch.agent.capturing.scope import LocalScope
from hangwatch.agent.incidents.lifecycle import IncidentLifecycle
from hangwatch.agent.incidents.record import IncidentRecord
from hangwatch.diagnosis.training import diagnose_training
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.capture import Gap, RankIdentity
from hangwatch.model.telemetry import DeepSpeedSettings, TrainingSeries, TrainingSetup
from hangwatch.training.analysis.case import has_recovered
from hangwatch.training.sources.deepspeed_config import read_deepspeed_config
from hangwatch.training.sources.versions import read_versions


@dataclass
class SilentFailureWatch:
    """Follows one job's training. ``incidents`` reports an incident, another cause of it, and its end."""

    local: LocalScope
    incidents: IncidentLifecycle
    _raised: set[tuple[int, str]] = field(default_factory=set)
    _run: int = 1
    _seen: tuple[object, ...] = ()
    _setup: TrainingSetup | None = None
    _gaps: tuple[Gap, ...] = ()

    async def update(self, series: TrainingSeries | None, now_ns: int) -> None:
        """Take in what training has said by now."""
        if series is None or not self._is_new(series):
            return
        world_size = self.local.ranks.job.world_size
        if has_recovered(series, world_size) or series.runs != self._run:
            await self.incidents.close(now_ns)
        if diagnose_training(series, world_size) is None:
            return
        series = self._completed(series, self.local.ranks.known)
        found = diagnose_training(series, world_size)
        cause = found[0].cause if found is not None else None
        if cause is None or (series.runs, cause.id) in self._raised:
            return
        self._run = series.runs
        self._raised.add((series.runs, cause.id))
        await self._report(series, now_ns)

    def begin_again(self) -> None:
        """Forget what was reported, because the job has been started again."""
        self._raised.clear()
        self._setup, self._gaps, self._run = None, (), 0

    def resume(self, record: IncidentRecord) -> None:
        """Go on with an incident that an agent before this one has reported."""
        self.incidents.resume(record)
        if record.incident.verdict.cause is not None:
            self._raised.add((self._run, record.incident.verdict.cause.id))

    def _is_new(self, series: TrainingSeries) -> bool:
        """Return whether anything was logged since the last call: two ticks in one step must not count as two readings."""
        lasts = [steps[-1] for steps in (series.steps, *(found.steps for found in series.ranks)) if steps]
        seen = (series.runs, len(series.setups), *((s.step, s.at_ns, s.loss is None) for s in lasts))
        changed = seen != self._seen
        self._seen = seen
        return changed

    def _completed(self, series: TrainingSeries, ranks: Mapping[int, RankIdentity]) -> TrainingSeries:
        """Return the series with the configuration and versions that no rank reported, read from the first rank's process."""
        first = min(ranks, default=None)
        if first is None or any(s.deepspeed is not None and s.versions for s in series.setups):
            return series
        if self._setup is None:
            versions = read_versions(ranks[first].pid)
            settings = read_deepspeed_config(ranks[first].pid, versions.get("deepspeed"))
            self._gaps = (msgspec.structs.replace(settings, rank=first),) if isinstance(settings, Gap) else ()
            given = settings if isinstance(settings, DeepSpeedSettings) else None
            self._setup = TrainingSetup(rank=first, versions=versions, deepspeed=given)
        reported = next((s for s in series.setups if s.rank == first), TrainingSetup(rank=first))
        setup = msgspec.structs.replace(
            reported,
            versions={**self._setup.versions, **reported.versions},
            deepspeed=reported.deepspeed or self._setup.deepspeed,
        )
        others = tuple(s for s in series.setups if s.rank != first)
        return msgspec.structs.replace(series, setups=(setup, *others))

    async def _report(self, series: TrainingSeries, detected_ns: int) -> None:
        capture = await self.local.capture_once(self._gaps)
        # What training logged is the job's text as well.
        diagnosis = diagnose(hide_secrets(msgspec.structs.replace(capture, training=series)))
        await self.incidents.report(diagnosis, detected_ns=detected_ns)
