"""Which nodes a capture covers: the protocol that all callers use, and its implementation for this node.

May import the model, the sources, the settings and its own room.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from hangwatch.agent.capturing.arrivals import Arrivals
from hangwatch.agent.capturing.capture import JobCapture
from hangwatch.agent.capturing.departed import find_departed
from hangwatch.agent.capturing.hardware import add_hardware
from hangwatch.agent.capturing.local_ranks import LocalRanks
from hangwatch.agent.capturing.native_stacks import add_native_stacks
from hangwatch.agent.capturing.records import add_call_sites
from hangwatch.agent.capturing.servers import find_asked
from hangwatch.agent.capturing.source_health import SourceHealth
from hangwatch.agent.capturing.trail import Trail
from hangwatch.config.settings import Settings
from hangwatch.hardware.sources.registry import NodeWatch
from hangwatch.model.beats import Beat
from hangwatch.model.capture import Capture, Gap, RankCapture, RankIdentity
from hangwatch.model.left import Left
from hangwatch.sources.beats.node_beats import NodeBeats
from hangwatch.sources.connections.other_ends import Connection
from hangwatch.sources.discovery.process_table import KnownProcess
from hangwatch.sources.proc.samples import find_living


class CaptureScope(Protocol):
    """Captures a job, on one node or on all of its nodes."""

    async def capture(self) -> Capture:
        """Capture every rank now, without call sites and hardware."""

    async def call_sites(self, capture: Capture, ranks: Collection[int] | None) -> Capture:
        """Return the capture with the call sites of ``ranks``; None: of all, once a hang is confirmed."""

    async def hardware(self, capture: Capture, only: Collection[str] | None) -> Capture:
        """Return the capture with what the nodes say of their hardware.

        ``only``: the sources to ask; None asks all.
        """


@dataclass
class LocalScope:
    """Captures the ranks of this node.

    ``gaps``: what is known to be missing before a capture begins. ``beside``: processes that are no ranks but are
    captured too, such as those of a serving engine without progress. ``ended``: the Python processes that have ended
    on this node. ``arrivals``: when these ranks joined their operations.
    """

    ranks: LocalRanks
    reader: NodeBeats | None = None
    settings: Settings = field(default_factory=Settings)
    health: SourceHealth = field(default_factory=SourceHealth)
    hardware_watch: NodeWatch = field(default_factory=NodeWatch)
    gaps: tuple[Gap, ...] = ()
    beside: tuple[RankIdentity, ...] = ()
    ended: Callable[[], Sequence[KnownProcess]] = tuple
    arrivals: Arrivals = field(init=False)
    _trail: Trail = field(default_factory=Trail)

    def __post_init__(self) -> None:
        """Read nothing yet."""
        self.arrivals = Arrivals(self.ranks, self.health)

    async def capture(self) -> Capture:
        """Capture every rank of this node now, with the samples taken while something was suspected."""
        capture = await self._capture()
        there = [rank.identity for rank in capture.ranks if rank.sample is not None and not rank.sample.ended]
        # If one has ended meanwhile, the others may have gone on too: their samples are outdated.
        return await self._capture() if len(find_living(there)) < len(there) else capture

    async def _capture(self) -> Capture:
        # An engine's processes show themselves what has become of the others.
        ended = self.ended if not self.beside else tuple
        with self.health.capture():
            return await JobCapture(
                self.ranks.job,
                [*self.ranks.in_order, *self.beside],
                departed=lambda: find_departed(ended(), self.ranks.in_order, self.reader),
                reader=self.reader,
                trail=self._trail,
                gaps=self.gaps,
                health=self.health,
                settings=self.settings,
            ).take()

    async def asked(self, connections: Collection[Connection]) -> Capture:
        """Return who has the other end of other nodes' connections.

        Ranks, which are in a capture already, are returned with their number alone.
        """
        found = await asyncio.to_thread(find_asked, connections, self.ranks.living)
        beside = [one for one in found if one.worldless]
        capture = await JobCapture(
            self.ranks.job, (), reader=self.reader, trail=self._trail, health=self.health, settings=self.settings,
            beside=beside, others=self.ranks.living,
        ).take()  # fmt: skip
        serves = {one.rank: tuple(" ".join(there) for there in ends) for one, ends in found.items()}
        ranks = [r.identity for r in capture.ranks]
        known = (RankCapture(one) for one in found if one not in ranks)
        shown = (*capture.ranks, *known)
        return msgspec.structs.replace(
            capture, ranks=tuple(msgspec.structs.replace(r, serves=serves.get(r.rank, ())) for r in shown)
        )

    async def capture_once(self, gaps: Sequence[Gap]) -> Capture:
        """Take one sample of every rank, without values of locals: enough if nothing hangs."""
        return await JobCapture(self.ranks.job, self.ranks.in_order, reader=self.reader, samples=1, gaps=gaps).take()

    def read_beats(self) -> dict[int, Beat]:
        """Return the beats of all living processes, by pid."""
        return self.reader.read()[0] if self.reader is not None else {}

    def last_beats(self) -> dict[int, Beat]:
        """Return the last beats of the ranks that were gone at the last reading, by pid."""
        return self.reader.last_of(self.ranks.known.values()) if self.reader is not None else {}

    def read_left(self, ranks: Iterable[RankIdentity]) -> dict[int, Left]:
        """Return what ``ranks`` left when their programs ended, by pid."""
        return self.reader.read_left(ranks) if self.reader is not None else {}

    async def call_sites(self, capture: Capture, ranks: Collection[int] | None) -> Capture:
        """Return the capture with the call sites of those of ``ranks`` (None: all) that are on this node.

        For all ranks also with their native stacks, if the settings ask for them.
        """
        wanted = [rank for rank in self.ranks.known if ranks is None or rank in ranks]
        capture = await add_call_sites(capture, self.reader, wanted)
        return await add_native_stacks(capture, wanted) if ranks is None and self.settings.native_stacks else capture

    async def hardware(self, capture: Capture, only: Collection[str] | None) -> Capture:
        """Return the capture with what this node says of its hardware."""
        return await add_hardware(capture, self.hardware_watch, only)

    async def begin_hardware(self) -> None:
        """Take the hardware readings that later ones are compared with."""
        await self.hardware_watch.begin(self.ranks.living)

    def forget_samples(self) -> None:
        """Forget all samples, because nothing is suspected any more, or other processes are."""
        self._trail = Trail()

    def trim_samples(self, since_ns: int) -> None:
        """Forget samples older than ``since_ns``, but never the last two of a process."""
        self._trail.trim(since_ns)
