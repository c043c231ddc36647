"""Which jobs of this node are shared with other nodes, and through which exchange.

May import the exchange, the capturing and the incidents rooms and its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hangwatch.agent.capturing.capture import Beats
from hangwatch.agent.capturing.local_ranks import LocalRanks
from hangwatch.agent.capturing.scope import CaptureScope
from hangwatch.agent.capturing.source_health import SourceHealth
from hangwatch.agent.fleet.member import JobFleet, name_channel, name_node
from hangwatch.agent.incidents.lifecycle import IncidentLifecycle
from hangwatch.exchange.opening import ExchangeChoice, open_exchange
from hangwatch.exchange.protocol import Exchange


def choose_channel(ranks: LocalRanks, current: str | None) -> str | None:
    """Where the agents of a job meet; None for a job that is on this node alone, or has no name that others know.

    ``current``: where this one is now. A job that is no longer there keeps the name it had.
    """
    job = ranks.job
    if job.id.startswith("pid-") or job.world_size is None or not ranks.known:
        return current
    if len([rank for rank in ranks.known if rank < job.world_size]) >= job.world_size:
        return None
    return name_channel(job.id, ranks.master, job.world_size)


@dataclass
class Fleets:
    """Makes this node a member of its jobs' fleets. ``wake`` lets the next tick come at once."""

    choice: ExchangeChoice
    wake: Callable[[], None]
    reader: Beats
    health: SourceHealth
    name: str = field(default_factory=name_node)
    _shared: Exchange | None = None

    def __post_init__(self) -> None:
        """What is one for all jobs is opened now: a wrong address is reported at once. Raises ``ExchangeError``."""
        if self.choice.shared:
            self._shared = open_exchange(self.choice)

    def join(self, channel: str, ranks: LocalRanks, local: CaptureScope, incidents: IncidentLifecycle) -> JobFleet:
        """The fleet of one job. Raises ``ExchangeError`` where its exchange cannot be opened."""
        return JobFleet(
            ranks,
            local,
            incidents,
            self._shared or open_exchange(self.choice, ranks.master),
            channel,
            self.name,
            self.wake,
            self.reader,
            self.health,
            owned=not self.choice.shared,
        )

    async def close(self) -> None:
        """Let go of the exchange."""
        if self._shared is not None:
            await self._shared.close()
