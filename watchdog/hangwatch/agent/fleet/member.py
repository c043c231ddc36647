"""One job among several nodes: who diagnoses, what the others are asked, and one incident for all of them.

The holder of the lease suspects over all digests, asks all nodes for a capture at once, diagnoses the whole and tells. The others
answer, keep a bundle of their own ranks under the same id, and take over where it falls silent. A node that does not reach
the exchange goes on by itself, and says so.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
import uuid
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING

import msgspec

from hangwatch.agent.fleet.digests import Looked, Writer, make_digest, note_look
from hangwatch.agent.fleet.link import EXPIRY_S, Link
from hangwatch.agent.fleet.merge import merge, shorten
from hangwatch.agent.fleet.peers import Member
from hangwatch.agent.fleet.questions import Inquiry
from hangwatch.agent.fleet.shared_incident import NOTICE_S, SharedIncident
from hangwatch.agent.fleet.wire import WIRE_VERSION, Answer, Notice, Question, encode
from hangwatch.exchange.opening import own_address
from hangwatch.exchange.protocol import Exchange, ExchangeError
from hangwatch.exchange.waiting import wait_within
from hangwatch.model.capture import Capture, Gap
from hangwatch.model.digest import DigestRank, encode_digest
from hangwatch.model.progress import RankProgress
from hangwatch.model.transforms.clocks import shift
from hangwatch.model.transforms.packing import pack
from hangwatch.sources.proc.files import node_name
from hangwatch.sources.proc.samples import is_supervised

if TYPE_CHECKING:
    from hangwatch.agent.job.watch import JobWatch

log = logging.getLogger("hangwatch")

#: Captures are of the moment.
_CAPTURE_S = 60.0
#: So long a node whose ranks are all gone stays with the others, who may be waiting for them.
LINGER_S = 60.0
#: Of how many operations in all, at the most, records are asked for: in large jobs the last few of each rank.
OPERATIONS_IN_ALL = 200_000
FEWEST_OPERATIONS = 24

_Elsewhere = dict[int, tuple[Member, DigestRank]]


def name_node() -> str:
    """This node's name in an exchange: its own, and what tells it from another of the same name."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:  # noqa: PTH123  # no path of the user's
            boot = file.read(8)
    except OSError:
        boot = "0"
    return f"{node_name()}.{boot}"


def name_channel(job_id: str, master: str, world_size: int | None) -> str:
    """The channel of one incarnation of a job: ranks that do not meet at one place, or are not as many, are not of one."""
    safe = "".join(c if c.isalnum() or c in "-_." else "-" for c in job_id)[:40]
    told = f"{job_id}\n{master}\n{world_size}".encode("utf-8", "backslashreplace")
    return f"{safe}-{blake2b(told, digest_size=8).hexdigest()}"


