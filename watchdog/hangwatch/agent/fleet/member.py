"""This node's part in one job on several nodes: who diagnoses, what the others are asked, one incident for all.

The holder of the lease looks for suspicions in all digests, asks all nodes for a capture at once, diagnoses the whole
and reports. The others answer, keep a bundle of their own ranks under the same id, and take over if the holder falls
silent. A node that does not reach the exchange goes on alone, and says so. May import the exchange, the capturing and
the incidents rooms, ``job.other_nodes`` (which it implements) and its own room; never the watch.
"""

from __future__ import annotations

import asyncio
import itertools
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b

from hangwatch.agent.capturing.arrivals import LONGEST_S
from hangwatch.agent.capturing.local_ranks import LocalRanks
from hangwatch.agent.capturing.scope import LocalScope
from hangwatch.agent.capturing.source_health import SourceHealth
from hangwatch.agent.fleet.comparison import FleetComparison
from hangwatch.agent.fleet.digests import Writer, make_digest
from hangwatch.agent.fleet.link import EXPIRY_S, Link
from hangwatch.agent.fleet.merge import shorten
from hangwatch.agent.fleet.questions import Inquiry
from hangwatch.agent.fleet.scope import FleetScope
from hangwatch.agent.fleet.shared_incident import NOTICE_S, SharedIncident
from hangwatch.agent.fleet.wire import WIRE_VERSION, Answer, LeaseNotice, Question, encode
from hangwatch.agent.incidents.lifecycle import IncidentLifecycle
from hangwatch.agent.job.other_nodes import Elsewhere
from hangwatch.exchange.addresses import own_address
from hangwatch.exchange.protocol import Exchange, ExchangeError
from hangwatch.exchange.waiting import wait_within
from hangwatch.model.capture import Gap
from hangwatch.model.digest import encode_digest
from hangwatch.model.numbers import is_guest
from hangwatch.model.transforms.packing import pack
from hangwatch.slow.sampling import pack_calls
from hangwatch.sources.beats.node_beats import NodeBeats
from hangwatch.sources.proc.files import node_key, node_name
from hangwatch.sources.proc.samples import is_supervised

#: How long captures stay in the exchange: they are soon outdated.
_CAPTURE_S = 60.0
#: How long a node whose ranks are all gone stays a member: others may be waiting for them.
LINGER_S = 60.0


def name_node(root: int | None = None) -> str:
    """Return this node's key in an exchange: its name, and what tells it from other machines or containers of that name.

    Two agents that see the same processes are of one node: all of it, or only those below ``root``.
    """
    return f"{node_name()}.{blake2b(f'{node_key()} {root or 0}'.encode(), digest_size=4).hexdigest()}"


def name_channel(job_id: str, master: str, world_size: int | None) -> str:
    """Return the channel of one incarnation of a job.

    Ranks with another meeting place or another world size belong to another channel.
    """
    safe = "".join(c if c.isalnum() or c in "-_." else "-" for c in job_id)[:40]
    identity = f"{job_id}\n{master}\n{world_size}".encode("utf-8", "backslashreplace")
    return f"{safe}-{blake2b(identity, digest_size=8).hexdigest()}"


