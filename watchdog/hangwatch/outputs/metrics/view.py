"""What a scrape shows, as frozen values. May import the model and the version."""

from __future__ import annotations

import msgspec

from hangwatch import __version__
from hangwatch.model.live import LiveRank
from hangwatch.model.telemetry import TrainingSeries


class IncidentMetrics(msgspec.Struct, frozen=True):
    """An incident that is open now. ``cause`` is the cause's id, ``unknown`` where there is none.

    ``summary``, ``title`` (of the cause) and ``remedy`` (its steps) are what alerts quote.
    """

    id: str
    kind: str
    cause: str
    severity: str
    onset_unix_s: float
    culprit_ranks: tuple[int, ...] = ()
    summary: str = ""
    title: str = ""
    remedy: tuple[str, ...] = ()


class JobMetrics(msgspec.Struct, frozen=True):
    """One job under watch. ``id`` is unique among those of a view; ``incidents`` are at most one a kind.

    ``patience_s``: how long what cannot be proven may stand still now; ``world_size`` counts the ranks of all nodes;
    ``training``: what it logs of itself, None where that is not followed.
    """

    id: str
    ranks: tuple[LiveRank, ...] = ()
    incidents: tuple[IncidentMetrics, ...] = ()
    launcher: str = "plain"
    world_size: int | None = None
    patience_s: float | None = None
    training: TrainingSeries | None = None


class SourceMetrics(msgspec.Struct, frozen=True):
    """A source's health: whether its last look saw anything, how long that took, reads and failures since the agent's start."""

    name: str
    up: bool
    duration_s: float
    reads_total: int
    failures_total: int


class ReceiverMetrics(msgspec.Struct, frozen=True):
    """Somebody who is told of incidents: messages delivered, attempts that failed, incidents not told yet."""

    name: str
    sent_total: int = 0
    failures_total: int = 0
    pending: int = 0


class AgentMetrics(msgspec.Struct, frozen=True):
    """The agent itself, since its start. Durations are added up."""

    ticks_total: int = 0
    tick_duration_sum_s: float = 0.0
    captures_total: int = 0
    capture_duration_sum_s: float = 0.0
    errors_total: int = 0


class MetricsView(msgspec.Struct, frozen=True):
    """All that a scrape shows. ``incidents_total`` counts by kind."""

    jobs: tuple[JobMetrics, ...] = ()
    incidents_total: dict[str, int] = {}
    sources: tuple[SourceMetrics, ...] = ()
    receivers: tuple[ReceiverMetrics, ...] = ()
    agent: AgentMetrics = AgentMetrics()
    version: str = __version__
