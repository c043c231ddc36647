"""The link of one node to the exchange, for one job: a task that publishes, keeps the lease and reads, each second.

It goes on while a tick captures for seconds; ticks only read its findings. If the exchange fails, nothing is raised and
nobody waits: the link is down, and comes back by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone

from hangwatch.agent.capturing.source_health import SourceHealth
from hangwatch.agent.fleet.peers import Members
from hangwatch.agent.fleet.wire import UNHURRIED, LeaseNotice, Question, decode
from hangwatch.exchange.protocol import Exchange, ExchangeError
from hangwatch.exchange.sealed import REMEDY, is_sealed_otherwise
from hangwatch.exchange.waiting import wait_within
from hangwatch.model.capture import Gap
from hangwatch.model.transforms.published import PublishedError
from hangwatch.sources.beats.reachability import does_answer

log = logging.getLogger("hangwatch")

PERIOD_S = 1.0
#: After a question, digests come this often for a while, to show that nothing has moved since the captures.
HURRIED_S = 0.2
HURRY_S = 6.0
#: The lease expires this long after its last renewal; another agent takes it within a period after that.
LEASE_S = 5.0
#: Without a successful round for this long, a node goes on alone.
ALONE_S = 5.0
#: Digests stay this long in the exchange: a new leader must know who fell silent before.
EXPIRY_S = 600.0
_ROUND_LIMIT_S = 8.0
#: Nodes are asked whether they answer when they are met, so many in a round, and again when they have been silent for so long.
_ASKED_A_ROUND = 8
_ASK_SILENT_S = 4.0
_UNAUTHENTICATED = f"anybody could have written what other nodes say; to let hangwatch act, {REMEDY}"
_HINT = "this node reports only its own ranks until peer discovery is back"


@dataclass
class Link:
    """One node's link to the exchange, for one job.

    ``name``: this node's key in the exchange. ``holder``: this agent's name as a holder of the lease. ``write``:
    makes this node's digest. ``wake``: called if something must be done at once. ``joined``: called when the exchange
    has answered for the first time.
    """

    exchange: Exchange
    channel: str
    name: str
    holder: str
    write: Callable[[], bytes]
    wake: Callable[[], None]
    health: SourceHealth
    joined: Callable[[], None] = lambda: None
    clock: Callable[[], float] = time.monotonic
    members: Members = field(init=False)
    notice: LeaseNotice | None = None
    _worked_s: float = field(init=False)
    _has_worked: bool = False
    _refused: bool = False
    _warned: bool = False
    _down_since_s: float | None = None
    _down_since: str = ""
    _why: str = ""
    _held_s: float | None = None
    _hurry_until_s: float = 0.0
    _hurry: asyncio.Event = field(default_factory=asyncio.Event)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _asked: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Begin with no known members, and without a failure."""
        self.members = Members(self.name)
        self._worked_s = self.clock()

    def start(self) -> None:
        """Start the tasks; within a running loop."""
        for work in (self._keep_up(), self._listen()):
            self._add(asyncio.ensure_future(work))

    async def stop(self) -> None:
        """End the tasks."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def alone(self) -> bool:
        """True if the exchange has been unreachable for too long."""
        return self.clock() - self._worked_s >= ALONE_S

    @property
    def leads(self) -> bool:
        """True if this agent certainly holds the lease, by when it last renewed it."""
        return not self.alone and self._held_s is not None and self.clock() - self._held_s < LEASE_S

    @property
    def follows(self) -> bool:
        """True if another agent leads, or will.

        False if the exchange is unreachable: then each agent acts alone.
        """
        return not self.alone and not self.leads

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """What the exchange hides from this node: that it cannot be reached, and members that cannot be read."""
        down = (
            (Gap("peer discovery", f"unreachable since {self._down_since}: {self._why}", hint=_HINT),)
            if self.alone
            else ()
        )
        return (*down, *self.members.gaps)

    @property
    def agent(self) -> str:
        """This agent, as ``Digest.agent``."""
        return self.holder.rpartition("/")[2]

    @property
    def agents(self) -> tuple[str, ...]:
        """The other agents of the job, as ``Digest.agent``."""
        return tuple(member.digest.agent for member in self.members.members.values())

    @property
    def distrust(self) -> str:
        """Why the word of the other nodes is no ground to act on the job; empty if it is."""
        return "" if self.exchange.authenticated else _UNAUTHENTICATED

    def hurry(self) -> None:
        """Publish and read more often for a while."""
        self._hurry_until_s = self.clock() + HURRY_S
        self._hurry.set()

    def rest(self) -> None:
        """Return to the usual pace: what was awaited has come."""
        self._hurry_until_s = self.clock()

    async def try_to(self, what: Callable[[Exchange], Awaitable[None]]) -> bool:
        """Do something with the exchange, once; True if it succeeded."""
        try:
            await wait_within(what(self.exchange), _ROUND_LIMIT_S)
        except (ExchangeError, asyncio.TimeoutError) as error:
            log.debug("peer discovery: %s", error)
            return False
        return True

    async def _keep_up(self) -> None:
        while True:
            started_s = self.clock()
            with self.health.reading("peer discovery") as reading:
                reading.tried = 1
                try:
                    await wait_within(self._round(), _ROUND_LIMIT_S)
                except (ExchangeError, asyncio.TimeoutError) as error:
                    reading.failed = 1
                    self._note_failure(str(error) or "no answer in time")
                else:
                    self._note_success()
            period_s = HURRIED_S if self.clock() < self._hurry_until_s else PERIOD_S
            with contextlib.suppress(asyncio.TimeoutError):
                await wait_within(self._hurry.wait(), max(0.02, period_s - (self.clock() - started_s)))
            self._hurry.clear()

    async def _round(self) -> None:
        exchange, channel = self.exchange, self.channel
        await exchange.publish(channel, self.name, self.write(), EXPIRY_S)
        asked_s = self.clock()
        if await exchange.hold(channel, self.holder, LEASE_S):
            found = await exchange.read(channel)
            self.members.update(found, self.clock(), time.time_ns())
            self._ask_whether_they_answer()
            # Counted from the request: a slow answer says nothing about now.
            self._held_s = asked_s
        else:
            self._held_s = None
        self._take(await exchange.notice(channel))

    def _take(self, data: bytes | None) -> None:
        if data is None:
            return
        try:
            notice = decode(data, LeaseNotice)
        except PublishedError as error:
            if is_sealed_otherwise(data) and not self._refused:
                self._refused = True
                log.warning("the agent that leads has another secret than this one, or none; %s", REMEDY)
            log.debug("the notice of the lease holder %s", error)
            return
        before, self.notice = self.notice, notice
        if before != notice and notice.holder != self.holder:
            asked = notice.question
            if asked is not None and asked.kind not in UNHURRIED and (before is None or asked != before.question):
                self.hurry()
            self.wake()

    @property
    def question(self) -> Question | None:
        """The last question of the lease holder; None if there is none, or if this agent holds the lease."""
        notice = self.notice
        return notice.question if notice is not None and notice.holder != self.holder else None

    async def _listen(self) -> None:
        while True:
            try:
                await self.exchange.await_notice(self.channel)
            except ExchangeError:
                await asyncio.sleep(PERIOD_S)
            else:
                self._hurry.set()
                await asyncio.sleep(0)

    def _note_success(self) -> None:
        if self._warned:
            log.warning("peer discovery is back")
        self._worked_s, self._down_since_s, self._warned = self.clock(), None, False
        if not self._has_worked:
            self._has_worked = True
            self.joined()

    def _note_failure(self, why: str) -> None:
        self._why = why
        if self._down_since_s is None:
            self._down_since_s = self.clock()
            self._down_since = datetime.now(timezone.utc).strftime("%H:%M:%SZ")
        # Nodes do not start at the same time, and an agent may restart: no need to report that.
        if self.alone and not self._warned:
            self._warned = True
            log.warning("peer discovery is unreachable, %s: %s", _HINT, why)

    def _ask_whether_they_answer(self) -> None:
        now_s = self.clock()
        room = _ASKED_A_ROUND
        for member in self.members.members.values():
            silent = member.silent_s(now_s) >= _ASK_SILENT_S and not member.digest.leaving
            due = self._asked.get(member.name, -1e9) + (_ASK_SILENT_S if silent else 1e12)
            if room and member.digest.address and now_s >= due:
                room -= 1
                self._asked[member.name] = now_s
                self._add(asyncio.ensure_future(self._ask_one(member.name, member.digest.address)))

    async def _ask_one(self, name: str, address: str) -> None:
        count = self.members.members[name].digest.count
        answers = await does_answer(address)
        member = self.members.members.get(name)
        if member is not None and member.digest.count >= count:
            member.known_to_answer = member.known_to_answer or answers
            if member.silent_s(self.clock()) >= _ASK_SILENT_S:
                member.answers = answers

    def _add(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
