"""Which jobs of this node are shared with other nodes, and through which exchange.

May import the exchange, the capturing and the incidents rooms and its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from hangwatch.agent.capturing.local_ranks import LocalRanks
from hangwatch.agent.capturing.scope import LocalScope
from hangwatch.agent.capturing.source_health import SourceHealth
from hangwatch.agent.fleet.member import JobFleet, name_channel, name_node
from hangwatch.agent.incidents.lifecycle import IncidentLifecycle
from hangwatch.exchange.opening import ExchangeChoice, open_exchange
from hangwatch.exchange.protocol import Exchange, ExchangeError
from hangwatch.exchange.sealed import REMEDY
from hangwatch.exchange.tcpstore import load_torch
from hangwatch.sources.beats.node_beats import NodeBeats

#: An import of torch from a network file system at the start of a large job takes tens of seconds.
LOADING_S = 60.0


def choose_channel(ranks: LocalRanks, current: str | None, *, only_known: bool = False) -> str | None:
    """Return where the agents of a job meet; None if it is on this node alone, or has no name that others know.

    ``current``: the channel it has now, which a job that has ended keeps. ``only_known``: True to return None also if
    ranks are merely not seen, as the job may be on this node alone.
    """
    job = ranks.job
    if ranks.link is not None:
        return ranks.link.channel
    if job.id.startswith("pid-") or job.world_size is None or not ranks.known:
        return current
    if only_known and not ranks.spans_nodes:
        return None
    if len([rank for rank in ranks.known if rank < job.world_size]) >= job.world_size:
        return None
    return name_channel(job.id, ranks.master, job.world_size)


@dataclass
class Fleets:
    """Makes this node a member of its jobs' fleets.

    ``wake``: makes the next tick come at once. ``say``: shows a text to users. ``root``: the process below which this
    agent sees jobs; None if it sees the whole node. ``acts``: whether something is to be done to jobs that hang.
    """

    choice: ExchangeChoice
    wake: Callable[[], None]
    reader: NodeBeats
    health: SourceHealth
    say: Callable[[str], None] = lambda _: None
    root: Callable[[], int | None] = lambda: None
    acts: Callable[[], bool] = lambda: False
    _shared: Exchange | None = None
    _torch: asyncio.Future[None] | None = None
    _since_s: float = 0.0
    _said: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Open the exchange now if all jobs share one, so that a wrong address is reported at once.

        Raises ``ExchangeError``.
        """
        if self.choice.shared:
            self._shared = open_exchange(self.choice)

    def choose_channel(self, ranks: LocalRanks, current: str | None) -> str | None:
        """See ``choose_channel``."""
        return choose_channel(ranks, current, only_known=self.choice.kind == "auto")

    def open_at(self, meeting: str) -> Exchange | None:
        """Return the exchange beside a store at ``HOST:PORT``.

        None if there should be none, or if torch is still being imported. Raises ``ExchangeError`` if it cannot be
        opened.
        """
        if self.choice.kind == "local" or self.is_loading():
            return None
        return self._shared or open_exchange(self.choice, meeting)

    def join(self, channel: str, ranks: LocalRanks, local: LocalScope, incidents: IncidentLifecycle) -> JobFleet:
        """Return the fleet of one job.

        Raises ``ExchangeError`` if its exchange cannot be opened, and tells the user once per job.
        """
        try:
            exchange = self._shared or open_exchange(self.choice, ranks.link.meeting if ranks.link else ranks.master)
        except ExchangeError as error:
            self._say_once(f"job {ranks.job.id} spans nodes, but each node is watched separately: {error}")
            raise
        return JobFleet(
            ranks,
            local,
            incidents,
            exchange,
            channel,
            name_node(self.root()),
            self.wake,
            self.reader,
            self.health,
            owned=not self.choice.shared,
            joined=lambda: self._say_joined(ranks, exchange),
        )

    def is_loading(self) -> bool:
        """True while torch, whose store is needed, is being imported.

        The first call starts the import, which takes seconds.
        """
        if self._shared is not None:
            return False
        if self._torch is None:
            self._torch, self._since_s = asyncio.ensure_future(asyncio.to_thread(_try_to_load)), time.monotonic()
            self._torch.add_done_callback(lambda _: self.wake())
        return not self._torch.done()

    @property
    def is_patient(self) -> bool:
        """True if the import is worth waiting for.

        If a file system hangs, it may be what the job hangs on, too.
        """
        return time.monotonic() - self._since_s < LOADING_S

    def _say_joined(self, ranks: LocalRanks, exchange: Exchange) -> None:
        if exchange.endpoint is not None:
            host, port = exchange.endpoint
            here = f"{len(ranks.own)} of its {ranks.job.world_size} ranks here"
            spans = "shares a group with other nodes" if ranks.link is not None else "spans nodes"
            self._say_once(f"job {ranks.job.id} {spans} ({here}): joined at {host}:{port}")
            if self.acts() and not exchange.authenticated:
                self._say_once(f"hangs of several nodes are reported and not acted on: {REMEDY}")

    def _say_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self.say(text)

    async def close(self) -> None:
        """Close the exchange."""
        if self._shared is not None:
            await self._shared.close()


def _try_to_load() -> None:
    with contextlib.suppress(ExchangeError):  # raised again when the exchange is opened
        load_torch()
