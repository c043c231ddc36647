"""Captures all nodes of a job if this agent leads, else this node alone.

May import the model, the capturing room and its own; asks the others by ``questions``. Hosts may all be called
``localhost``, containers by the name of their host, engines by the program that they run. So in the exchange a node
has a key of its own (``member.name_node``). People read its name; if two nodes have the same, the next part of the
key follows it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from hangwatch.agent.capturing.hardware import mark_killed
from hangwatch.agent.capturing.local_ranks import LocalRanks
from hangwatch.agent.capturing.scope import LocalScope
from hangwatch.agent.fleet.link import Link
from hangwatch.agent.fleet.merge import merge
from hangwatch.agent.fleet.peers import RanksElsewhere
from hangwatch.agent.fleet.questions import Inquiry
from hangwatch.agent.fleet.wire import Question
from hangwatch.model.capture import Capture, RankCapture
from hangwatch.model.numbers import is_guest
from hangwatch.model.processes import ProcessSample, ThreadSample
from hangwatch.model.transforms.clocks import shift
from hangwatch.sources.discovery.roles import Roles
from hangwatch.sources.stacks.native import SOURCE as NATIVE_STACKS

_replace = msgspec.structs.replace
#: This much of a key usually tells nodes of one name apart.
_SHORT = 4


def tell_apart(own: str, nodes: Mapping[str, str]) -> dict[str, str]:
    """Return a name for each other node: its own, unless this node or another one has the same.

    ``own``: this node's name, which it keeps. ``nodes``: names by keys, which begin with the name.
    """
    several = Counter([own, *nodes.values()])
    found = {}
    for key, name in nodes.items():
        rest = key.removeprefix(name).lstrip(".")
        found[key] = name if several[name] == 1 or not rest else f"{name}.{rest[:_SHORT]}"
    taken = Counter([own, *found.values()])
    return {key: called if taken[called] == 1 else key for key, called in found.items()}


def tell_worlds_apart(capture: Capture, roles: Roles) -> Capture:
    """Return the capture of several nodes with consistent names of worlds, which ``roles`` keeps.

    Each node has named the worlds of its processes by itself.
    """
    ranks = tuple(
        _replace(rank, identity=_replace(rank.identity, world=roles.name(rank.identity.world, rank.rank)))
        if rank.identity.world and is_guest(rank.rank)
        else rank
        for rank in capture.ranks
    )
    return capture if ranks == capture.ranks else _replace(capture, ranks=ranks)


def rename_node(capture: Capture, called: str) -> Capture:
    """Return the capture of one node with the node's name replaced."""
    names = {rank.identity.node for rank in capture.ranks} | {facts.node for facts in capture.nodes}
    if names <= {called, ""}:
        return capture
    ranks = tuple(_replace(rank, identity=_replace(rank.identity, node=called)) for rank in capture.ranks)
    nodes = tuple(_replace(facts, node=called) for facts in capture.nodes)
    return _replace(capture, ranks=ranks, nodes=nodes, job=_replace(capture.job, nodes=(called,)))


#: What runs below these waits for other ranks or for torch's store, and its connections lead to no process beside the job.
_OF_TORCH = "/torch/distributed/"
Sampled = TypeVar("Sampled", ProcessSample, ThreadSample)


def find_connections(capture: Capture) -> set[tuple[str, str]]:
    """Return the connections to other nodes that processes are blocked on: own end and other end, ``HOST:PORT`` each."""
    found = set()
    for rank in capture.ranks:
        if rank.sample is None or _waits_for_ranks(rank):
            continue
        samples: list[ProcessSample | ThreadSample] = [rank.sample, *rank.sample.threads]
        found |= {(one.own_end, one.elsewhere) for one in samples if one.elsewhere}
    return found


def _waits_for_ranks(rank: RankCapture) -> bool:
    main = rank.stacks[-1].main if rank.stacks else None
    return main is not None and any(_OF_TORCH in frame.file for frame in main.frames)


def add_asked(capture: Capture, answers: Sequence[Capture]) -> Capture:
    """Return the capture with the processes that other nodes found at the other ends; each end leads to its process.

    An end that two nodes have leads to none: nodes may use the same address for what is local to them.
    """
    ranks = {rank.rank: rank for rank in capture.ranks}
    found = [rank for answer in answers for rank in answer.ranks]
    having = Counter(end for one in found for end in one.serves)
    at = {end: one.rank for one in found for end in one.serves if having[end] == 1}
    if not at:
        return capture
    ranks |= {one.rank: _replace(one, serves=()) for one in found if one.identity.worldless}
    gaps = tuple(dict.fromkeys((*capture.gaps, *(gap for answer in answers for gap in answer.gaps))))
    return _replace(capture, ranks=tuple(_lead(ranks[number], at) for number in sorted(ranks)), gaps=gaps)


def _with_call_sites(rank: RankCapture, answer: RankCapture | None) -> RankCapture:
    """Return the rank with what a node has answered of it; without an answer the same object, which was looked at already."""
    if answer is None:
        return rank
    return msgspec.structs.replace(rank, flight=answer.flight or rank.flight, native=answer.native or rank.native)