@dataclass
class JobFleet:
    """This node's part in the fleet that runs ``watch``'s job. ``owned``: the exchange is for this job alone."""

    watch: JobWatch
    exchange: Exchange
    channel: str
    name: str
    wake: Callable[[], None]
    owned: bool = False
    link: Link = field(init=False)
    inquiry: Inquiry = field(init=False)
    incident: SharedIncident = field(init=False)
    writer: Writer = field(init=False)
    _looked: dict[int, Looked] = field(default_factory=dict)
    _counts: itertools.count[int] = field(default_factory=itertools.count)
    _answered: str = ""
    _last: Capture | None = None
    _elsewhere: _Elsewhere = field(default_factory=dict)
    _gone_since_s: float | None = None
    _left: bool = False

    def __post_init__(self) -> None:
        """Take up the link."""
        agent = uuid.uuid4().hex[:16]
        self.writer = Writer(node_name(), agent, own_address(self.exchange.endpoint))
        self.link = Link(
            self.exchange, self.channel, self.name, f"{self.name}/{agent}", self._write, self.wake, self.watch.ledger
        )
        self.inquiry = Inquiry(self.link, self._post)
        self.incident = SharedIncident(self.watch, self.link, self.writer.node, self._post)
        self.link.start()

    # What the tick asks.

    @property
    def leads(self) -> bool:
        """Whether this agent diagnoses for all."""
        return self.link.leads

    @property
    def follows(self) -> bool:
        """Whether another agent does, or will: where the exchange is out of reach, each one does for itself."""
        return self.link.follows

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """What cannot be seen of the others."""
        return self.link.gaps

    @property
    def lingers(self) -> bool:
        """Whether the others may still ask for ranks that are gone."""
        if self._gone_since_s is None:
            self._gone_since_s = self.link.clock()
        return not self._left and self.link.clock() - self._gone_since_s < LINGER_S

    def look_around(self) -> tuple[list[RankProgress], bool, bool]:
        """The progress of other nodes' ranks; whether one of them has no probe; whether one is gone, alone or with its node."""
        now_s = self.link.clock()
        ages = self._ages()
        self._elsewhere = self.link.members.ranks(now_s, ages)
        progress = self.link.members.progress(self._elsewhere, now_s)
        entries = self._elsewhere.values()
        unprobed = any(r.state == "unprobed" and not m.is_silent(now_s) for m, r in entries)
        lost = any(r.state == "lost" or m.is_lost(now_s) for m, r in entries)
        return progress, unprobed, lost

    async def lead(self) -> None:
        """Take up the incident that the one before has left, and keep it known."""
        await self.incident.lead()

    async def follow(self) -> None:
        """Answer what is asked, and keep what is told."""
        await self._answer()
        await self.incident.follow(self._last)

    async def gather(self, own: Coroutine[None, None, Capture]) -> Capture:
        """A capture of all nodes at once; ``own`` makes this node's."""
        elsewhere = self._elsewhere
        each = max(FEWEST_OPERATIONS, OPERATIONS_IN_ALL // max(1, len(elsewhere)))
        question = await self.inquiry.ask("look", operations=each if each < 2000 else None)
        capture = await own
        self._note(capture)
        answers = await self.inquiry.collect(question)
        await self.inquiry.confirm(set(answers))
        now_s = self.link.clock()
        elsewhere = self.link.members.ranks(now_s, self._ages())
        return merge(capture, answers, elsewhere, now_s)

    async def add_sites(
        self, capture: Capture, own: Callable[[Capture], Coroutine[None, None, Capture]], ranks: list[int] | None
    ) -> Capture:
        """The capture with call sites of ``ranks`` (None: all), this node's by ``own``."""
        question = await self.inquiry.ask("sites", ranks=tuple(ranks) if ranks is not None else None)
        capture = await own(capture)
        asked = {self._elsewhere[r][0].name for r in ranks if r in self._elsewhere} if ranks is not None else None
        answers = await self._gathered(question, asked)
        flights = {r.rank: (r.identity.pid, r.flight) for a in answers for r in a.ranks if r.flight is not None}
        found = []
        for rank in capture.ranks:
            pid, flight = flights.get(rank.rank, (None, None))
            same = flight is not None and pid == rank.identity.pid
            found.append(msgspec.structs.replace(rank, flight=flight) if same else rank)
        return msgspec.structs.replace(capture, ranks=tuple(found))

    async def add_hardware(
        self, capture: Capture, own: Callable[[Capture], Coroutine[None, None, Capture]], only: tuple[str, ...] | None
    ) -> Capture:
        """The capture with what all nodes say of their hardware, this one's by ``own``."""
        question = await self.inquiry.ask("hardware", only=only)
        capture = await own(capture)
        for answer in await self._gathered(question):
            capture = msgspec.structs.replace(
                capture,
                nodes=(*capture.nodes, *answer.nodes),
                gaps=tuple(dict.fromkeys((*capture.gaps, *answer.gaps))),
            )
        return capture

    async def _gathered(self, question: Question, among: set[str] | None = None) -> list[Capture]:
        """The answers, their times on this node's clock."""
        answers, members = await self.inquiry.collect(question, among), self.link.members.members
        return [shift(a, members[name].offset_ns if name in members else 0) for name, a in answers.items()]

    async def pause(self) -> None:
        """The agent ends and the job goes on: another may lead at once, and an agent that is started here again is met anew."""
        leading = self.link.leads
        await self.link.stop()
        if leading:
            await self.link.try_to(lambda exchange: exchange.release(self.channel, self.link.holder))
        if self.owned:
            await self.exchange.close()

    async def leave(self) -> bool:
        """The end, here: whether it is for this node to end the job's incident, as nobody else is left to."""
        self._left = True
        told = self.watch.told
        await self.link.stop()
        leading = self.link.leads
        try:
            return await wait_within(self._say_goodbye(leading), 5.0)
        except (ExchangeError, asyncio.TimeoutError):
            return told is not None and not told.heard
        finally:
            if self.owned:
                await self.exchange.close()

    async def _say_goodbye(self, leading: bool) -> bool:
        await self.exchange.publish(self.channel, self.name, self._write(), EXPIRY_S)
        members, now_s = self.link.members, self.link.clock()
        members.update(await self.exchange.read(self.channel), now_s, time.time_ns())
        others = [m for m in members.current(now_s) if not m.digest.leaving and not m.is_silent(now_s)]
        if others:
            if leading:
                await self.exchange.release(self.channel, self.link.holder)
            return False
        return await self.exchange.hold(self.channel, self.link.holder, EXPIRY_S)

    # How it is done.

    def _ages(self) -> dict[int, float]:
        now, watch = time.time(), self.watch
        return {r: now - i.start_time for r, i in watch.ranks.items() if r not in watch.lost_since_s}

    def _write(self) -> bytes:
        watch = self.watch
        beats = watch.reader.read()[0] if watch.reader is not None else {}
        replaced_s = watch.replaced_s
        return encode_digest(
            make_digest(
                self.writer,
                count=next(self._counts),
                world_size=watch.job.world_size,
                ranks=watch.ranks,
                lost=set(watch.ranks) if self._left else watch.lost_since_s,
                supervised={r for r in watch.lost_since_s if is_supervised(watch.ranks[r])},
                beats=beats,
                looked=self._looked,
                now_ns=time.time_ns(),
                replaced_age_s=self.link.clock() - replaced_s if replaced_s is not None else None,
                leaving=self._left,
            )
        )

    def _note(self, capture: Capture) -> None:
        self._last = capture
        self._looked = note_look(capture)

    async def _post(self) -> None:
        record = self.incident.record
        notice = Notice(
            WIRE_VERSION,
            self.link.holder,
            self.inquiry.question,
            record.incident.id if record is not None else None,
            record.revision if record is not None else 0,
        )
        await self.link.try_to(lambda exchange: exchange.post(self.channel, encode(notice), NOTICE_S))

    async def _answer(self) -> None:
        question = self.link.question
        if question is None or question.id == self._answered:
            return
        self._answered = question.id
        watch = self.watch
        if question.ranks is not None and not set(question.ranks) & set(watch.ranks):
            return
        if question.kind == "look":
            capture = await watch.look_here()
            self._note(capture)
        else:
            capture = self._last or await watch.look_here()
            if question.kind == "sites":
                capture = await watch.sites_here(capture, list(question.ranks) if question.ranks is not None else None)
            else:
                capture = await watch.hardware_here(capture, question.only)
        answer = Answer(WIRE_VERSION, question.id, pack(shorten(capture, question.operations)))
        key = f"{question.id}/{self.name}"
        await self.link.try_to(lambda exchange: exchange.put(self.channel, key, encode(answer), _CAPTURE_S))
