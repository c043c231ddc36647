"""Groups that processes of several worlds share across nodes: publishes this agent's claims, and reads other agents'.

Each group that may have members elsewhere has a channel, named after the group, at the node where its members met.
What is read there decides which processes elsewhere belong to a job here, and which here to a job elsewhere
(``sources.beats.worlds``). May import the model, the exchange, the capturing room's ranks and its own room.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from hashlib import blake2b

import msgspec

from hangwatch.agent.capturing.local_ranks import LocalRanks
from hangwatch.agent.fleet.member import name_channel
from hangwatch.agent.fleet.peers import SILENT_S
from hangwatch.exchange.protocol import Exchange, ExchangeError
from hangwatch.exchange.waiting import wait_within
from hangwatch.model.capture import Gap
from hangwatch.model.claims import (
    CLAIMS_VERSION,
    ClaimedGroup,
    ClaimedWorld,
    ClaimsElsewhere,
    JobOfWorld,
    NodeClaims,
    OpenGroups,
    World,
    encode_claims,
    parse_claims,
)
from hangwatch.model.transforms.published import PublishedError
from hangwatch.sources.beats.worlds import Worlds

log = logging.getLogger("hangwatch")

PERIOD_S = 1.0
#: Claims that are not renewed stop counting (``SILENT_S``), but are kept for a while: their agent may restart.
FORGET_S = 60.0
#: By then members on this node have written a beat: only members missing for longer may be elsewhere.
OPEN_S = 3.0
_ROUND_LIMIT_S = 8.0


@dataclass
class _Known:
    """What one agent claims of one group, and when that last changed."""

    claims: NodeClaims
    changed_s: float


@dataclass
class WorldLinks:
    """Keeps ``worlds`` up to date with other agents' claims.

    ``name``: returns this node's key in an exchange. ``open_at``: returns the exchange beside the store at an address
    (``HOST:PORT``), None if there should be none; with ``owned`` it is used for nothing else.
    """

    worlds: Worlds
    name: Callable[[], str]
    open_at: Callable[[str], Exchange | None]
    owned: bool = True
    clock: Callable[[], float] = time.monotonic
    gaps: tuple[Gap, ...] = ()
    _open: OpenGroups = field(default_factory=OpenGroups)
    _since_s: dict[str, float] = field(default_factory=dict)
    _jobs: dict[World, JobOfWorld] = field(default_factory=dict)
    _known: dict[tuple[str, str], _Known] = field(default_factory=dict)
    _exchanges: dict[str, Exchange] = field(default_factory=dict)
    _failed: dict[str, str] = field(default_factory=dict)
    _count: itertools.count[int] = field(default_factory=itertools.count)
    _task: asyncio.Task[None] | None = None

    def update(self, ranks: Iterable[LocalRanks]) -> None:
        """Take in which groups are open now, and which jobs their worlds are.

        Within a running loop.
        """
        now_s, opened = self.clock(), self.worlds.open
        self._since_s = {_name(group): self._since_s.get(_name(group), now_s) for group in opened.groups}
        lasting = tuple(group for group in opened.groups if now_s - self._since_s[_name(group)] >= OPEN_S)
        opened = opened._replace(groups=lasting) if lasting else OpenGroups()
        by_pid = {identity.pid: one for one in ranks for identity in one.own.values()}
        jobs: dict[World, JobOfWorld] = {}
        for world, pid in zip(opened.worlds, opened.processes, strict=True):
            if world.world in self._jobs:
                jobs[world.world] = self._jobs[world.world]
            elif pid in by_pid:
                jobs[world.world] = _describe_job(by_pid[pid], world.world, opened.groups)
        self._jobs, self._open = jobs, opened
        self._known = {key: one for key, one in self._known.items() if now_s - one.changed_s < FORGET_S}
        self.worlds.elsewhere = tuple(
            ClaimsElsewhere(one.claims, now_s - one.changed_s < SILENT_S) for one in self._known.values()
        )
        reason = "processes on other nodes that share a group with processes here cannot be recognized"
        self.gaps = tuple(Gap("peer discovery", f"{reason}: {why}") for why in sorted(set(self._failed.values())))
        if opened.groups and (self._task is None or self._task.done()):
            self._task = asyncio.ensure_future(self._keep_up())

    def link_of(self, ranks: LocalRanks) -> JobOfWorld | None:
        """Return the job that these ranks are, if processes elsewhere belong to it; else None."""
        pids = {identity.pid for identity in ranks.own.values()}
        known = zip(self._open.worlds, self._open.processes, strict=True)
        linked = (one.world for one, pid in known if one.world in self.worlds.linked and pid in pids)
        return next((self._jobs[world] for world in linked if world in self._jobs), None)

    async def close(self) -> None:
        """Close all exchanges."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self.owned:
            await asyncio.gather(*(exchange.close() for exchange in self._exchanges.values()))

    async def _keep_up(self) -> None:
        while self._open.groups:
            started_s = self.clock()
            for group in self._open.groups:
                try:
                    await wait_within(self._round(group), _ROUND_LIMIT_S)
                except (ExchangeError, asyncio.TimeoutError) as error:
                    self._failed[group.store] = str(error) or "no answer in time"
                    log.debug("members of group %s: %s", group.name, self._failed[group.store])
                else:
                    self._failed.pop(group.store, None)
            await asyncio.sleep(max(0.05, PERIOD_S - (self.clock() - started_s)))
        self._failed.clear()

    async def _round(self, group: ClaimedGroup) -> None:
        meeting = group.store.partition("://")[2]
        if meeting not in self._exchanges:
            exchange = self.open_at(meeting)
            if exchange is None:
                return
            self._exchanges[meeting] = exchange
        exchange, channel, own = self._exchanges[meeting], _name(group), self.name()
        await exchange.publish(channel, own, self._write(group), FORGET_S)
        now_s = self.clock()
        for name, data in (await exchange.read(channel)).items():
            if name == own:
                continue
            try:
                claims = parse_claims(data)
            except PublishedError as error:
                log.debug("the membership record of node %s %s", name, error)
                continue
            known = self._known.get((channel, name))
            if known is None or known.claims.count != claims.count:
                self._known[channel, name] = _Known(claims, now_s)

    def _write(self, group: ClaimedGroup) -> bytes:
        """Return what is claimed here of one group, with the worlds of the claiming processes."""
        used = sorted({claim.world for claim in group.claims})
        worlds = tuple(self._with_job(self._open.worlds[number]) for number in used)
        claims = tuple(msgspec.structs.replace(claim, world=used.index(claim.world)) for claim in group.claims)
        own = msgspec.structs.replace(group, claims=claims)
        return encode_claims(NodeClaims(CLAIMS_VERSION, next(self._count), worlds, (own,)))

    def _with_job(self, world: ClaimedWorld) -> ClaimedWorld:
        return msgspec.structs.replace(world, job=self._jobs.get(world.world))


def _name(group: ClaimedGroup) -> str:
    """Return the channel of a group."""
    identity = f"{group.name}\n{group.store}\n{group.size}".encode("utf-8", "backslashreplace")
    return f"group-{blake2b(identity, digest_size=8).hexdigest()}"


def _describe_job(ranks: LocalRanks, world: World, groups: Iterable[ClaimedGroup]) -> JobOfWorld:
    """Return the job that a world is.

    Other agents meet where its ranks meet, if they do across nodes; else where the group's members met.
    """
    job = ranks.job
    named = job.id.startswith("pid-")  # named after a pid, which another node may have, too
    channel = name_channel(
        job.id, f"{world.store} {world.process} {world.node}" if named else ranks.master, job.world_size
    )
    meeting = ranks.master if ranks.spans_nodes else min(group.store.partition("://")[2] for group in groups)
    return JobOfWorld(
        job.id, channel, meeting, job.world_size, job.launcher, job.command, job.role, job.name, job.script
    )
