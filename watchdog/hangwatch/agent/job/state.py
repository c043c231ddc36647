"""One job as it is at a tick: all that the metrics and the page are made of, besides the beats. A frozen value."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from hangwatch.agent.incidents.record import IncidentRecord
from hangwatch.analysis.patience import Patience
from hangwatch.model.capture import Job, RankIdentity
from hangwatch.model.live import LastToJoin
from hangwatch.model.serving import EngineState
from hangwatch.model.telemetry import TrainingSeries


@dataclass(frozen=True)
class JobState:
    """One job at a tick.

    ``ranks``: those of this node; ``lost``: those of them that are gone; ``hang``, ``silent_failure``, ``slow``: open
    incidents. ``last_to_join``: see ``LiveJob``.
    """

    job: Job
    ranks: Mapping[int, RankIdentity]
    lost: frozenset[int]
    patience: Patience
    training: TrainingSeries | None = None
    hang: IncidentRecord | None = None
    silent_failure: IncidentRecord | None = None
    slow: IncidentRecord | None = None
    last_to_join: Mapping[Hashable, LastToJoin] = field(default_factory=dict)
    engines: tuple[EngineState, ...] = ()