def _lead(rank: RankCapture, at: dict[str, int]) -> RankCapture:
    last = rank.sample
    if last is None:
        return rank
    threads = tuple(_lead_one(thread, at) for thread in last.threads)
    return _replace(rank, processes=(*rank.processes[:-1], _replace(_lead_one(last, at), threads=threads)))


def _lead_one(one: Sampled, at: dict[str, int]) -> Sampled:
    number = at.get(f"{one.own_end} {one.elsewhere}")
    return _replace(one, answering=number, elsewhere="") if number is not None else one


#: How many operations are asked for in all; in large jobs only the last few of each rank.
OPERATIONS_IN_ALL = 200_000
FEWEST_OPERATIONS = 24


@dataclass
class FleetScope:
    """Captures all nodes of a job.

    ``local``: captures ``ranks``, those of this node. ``elsewhere``: the other nodes' ranks as last observed.
    ``last``: the last capture of this node.
    """

    local: LocalScope
    ranks: LocalRanks
    link: Link
    inquiry: Inquiry
    node: str
    elsewhere: RanksElsewhere = field(default_factory=dict)
    last: Capture | None = None
    #: A question replaces the previous one, which some nodes may not have seen yet: so only one at a time.
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)
    _left: bool = False
    _roles: Roles = field(default_factory=Roles)

    async def capture(self) -> Capture:
        """Capture all nodes at once."""
        if not self._asks:
            return await self.capture_here()
        async with self.asking:
            each = max(FEWEST_OPERATIONS, OPERATIONS_IN_ALL // max(1, len(self.elsewhere)))
            question = await self.inquiry.ask("capture", operations=each if each < 2000 else None)
            capture = await self.capture_here()
            answers = await self.inquiry.collect(question)
            await self.inquiry.confirm(set(answers))
        now_s, called = self.link.clock(), self.called
        theirs = {name: rename_node(a, called[name]) if name in called else a for name, a in answers.items()}
        elsewhere = self.link.members.ranks(now_s, self.ranks.ages_s())
        whole = await self._add_asked(merge(capture, theirs, elsewhere, now_s, called=called))
        return tell_worlds_apart(whole, self._roles)

    async def _add_asked(self, capture: Capture) -> Capture:
        """Return the capture with the processes on other nodes at the other end of what ranks are blocked on."""
        connections = find_connections(capture)
        if not connections or not self.elsewhere:
            return capture
        async with self.asking:
            question = await self.inquiry.ask("asked", connections=tuple(connections))
            return add_asked(capture, await self._collect(question))

    async def call_sites(self, capture: Capture, ranks: Collection[int] | None) -> Capture:
        """Return the capture with the call sites of ``ranks`` (None: all), on whichever node."""
        if not self._asks:
            return await self.local.call_sites(capture, ranks)
        async with self.asking:
            question = await self.inquiry.ask("call_sites", ranks=tuple(ranks) if ranks is not None else None)
            capture = await self.local.call_sites(capture, ranks)
            answers = await self._collect(question, self.nodes_of(ranks))
        theirs = {(r.rank, r.identity.pid): r for answer in answers for r in answer.ranks}
        found = [_with_call_sites(rank, theirs.get((rank.rank, rank.identity.pid))) for rank in capture.ranks]
        gaps = [gap for answer in answers for gap in answer.gaps if gap.source == NATIVE_STACKS]
        return msgspec.structs.replace(capture, ranks=tuple(found), gaps=tuple(dict.fromkeys((*capture.gaps, *gaps))))

    async def hardware(self, capture: Capture, only: Collection[str] | None) -> Capture:
        """Return the capture with what all nodes say of their hardware."""
        if not self._asks:
            return await self.local.hardware(capture, only)
        async with self.asking:
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
        """Capture this node alone."""
        self.last = await self.local.capture()
        return self.last

    async def last_here(self) -> Capture:
        """Return the last capture of this node, or a new one if there is none."""
        return self.last or await self.capture_here()

    def leave(self) -> None:
        """Stop asking the other nodes."""
        self._left = True

    def nodes_of(self, ranks: Collection[int] | None) -> set[str] | None:
        """Return the keys of the other nodes that have one of these ranks; None (all nodes) if ``ranks`` is None."""
        return {self.elsewhere[r][0].name for r in ranks if r in self.elsewhere} if ranks is not None else None

    @property
    def called(self) -> dict[str, str]:
        """The names of the other nodes, by their keys."""
        return tell_apart(self.node, {m.name: m.digest.node for m in self.link.members.members.values()})

    @property
    def _asks(self) -> bool:
        return self.link.leads and not self._left

    async def _collect(self, question: Question, among: set[str] | None = None) -> list[Capture]:
        """Return the answers, their times on this node's clock."""
        answers, members = await self.inquiry.collect(question, among), self.link.members.members
        shifted = {name: shift(a, members[name].offset_ns if name in members else 0) for name, a in answers.items()}
        called = self.called
        return [rename_node(a, called[name]) if name in called else a for name, a in shifted.items()]
