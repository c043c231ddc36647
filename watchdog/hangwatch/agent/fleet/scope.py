"""Captures of all nodes of a job where this one leads, of this node alone elsewhere.

May import the model, the capturing room and its own; asks the others by ``questions``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field

import msgspec

from hangwatch.agent.capturing.hardware import mark_killed
from hangwatch.agent.capturing.local_ranks import LocalRanks
from hangwatch.agent.capturing.scope import NodeScope
from hangwatch.agent.fleet.connections import add_asked, find_connections
from hangwatch.agent.fleet.digests import LastCapture, summarize
from hangwatch.agent.fleet.link import Link
from hangwatch.agent.fleet.merge import merge
from hangwatch.agent.fleet.node_names import rename_node, tell_apart, tell_worlds_apart
from hangwatch.agent.fleet.peers import RanksElsewhere
from hangwatch.agent.fleet.questions import Inquiry
from hangwatch.agent.fleet.wire import Question
from hangwatch.model.capture import Capture
from hangwatch.model.transforms.clocks import shift
from hangwatch.sources.discovery.roles import Roles
from hangwatch.sources.stacks.native import SOURCE as NATIVE_STACKS

#: Of how many operations in all, at the most, records are asked for: in large jobs the last few of each rank.
OPERATIONS_IN_ALL = 200_000
FEWEST_OPERATIONS = 24


@dataclass
class FleetScope:
    """``local`` captures ``ranks``, those of this node; ``elsewhere`` are those of the others, as they were observed last.

    ``last`` is the last capture of this node, ``last_captures`` what it has shown of each rank.
    """

    local: NodeScope
    ranks: LocalRanks
    link: Link
    inquiry: Inquiry
    node: str
    elsewhere: RanksElsewhere = field(default_factory=dict)
    last: Capture | None = None
    last_captures: dict[int, LastCapture] = field(default_factory=dict)
    #: A question takes the place of the one before, which not all nodes may have seen yet: so there is one at a time.
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)
    _left: bool = False
    _roles: Roles = field(default_factory=Roles)

    async def capture(self) -> Capture:
        """All nodes at once."""
        if not self._asks:
            return await self.capture_here()
        async with self._asking:
            each = max(FEWEST_OPERATIONS, OPERATIONS_IN_ALL // max(1, len(self.elsewhere)))
            question = await self.inquiry.ask("capture", operations=each if each < 2000 else None)
            capture = await self.capture_here()
            answers = await self.inquiry.collect(question)
            await self.inquiry.confirm(set(answers))
        now_s, called = self.link.clock(), self._called
        theirs = {name: rename_node(a, called[name]) if name in called else a for name, a in answers.items()}
        elsewhere = self.link.members.ranks(now_s, self.ranks.ages_s())
        whole = await self._add_asked(merge(capture, theirs, elsewhere, now_s, called=called))
        return tell_worlds_apart(whole, self._roles)

    async def _add_asked(self, capture: Capture) -> Capture:
        """The capture with the processes on other nodes that have the other end of what ranks are blocked on."""
        connections = find_connections(capture)
        if not connections or not self.elsewhere:
            return capture
        async with self._asking:
            question = await self.inquiry.ask("asked", connections=tuple(connections))
            return add_asked(capture, await self._collect(question))

    async def call_sites(self, capture: Capture, ranks: Collection[int] | None) -> Capture:
        """The capture with the call sites of ``ranks`` (None: all), wherever they are."""
        if not self._asks:
            return await self.local.call_sites(capture, ranks)
        async with self._asking:
            question = await self.inquiry.ask("call_sites", ranks=tuple(ranks) if ranks is not None else None)
            capture = await self.local.call_sites(capture, ranks)
            among = None if ranks is None else {self.elsewhere[r][0].name for r in ranks if r in self.elsewhere}
            answers = await self._collect(question, among)
        theirs = {(r.rank, r.identity.pid): r for answer in answers for r in answer.ranks}
        found = []
        for rank in capture.ranks:
            same = theirs.get((rank.rank, rank.identity.pid), rank)
            found.append(
                msgspec.structs.replace(rank, flight=same.flight or rank.flight, native=same.native or rank.native)
            )
        gaps = [gap for answer in answers for gap in answer.gaps if gap.source == NATIVE_STACKS]
        return msgspec.structs.replace(capture, ranks=tuple(found), gaps=tuple(dict.fromkeys((*capture.gaps, *gaps))))

    async def hardware(self, capture: Capture, only: Collection[str] | None) -> Capture:
        """The capture with what all nodes say of their hardware."""
        if not self._asks:
            return await self.local.hardware(capture, only)
        async with self._asking:
            question = await self.inquiry.ask("hardware", only=tuple(sorted(only)) if only is not None else None)
            capture = await self.local.hardware(capture, only)
            answers = await self._collect(question)
        for answer in answers:
            ranks = capture.ranks
            for facts in answer.nodes:
                ranks = mark_killed(ranks, facts)
            capture = msgspec.structs.replace(
                capture,
                ranks=tuple(ranks),
                nodes=(*capture.nodes, *answer.nodes),
                gaps=tuple(dict.fromkeys((*capture.gaps, *answer.gaps))),
            )
        return capture

    async def capture_here(self) -> Capture:
        """This node alone."""
        self.last = await self.local.capture()
        self.last_captures = summarize(self.last)
        return self.last

    async def last_here(self) -> Capture:
        """The last capture of this node, a new one where there is none."""
        return self.last or await self.capture_here()

    def leave(self) -> None:
        """The others are not asked any more."""
        self._left = True

    @property
    def _called(self) -> dict[str, str]:
        """What to call the other nodes, by their keys."""
        return tell_apart(self.node, {m.name: m.digest.node for m in self.link.members.members.values()})

    @property
    def _asks(self) -> bool:
        return self.link.leads and not self._left

    async def _collect(self, question: Question, among: set[str] | None = None) -> list[Capture]:
        """The answers, their times on this node's clock."""
        answers, members = await self.inquiry.collect(question, among), self.link.members.members
        shifted = {name: shift(a, members[name].offset_ns if name in members else 0) for name, a in answers.items()}
        called = self._called
        return [rename_node(a, called[name]) if name in called else a for name, a in shifted.items()]