@dataclass
class JobFleet:
    """This node among the nodes of a job.

    ``local``: captures its ``ranks``. ``incidents``: the job's. ``name``: the node's key in the exchange; ``node``:
    its name for people. ``wake``: makes the next tick come at once. ``owned``: the exchange is for this job alone.
    ``joined``: called when the exchange has answered for the first time.
    """

    answers_may_come = True  # also of a node that has not answered yet
    ranks: LocalRanks
    local: LocalScope
    incidents: IncidentLifecycle
    exchange: Exchange
    channel: str
    name: str
    wake: Callable[[], None]
    reader: NodeBeats | None = None
    health: SourceHealth = field(default_factory=SourceHealth)
    owned: bool = False
    joined: Callable[[], None] = lambda: None
    node: str = field(default_factory=node_name)
    link: Link = field(init=False)
    inquiry: Inquiry = field(init=False)
    scope: FleetScope = field(init=False)
    sharing: SharedIncident = field(init=False)
    comparison: FleetComparison = field(init=False)
    writer: Writer = field(init=False)
    _counts: itertools.count[int] = field(default_factory=itertools.count)
    _answered: str = ""
    _gone_since_s: float | None = None
    _left: bool = False
    _profiling: asyncio.Task[None] | None = None

    def __post_init__(self) -> None:
        """Start the link; within a running loop."""
        agent = uuid.uuid4().hex[:16]
        holder = f"{self.name}/{agent}"
        self.writer = Writer(self.node, agent, own_address(self.exchange.endpoint))
        self.link = Link(
            self.exchange, self.channel, self.name, holder, self._write_digest, self.wake, self.health, self.joined
        )
        self.inquiry = Inquiry(self.link, self._post)
        self.scope = FleetScope(self.local, self.ranks, self.link, self.inquiry, self.node)
        self.comparison = FleetComparison(self.local, self.scope, self.inquiry)
        self.sharing = SharedIncident(self.incidents, self.scope, self.link, self.writer.node, self._post)
        self.link.start()

    @property
    def leads(self) -> bool:
        """True if this agent diagnoses for all."""
        return self.link.leads

    @property
    def follows(self) -> bool:
        """True if another agent leads, or will.

        False if the exchange is unreachable: then each agent acts alone.
        """
        return self.link.follows

    @property
    def distrust(self) -> str:
        """Why this agent must not act on the job, whatever the captures show; empty if it may act, or is alone."""
        return self.link.distrust if self.link.leads and self.link.agents else ""

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """What this node cannot see of the other nodes."""
        return self.link.gaps

    def lingers(self) -> bool:
        """True for a while after the first call, while other nodes may still ask for ranks that are gone."""
        if self._gone_since_s is None:
            self._gone_since_s = self.link.clock()
        return not self._left and self.link.clock() - self._gone_since_s < LINGER_S

    async def lead(self) -> Elsewhere:
        """Take over the previous holder's incident; return the other nodes' ranks as their digests show them."""
        await self.sharing.lead()
        now_s = self.link.clock()
        ranks = self.scope.elsewhere = self.link.members.ranks(now_s, self.ranks.ages_s())
        return Elsewhere(
            progress=self.link.members.progress(ranks, now_s),
            unprobed=any(r.state == "unprobed" and not m.is_silent(now_s) for m, r in ranks.values()),
            # Processes of other worlds may come and go.
            lost=any((r.state == "lost" and not is_guest(r.rank)) or m.is_lost(now_s) for m, r in ranks.values()),
        )

    async def follow(self) -> None:
        """Answer questions, and keep what is reported."""
        await self._answer()
        await self.sharing.follow()

    async def pause(self) -> None:
        """Leave because the agent ends while the job goes on.

        Another agent may lead at once, and a later agent of this node counts as a new member.
        """
        leading = self.link.leads
        self._stop_profiling()
        await self.link.stop()
        if leading:
            await self.link.try_to(lambda exchange: exchange.release(self.channel, self.link.holder))
        if self.owned:
            await self.exchange.close()

    async def leave(self) -> None:
        """Leave because the job ended here. If no node is left, end the job's incident; else another node will."""
        self._left = True
        self.scope.leave()
        self._stop_profiling()
        await self.link.stop()
        leading = self.link.leads
        try:
            last = await wait_within(self._say_goodbye(leading), 5.0)
        except (ExchangeError, asyncio.TimeoutError):
            pass  # it stays with its owner
        else:
            settle = self.incidents.take_back if last else self.incidents.give_up
            settle()
        finally:
            if self.owned:
                await self.exchange.close()

    async def _say_goodbye(self, leading: bool) -> bool:
        """Tell the others that this node leaves; True if there are none."""
        await self.exchange.publish(self.channel, self.name, self._write_digest(), EXPIRY_S)
        members, now_s = self.link.members, self.link.clock()
        members.update(await self.exchange.read(self.channel), now_s, time.time_ns())
        others = [m for m in members.current(now_s) if not m.digest.leaving and not m.is_silent(now_s)]
        if others:
            if leading:
                await self.exchange.release(self.channel, self.link.holder)
            return False
        return await self.exchange.hold(self.channel, self.link.holder, EXPIRY_S)

    def _write_digest(self) -> bytes:
        known, lost = self.ranks.known, self.ranks.lost_since_s
        replaced_s = self.ranks.replaced_s
        return encode_digest(
            make_digest(
                self.writer,
                count=next(self._counts),
                world_size=self.ranks.job.world_size,
                ranks=known,
                lost=set(known) if self._left else lost,
                supervised={rank for rank in lost if is_supervised(known[rank])},
                beats=self.reader.read()[0] if self.reader is not None else {},
                now_ns=time.time_ns(),
                replaced_age_s=self.link.clock() - replaced_s if replaced_s is not None else None,
                leaving=self._left,
                waited=self.local.arrivals.windows.waited,
                links=self.local.arrivals.links,
            )
        )

    async def _post(self) -> None:
        """Post the notice of the lease holder."""
        shared = self.sharing.shared
        notice = LeaseNotice(
            WIRE_VERSION,
            self.link.holder,
            self.inquiry.question,
            shared.incident.id if shared is not None else None,
            shared.revision if shared is not None else 0,
        )
        await self.link.try_to(lambda exchange: exchange.post(self.channel, encode(notice), NOTICE_S))

    async def _answer(self) -> None:
        question = self.link.question
        if question is None or question.id == self._answered:
            return
        self._answered = question.id
        if question.ranks is not None and not set(question.ranks) & set(self.ranks.known):
            return
        if question.kind == "profile":
            self._stop_profiling()
            # That takes as long as some steps.
            self._profiling = asyncio.create_task(self._answer_with_profiles(question))
        else:
            await self._reply(await self._answer_to(question))

    async def _answer_to(self, question: Question) -> Answer:
        if question.kind == "calls":
            arrivals, ranks, most = self.local.arrivals, question.ranks or (), question.operations or 0
            calls = await asyncio.to_thread(
                lambda: [pack_calls(*one) for one in arrivals.windows.calls(ranks, most).items()]
            )
            return Answer(WIRE_VERSION, question.id, calls=tuple(calls))
        if question.kind == "capture":
            capture = await self.scope.capture_here()
        elif question.kind == "asked":
            capture = await self.local.asked(question.connections)
        elif question.kind == "call_sites":
            capture = await self.local.call_sites(await self.scope.last_here(), question.ranks)
        else:
            capture = await self.local.hardware(await self.scope.last_here(), question.only)
        return Answer(WIRE_VERSION, question.id, pack(shorten(capture, question.operations)))

    async def _answer_with_profiles(self, question: Question) -> None:
        profiles = await self.local.arrivals.profile(question.ranks or (), min(question.seconds, LONGEST_S))
        await self._reply(Answer(WIRE_VERSION, question.id, profiles=profiles))

    async def _reply(self, answer: Answer) -> None:
        key = f"{answer.question}/{self.name}"
        await self.link.try_to(lambda exchange: exchange.put(self.channel, key, encode(answer), _CAPTURE_S))

    def _stop_profiling(self) -> None:
        if self._profiling is not None:
            self._profiling.cancel()
            self._profiling = None
