"""The job's incident among its nodes: put up by the one that leads, kept by the others, taken up by whoever leads next."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from hangwatch.agent.fleet.link import Link
from hangwatch.agent.fleet.questions import ANSWER_S
from hangwatch.agent.fleet.wire import WIRE_VERSION, Record, WireError, decode, encode
from hangwatch.agent.incidents.adopt import adopt
from hangwatch.exchange.protocol import ExchangeError
from hangwatch.exchange.waiting import wait_within
from hangwatch.model.capture import Capture

if TYPE_CHECKING:
    from hangwatch.agent.incidents.record import Told
    from hangwatch.agent.job.watch import JobWatch

log = logging.getLogger("hangwatch")

#: How long a node that is to end its job waits for the one that writes the bundle to have all it needs.
COMPLETION_S = 10.0
_POLL_S = 0.1
#: Notices are of the moment; the incident is put up again before it is forgotten.
NOTICE_S = 120.0
_AGAIN_S = 30.0
#: An incident that nobody has put up for so long is over, for all that whoever leads can see.
FORGOTTEN_S = 90.0


@dataclass
class SharedIncident:
    """``watch``'s incident as the nodes share it. ``node`` is this one's name; ``post`` puts up the notice, which names it."""

    watch: JobWatch
    link: Link
    node: str
    post: Callable[[], Awaitable[None]]
    record: Record | None = None
    _revision: int = 0
    _spread_s: float = 0.0
    _known_s: float | None = None

    async def lead(self) -> None:
        """Take up the incident that the one before has left, and keep it known."""
        await self._read()
        watch, record, now_s = self.watch, self.record, self.link.clock()
        self._known_s = now_s
        if record is not None and record.incident.ended_at is None:
            if watch.told is not None and watch.told.incident.id == record.incident.id:
                if not watch.told.active:  # it has ended while the others could not be told
                    await self.spread(watch.told, announced=True)
            elif watch.standing is None:  # whoever has told of it is gone, and this agent was not there then
                await adopt(watch, record.incident, await watch.look_here(), record.node)
        told = watch.told
        if told is not None and told.active and told.heard:
            told.heard = False
            if record is None or record.incident.id != told.incident.id or not record.announced:
                await watch.announce(told.incident, told.path)
            await self.spread(told, announced=True)
        elif told is not None and now_s - self._spread_s >= _AGAIN_S and told.active:
            await self.spread(told, announced=True)

    async def follow(self, last: Capture | None) -> None:
        """Keep what another one tells, with this node's ``last`` capture."""
        await self._read()
        record, watch, told = self.record, self.watch, self.watch.told
        incident = record.incident if record is not None and record.incident.ended_at is None else None
        mine = told is not None and record is not None and told.incident.id == record.incident.id
        if mine or watch.standing is None or self._known_s is None:
            self._known_s = self.link.clock()
        # Another one has taken its place, or whoever leads knows of none: an agent that comes back may have missed the end.
        gone = incident is not None or self.link.clock() - self._known_s >= FORGOTTEN_S
        if told is not None and told.active and (incident is None if mine else gone):
            tell = watch.hear if told.heard or mine else watch.announce
            await told.close(watch.state_dir, tell, time.time_ns())
        if record is None or incident is None:
            return
        if told is not None and mine:
            told.heard = True  # also where it was ours, and another has taken over
            if told.incident.verdict == incident.verdict:
                return
        await adopt(watch, incident, last or await watch.look_here(), record.node)

    async def spread(self, told: Told, *, announced: bool, complete: bool = False) -> None:
        """Let the others know of the incident, as it is now."""
        self._revision = max(self._revision, self.record.revision if self.record is not None else 0) + 1
        self._spread_s = self.link.clock()
        incident = msgspec.structs.replace(told.incident, ranks=())
        record = self.record = Record(
            WIRE_VERSION, self._revision, incident, announced, self.node, complete or self._is_complete(told)
        )
        await self.link.try_to(lambda exchange: exchange.put(self.link.channel, "incident", encode(record), NOTICE_S))
        await self.post()

    async def await_completion(self, told: Told) -> None:
        """Return when the bundle of an incident that another node has told of is complete, or it takes too long."""
        end_s = self.link.clock() + COMPLETION_S
        while self.link.follows and not self._is_complete(told) and self.link.clock() < end_s:
            await asyncio.sleep(_POLL_S)

    def _is_complete(self, told: Told) -> bool:
        record = self.record
        return record is not None and record.complete and record.incident.id == told.incident.id

    async def _read(self) -> None:
        """The incident as the holder has told of it last, where that is news."""
        notice, record = self.link.notice, self.record
        if notice is None or notice.incident is None or notice.holder == self.link.holder:
            return
        if record is not None and (record.incident.id, record.revision) == (notice.incident, notice.revision):
            return
        try:
            found = await wait_within(self.link.exchange.get(self.link.channel, ["incident"]), ANSWER_S)
            self.record = decode(found["incident"], Record) if found else None
        except (ExchangeError, asyncio.TimeoutError, WireError) as error:
            log.debug("the incident cannot be read: %s", error)
