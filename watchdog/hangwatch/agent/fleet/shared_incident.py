"""The job's incident among its nodes: posted by the leading node, kept by the others, taken over by the next leader.

May import ``incidents.lifecycle``, which writes the record, the exchange, and its own room.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import msgspec

from hangwatch.agent.fleet.link import Link
from hangwatch.agent.fleet.questions import ANSWER_S
from hangwatch.agent.fleet.scope import FleetScope
from hangwatch.agent.fleet.wire import WIRE_VERSION, SharedRecord, decode, encode
from hangwatch.agent.incidents.lifecycle import IncidentLifecycle
from hangwatch.agent.incidents.record import IncidentRecord, Sharing, withhold
from hangwatch.exchange.protocol import ExchangeError
from hangwatch.exchange.waiting import wait_within
from hangwatch.model.capture import Capture
from hangwatch.model.transforms.published import PublishedError

log = logging.getLogger("hangwatch")

#: How long a node waits, before it ends its job, until the node that writes the bundle has all it needs.
COMPLETION_S = 10.0
_POLL_S = 0.1
#: Notices expire soon; the incident is posted again before it is forgotten.
NOTICE_S = 120.0
_AGAIN_S = 30.0
#: An incident that nobody has posted for this long is over, as far as the leader can see.
FORGOTTEN_S = 90.0


@dataclass
class SharedIncident(Sharing):
    """The incident of ``incidents`` as the nodes share it.

    ``shared``: the last record posted, here or elsewhere. ``node``: this node's name. ``post``: posts the notice,
    which names the incident.
    """

    incidents: IncidentLifecycle
    scope: FleetScope
    link: Link
    node: str
    post: Callable[[], Awaitable[None]]
    shared: SharedRecord | None = None
    _revision: int = 0
    _put_up_s: float = 0.0
    _known_s: float | None = None
    _newest: dict[str, int] = field(default_factory=dict)

    async def lead(self) -> None:
        """Take over the previous holder's incident, and keep it known."""
        await self._read()
        shared, now_s = self.shared, self.link.clock()
        self._known_s = now_s
        if shared is not None and shared.incident.ended_at is None:
            record = self.incidents.record
            if record is not None and record.id == shared.incident.id:
                if not record.active:  # it ended while the other nodes were unreachable
                    await self._put_up(record, announced=True)
            elif self.incidents.open_record is None:  # its owner is gone, and this agent was not running then
                await self._adopt(shared, await self.scope.capture_here())
        record = self.incidents.open_record
        if record is not None and record.owned_by_peer:
            known = shared is not None and shared.incident.id == record.id and shared.announced
            await self.incidents.take_over(announced=known)
        elif record is not None and now_s - self._put_up_s >= _AGAIN_S:
            await self._put_up(record, announced=True)

    async def follow(self) -> None:
        """Keep what another node reports, with this node's last capture."""
        await self._read()
        shared, record = self.shared, self.incidents.record
        incident = shared.incident if shared is not None and shared.incident.ended_at is None else None
        mine = record is not None and shared is not None and record.id == shared.incident.id
        if mine or self.incidents.open_record is None or self._known_s is None:
            self._known_s = self.link.clock()
        # Another incident has replaced it, or the leader knows of none: a returning agent may have missed the end.
        gone = incident is not None or self.link.clock() - self._known_s >= FORGOTTEN_S
        if mine:
            self.incidents.give_up()  # even if it was ours, and another node has taken over
        if record is not None and record.active and (incident is None if mine else gone):
            await self.incidents.close(time.time_ns())
        if shared is None or incident is None:
            return
        known = record.incident if mine and record is not None else None
        if known is not None and (known.verdict, known.second_look) == (incident.verdict, incident.second_look):
            return
        await self._adopt(shared, await self.scope.last_here())

    async def share(self, record: IncidentRecord, *, announced: bool, complete: bool = False) -> None:
        """Tell the others the current state of the incident, if this node leads."""
        if self.link.leads:
            await self._put_up(record, announced=announced, complete=complete)

    async def await_completion(self, record: IncidentRecord) -> None:
        """Wait until the bundle of another node's incident is complete, or it takes too long."""
        end_s = self.link.clock() + COMPLETION_S
        while self.link.follows and not self._is_complete(record) and self.link.clock() < end_s:
            await asyncio.sleep(_POLL_S)

    async def _put_up(self, record: IncidentRecord, *, announced: bool, complete: bool = False) -> None:
        self._revision = max(self._revision, self.shared.revision if self.shared is not None else 0) + 1
        self._put_up_s = self.link.clock()
        shared = self.shared = SharedRecord(
            WIRE_VERSION,
            self._revision,
            msgspec.structs.replace(record.incident, ranks=()),
            announced,
            self.node,
            record.onset_ns,
            complete or self._is_complete(record),
            self.link.agents,
        )
        await self.link.try_to(lambda exchange: exchange.put(self.link.channel, "incident", encode(shared), NOTICE_S))
        await self.post()

    async def _adopt(self, shared: SharedRecord, capture: Capture) -> None:
        await self.incidents.adopt(shared.incident, capture, shared.node, shared.onset_ns)

    def _is_complete(self, record: IncidentRecord) -> bool:
        shared = self.shared
        return shared is not None and shared.complete and shared.incident.id == record.id

    async def _read(self) -> None:
        """Read the incident that the holder reported last, if it is new."""
        notice, shared = self.link.notice, self.shared
        if notice is None or notice.incident is None or notice.holder == self.link.holder:
            return
        if shared is not None and (shared.incident.id, shared.revision) == (notice.incident, notice.revision):
            return
        try:
            found = await wait_within(self.link.exchange.get(self.link.channel, ["incident"]), ANSWER_S)
            self.shared = self._checked(decode(found["incident"], SharedRecord)) if found else None
        except (ExchangeError, asyncio.TimeoutError, PublishedError) as error:
            log.debug("the incident cannot be read: %s", error)

    def _checked(self, found: SharedRecord) -> SharedRecord | None:
        """Return what was read, as it may be acted on; if somebody has put an old one back, what was read before."""
        why, id = self.link.distrust, found.incident.id
        if not why:
            if found.revision < self._newest.get(id, 0):
                return self.shared
            self._newest[id] = found.revision
            if self.link.agent not in found.agents:
                why = "the agent that leads has not met this one yet"
        return msgspec.structs.replace(found, incident=withhold(found.incident, why)) if why else found
