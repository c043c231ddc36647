"""The values behind one scrape, frozen. May import the model and the version."""

from __future__ import annotations

import msgspec

from hangwatch import __version__
from hangwatch.model.capture import Job
from hangwatch.model.incident import Lateness
from hangwatch.model.live import LiveRank
from hangwatch.model.serving import EngineState
from hangwatch.model.telemetry import TrainingSeries
from hangwatch.outputs.briefing import Briefing, Links


class IncidentMetrics(msgspec.Struct, frozen=True):
    """An open incident.

    ``cause``: the id of the cause, ``unknown`` if there is none. ``briefing``: texts for alerts and dashboards.
    ``names``: see ``Verdict``.
    """

    id: str
    kind: str
    cause: str
    severity: str
    onset_unix_s: float
    briefing: Briefing
    culprit_ranks: tuple[int, ...] = ()
    names: dict[int, str] = {}


class JobMetrics(msgspec.Struct, frozen=True):
    """One watched job.

    ``job.id`` is unique within a view; ``incidents`` has at most one per kind. ``patience_s``: how long an unproven
    hang must last before it is reported. ``training``: the values it logs; None if they are not read. ``engines``:
    its serving engines. ``lateness``: who makes the others late, while that is an open incident.
    """

    job: Job
    ranks: tuple[LiveRank, ...] = ()
    incidents: tuple[IncidentMetrics, ...] = ()
    patience_s: float | None = None
    training: TrainingSeries | None = None
    engines: tuple[EngineState, ...] = ()
    lateness: Lateness | None = None


class SourceMetrics(msgspec.Struct, frozen=True):
    """Health of a source: whether its last read returned data, its duration, reads and failures since the agent started."""

    name: str
    up: bool
    duration_s: float
    reads_total: int
    failures_total: int


class ReceiverMetrics(msgspec.Struct, frozen=True):
    """A receiver of notifications: deliveries, failed attempts, incidents not delivered yet."""

    name: str
    sent_total: int = 0
    failures_total: int = 0
    pending: int = 0


class AgentMetrics(msgspec.Struct, frozen=True):
    """The agent since its start. Durations are sums."""

    ticks_total: int = 0
    tick_duration_sum_s: float = 0.0
    captures_total: int = 0
    capture_duration_sum_s: float = 0.0
    errors_total: int = 0


class MetricsView(msgspec.Struct, frozen=True):
    """Everything that a scrape returns. ``incidents_total``: counts by kind; ``links``: where runbooks are."""

    jobs: tuple[JobMetrics, ...] = ()
    incidents_total: dict[str, int] = {}
    sources: tuple[SourceMetrics, ...] = ()
    receivers: tuple[ReceiverMetrics, ...] = ()
    agent: AgentMetrics = AgentMetrics()
    links: Links = Links()
    version: str = __version__
