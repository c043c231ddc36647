"""Compares the ranks of all nodes, to find the one that makes the others late.

Each node reads the records of its own ranks and publishes how long each has waited. The lease holder asks for the calls of those
that it needs (``slow.sampling``), and has the late rank watched where it is. May import the capturing room, ``slow`` and its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from hangwatch.agent.capturing.hardware import OF_THE_LATE
from hangwatch.agent.capturing.scope import LocalScope
from hangwatch.agent.fleet.peers import Member
from hangwatch.agent.fleet.questions import Inquiry
from hangwatch.agent.fleet.scope import FleetScope
from hangwatch.model.capture import Capture, RankCapture, RankIdentity
from hangwatch.model.digest import DigestRank
from hangwatch.model.slowness import Profile, Traffic
from hangwatch.slow.sampling import choose_ranks, unpack_calls
from hangwatch.slow.timeline import Streams

log = logging.getLogger("hangwatch")


@dataclass(frozen=True)
class FleetComparison:
    """Compares the ranks of all nodes if this agent leads. ``local``: those of this node; ``scope``: knows the others."""

    local: LocalScope
    scope: FleetScope
    inquiry: Inquiry
    #: An error of one millisecond in a clock would count at each operation.
    one_clock: bool = False

    @property
    def looks(self) -> bool:
        """True if this agent leads."""
        return self.inquiry.link.leads

    @property
    def is_whole(self) -> bool:
        """True if all ranks of the job are known, and no others; of the other nodes only the lease holder knows them."""
        ranks = self.scope.ranks
        return not self.looks or {*ranks.known, *self.scope.elsewhere} == set(range(ranks.job.world_size or 0))

    async def gather(self, own: Streams) -> Streams | None:
        """Return the calls of the ranks to be compared; None if one of them does not answer in time."""
        elsewhere = self.scope.elsewhere
        theirs = {rank: one.waited for rank, (_, one) in elsewhere.items() if one.waited is not None}
        nodes = {**dict.fromkeys(own, ""), **{rank: member.name for rank, (member, _) in elsewhere.items()}}
        chosen = choose_ranks(own, {**theirs, **self.local.arrivals.windows.waited}, nodes)
        if not chosen:
            return {}
        streams = {rank: own[rank] for rank in chosen if rank in own}
        most = max(map(len, own.values()))
        async with self.scope.asking:
            question = await self.inquiry.ask("calls", ranks=tuple(chosen), operations=most)
            answers = await self.inquiry.collect_answers(
                question, lambda answer: answer.calls, self.scope.nodes_of(chosen)
            )
        try:
            streams |= await self.local.arrivals.count(
                lambda: {sent.rank: unpack_calls(sent) for calls in answers.values() for sent in calls}
            )
        except ValueError as error:
            log.warning("the calls of another node's ranks cannot be read: %s", error)
        return streams if streams.keys() == set(chosen) else None

    async def profile(self, ranks: Sequence[int], seconds: float) -> tuple[Profile, ...]:
        """Watch ``ranks`` where they are, and return where they spend their time."""
        async with self.scope.asking:
            question = await self.inquiry.ask("profile", ranks=tuple(ranks), seconds=seconds)
        # Others may ask meanwhile: nodes that have seen this question go on.
        here, there = await asyncio.gather(
            self.local.arrivals.profile(ranks, seconds),
            self.inquiry.collect_answers(question, lambda answer: answer.profiles, self.scope.nodes_of(ranks)),
        )
        return tuple(profile for profiles in (here, *there.values()) for profile in profiles if profile.rank in ranks)

    @property
    def links(self) -> Mapping[str, Sequence[Traffic]]:
        """The busiest links of each node."""
        others = {member.name: member.digest for member, _ in self.scope.elsewhere.values()}
        theirs = {self.scope.called.get(name, digest.node): digest.links for name, digest in others.items()}
        return {self.scope.node: self.local.arrivals.links, **theirs}

    async def capture(self, *, devices: bool) -> Capture:
        """Capture this node's ranks once; the others are there by name, as nothing is wrong with them."""
        capture = await self.local.capture_once(())
        known = {rank.rank for rank in capture.ranks}
        others = tuple(
            RankCapture(self._identify(member, one, capture.at_ns))
            for rank, (member, one) in sorted(self.scope.elsewhere.items())
            if rank not in known
        )
        names = dict.fromkeys((*capture.job.nodes, *(rank.identity.node for rank in others)))
        job = msgspec.structs.replace(capture.job, nodes=tuple(names))
        capture = msgspec.structs.replace(capture, job=job, ranks=(*capture.ranks, *others))
        return await self.scope.hardware(capture, OF_THE_LATE) if devices else capture

    def _identify(self, member: Member, rank: DigestRank, now_ns: int) -> RankIdentity:
        identity = member.digest.identity(rank, now_ns)
        return msgspec.structs.replace(identity, node=self.scope.called.get(member.name, identity.node))
