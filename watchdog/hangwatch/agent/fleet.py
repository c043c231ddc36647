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

from hangwatch.agent.fleet_digest import Looked, Writer, make_digest, note_look
from hangwatch.agent.fleet_inquiry import ANSWER_S, Inquiry
from hangwatch.agent.fleet_link import EXPIRY_S, Link
from hangwatch.agent.fleet_members import Member
from hangwatch.agent.fleet_merge import merge, shift, shorten
from hangwatch.agent.fleet_wire import WIRE_VERSION, Answer, Notice, Question, Record, WireError, decode, encode
from hangwatch.agent.suspicion import Pulse
from hangwatch.exchange.opening import own_address
from hangwatch.exchange.protocol import Exchange, ExchangeError
from hangwatch.exchange.waiting import wait_within
from hangwatch.model.capture import Capture, Gap
from hangwatch.model.digest import DigestRank, encode_digest
from hangwatch.model.packing import pack
from hangwatch.sources.proc import node_name

if TYPE_CHECKING:
    from hangwatch.agent.tick import JobWatch
    from hangwatch.agent.told import Told

log = logging.getLogger("hangwatch")

#: How long a node that is to end its job waits for the one that writes the bundle to have all it needs.
COMPLETION_S = 10.0
_POLL_S = 0.1
#: Notices and captures are of the moment; the incident is put up again before it is forgotten.
_NOTICE_S = 120.0
_CAPTURE_S = 60.0
_AGAIN_S = 30.0
#: An incident that nobody has put up for so long is over, for all that whoever leads can see.
FORGOTTEN_S = 90.0
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
    writer: Writer = field(init=False)
    _looked: dict[int, Looked] = field(default_factory=dict)
    _counts: itertools.count[int] = field(default_factory=itertools.count)
    _answered: str = ""
    _last: Capture | None = None
    _record: Record | None = None
    _revision: int = 0
    _spread_s: float = 0.0
    _known_s: float | None = None
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
        self.link.start()

    # What the tick asks.

    @property
    def leads(self) -> bool:
        """Whether this agent diagnoses for all."""
        return self.link.leads

    @property
    def follows(self) -> bool:
        """Whether another agent does, or will: where the exchange is out of reach, each one does for itself."""
        return not self.link.alone and not self.link.leads

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

    def look_around(self) -> tuple[list[Pulse], bool, bool]:
        """The pulses of the ranks elsewhere; whether one of them has no probe; whether one is gone, with its node or without."""
        now_s = self.link.clock()
        ages = self._ages()
        self._elsewhere = self.link.members.ranks(now_s, ages)
        pulses = self.link.members.pulses(self._elsewhere, now_s)
        entries = self._elsewhere.values()
        unprobed = any(r.state == "unprobed" and not m.is_silent(now_s) for m, r in entries)
        lost = any(r.state == "lost" or m.is_lost(now_s) for m, r in entries)
        return pulses, unprobed, lost

    async def lead(self) -> None:
        """Take up the incident that the one before has left, and keep it known."""
        await self._read_record()
        watch, record, now_s = self.watch, self._record, self.link.clock()
        self._known_s = now_s
        if record is not None and record.incident.ended_at is None:
            if watch.told is not None and watch.told.incident.id == record.incident.id:
                if not watch.told.active:  # it has ended while the others could not be told
                    await self.spread(watch.told, announced=True)
            elif watch.standing is None:  # whoever has told of it is gone, and this agent was not there then
                await watch.adopt(record.incident, await watch.look_here(), record.node)
        told = watch.told
        if told is not None and told.active and told.heard:
            told.heard = False
            if record is None or record.incident.id != told.incident.id or not record.announced:
                await watch.announce(told.incident, told.path)
            await self.spread(told, announced=True)
        elif told is not None and now_s - self._spread_s >= _AGAIN_S and told.active:
            await self.spread(told, announced=True)

    async def follow(self) -> None:
        """Answer what is asked, and keep what is told."""
        await self._answer()
        await self._read_record()
        record, watch, told = self._record, self.watch, self.watch.told
        incident = record.incident if record is not None and record.incident.ended_at is None else None
        mine = told is not None and record is not None and told.incident.id == record.incident.id
        if mine or watch.standing is None or self._known_s is None:
            self._known_s = self.link.clock()
        # Another one has taken its place, or whoever leads knows of none: an agent that comes back may have missed the end.
        gone = incident is not None or self.link.clock() - self._known_s >= FORGOTTEN_S
        if told is not None and told.active and (incident is None if mine else gone):
            tell = watch.hear if told.heard or mine else watch.announce
            await told.close(watch.state_dir, tell, _ended_ns())
        if record is None or incident is None:
            return
        if told is not None and mine:
            told.heard = True  # also where it was ours, and another has taken over
            if told.incident.verdict == incident.verdict:
                return
        await watch.adopt(incident, self._last or await watch.look_here(), record.node)

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

    async def spread(self, told: Told, *, announced: bool, complete: bool = False) -> None:
        """Let the others know of the incident, as it is now."""
        self._revision = max(self._revision, self._record.revision if self._record is not None else 0) + 1
        self._spread_s = self.link.clock()
        incident = msgspec.structs.replace(told.incident, ranks=())
        record = self._record = Record(
            WIRE_VERSION, self._revision, incident, announced, self.writer.node, complete or self._is_complete(told)
        )
        await self.link.try_to(lambda exchange: exchange.put(self.channel, "incident", encode(record), _NOTICE_S))
        await self._post()

    def _is_complete(self, told: Told) -> bool:
        record = self._record
        return record is not None and record.complete and record.incident.id == told.incident.id

    async def await_completion(self, told: Told) -> None:
        """Return when the bundle of an incident that another node has told of is complete, or it takes too long."""
        end_s = self.link.clock() + COMPLETION_S
        while self.follows and not self._is_complete(told) and self.link.clock() < end_s:
            await asyncio.sleep(_POLL_S)

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
        record = self._record
        notice = Notice(
            WIRE_VERSION,
            self.link.holder,
            self.inquiry.question,
            record.incident.id if record is not None else None,
            record.revision if record is not None else 0,
        )
        await self.link.try_to(lambda exchange: exchange.post(self.channel, encode(notice), _NOTICE_S))

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

    async def _read_record(self) -> None:
        """The incident as the holder has told of it last, where that is news."""
        notice, record = self.link.notice, self._record
        if notice is None or notice.incident is None or notice.holder == self.link.holder:
            return
        if record is not None and (record.incident.id, record.revision) == (notice.incident, notice.revision):
            return
        try:
            found = await wait_within(self.exchange.get(self.channel, ["incident"]), ANSWER_S)
            self._record = decode(found["incident"], Record) if found else None
        except (ExchangeError, asyncio.TimeoutError, WireError) as error:
            log.debug("the incident cannot be read: %s", error)


def _ended_ns() -> int:
    return time.time_ns()
