"""Which jobs of this node are shared with other nodes, and through which exchange."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hangwatch.agent.fleet.member import JobFleet, name_channel, name_node
from hangwatch.agent.job.watch import JobWatch
from hangwatch.exchange.opening import ExchangeChoice, open_exchange
from hangwatch.exchange.protocol import Exchange, ExchangeError
from hangwatch.model.capture import Gap


@dataclass
class Fleets:
    """Joins jobs to their fleets. ``wake`` lets the next tick come at once."""

    choice: ExchangeChoice
    wake: Callable[[], None]
    name: str = field(default_factory=name_node)
    _shared: Exchange | None = None

    def __post_init__(self) -> None:
        """What is one for all jobs is opened now: a wrong address is told at once. Raises ``ExchangeError``."""
        if self.choice.shared:
            self._shared = open_exchange(self.choice)

    async def meet(self, watch: JobWatch) -> tuple[Gap, ...]:
        """Have a job's watch in the right fleet, or in none; what cannot be seen for that."""
        channel = self._channel(watch)
        fleet = watch.fleet
        if fleet is not None and channel != fleet.channel:
            # Another incarnation of the job, by another name; a job that is no longer there keeps the name it had.
            await watch.leave_fleet()
            fleet = None
        if fleet is None and channel is not None:
            try:
                exchange = self._shared or open_exchange(self.choice, watch.master)
            except ExchangeError as error:
                return (Gap("exchange", str(error), hint="this node tells of its own ranks alone"),)
            fleet = watch.fleet = JobFleet(watch, exchange, channel, self.name, self.wake, not self.choice.shared)
        return fleet.gaps if fleet is not None else ()

    async def close(self) -> None:
        """Let go of the exchange."""
        if self._shared is not None:
            await self._shared.close()

    def _channel(self, watch: JobWatch) -> str | None:
        """Where the job's agents meet; None for a job that is on this node alone, or has no name that others know."""
        job, ranks = watch.job, watch.ranks
        if job.id.startswith("pid-") or job.world_size is None or not ranks:
            return watch.fleet.channel if watch.fleet is not None else None
        if len([r for r in ranks if r < job.world_size]) >= job.world_size:
            return None
        return name_channel(job.id, watch.master, job.world_size)
