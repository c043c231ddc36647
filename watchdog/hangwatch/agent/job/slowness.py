"""What slows a job down while it goes on: when records are read, and when that becomes an incident.

Once a look names a rank, its stacks and those of a usual rank are read, and the next look has to agree. One incident at a time;
it is over when two looks no longer name the rank or the link, or when the steps are as fast as before. The records are read
beside the ticks, and never while a hang is suspected. On several nodes, each reads its own, and the one that leads looks. May
import the capturing and the incidents rooms, ``other_nodes``, the diagnosis and ``slow``.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import msgspec

from hangwatch.agent.capturing.arrivals import LONGEST_S, SHORTEST_S
from hangwatch.agent.capturing.hardware import OF_THE_LATE
from hangwatch.agent.capturing.redact import hide_secrets
from hangwatch.agent.capturing.scope import LocalScope
from hangwatch.agent.incidents.lifecycle import IncidentLifecycle
from hangwatch.agent.incidents.record import IncidentRecord
from hangwatch.agent.job.other_nodes import Comparison
from hangwatch.agent.job.own_past import OwnPast, gpus_of
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.beats import Beat
from hangwatch.model.capture import Capture
from hangwatch.model.live import LastToJoin
from hangwatch.model.slowness import Profile, Slow, SlowJob, SlowLink, SlowRank, Traffic
from hangwatch.slow.arrival import MIN_PEERS, LateRank
from hangwatch.slow.follow import NEW, STEPS, Following
from hangwatch.slow.links import find_slow_link
from hangwatch.slow.reason import runs_out_first, seconds_to_tell, works_longer
from hangwatch.slow.timeline import Streams
from hangwatch.slow.words import describe

#: However short the records are, a look this often is enough.
_PERIOD_S = 5.0
#: A look costs the agent 0.5 % of a core at most.
_PERIOD_OF_CPU = 200.0
#: After these steps the next look counts. A profile that shows fewer than three says nothing.
_PROFILED_STEPS, _LEAST_STEPS = math.ceil(NEW * STEPS), 3
#: A rank that comes late out of its operations, and does not work longer, is watched again after this time; one that only runs
#: out of input first, after this one: workers of DataLoaders are watched with it, which costs more.
_AFTER_TRANSFER_S, _AFTER_INPUT_S = 60.0, 600.0
#: What is reported if the whole job is slow.
_JOB = "job"


@dataclass(frozen=True)
class OnThisNode:
    """Compares the ranks of a job that is on this node alone."""

    local: LocalScope
    one_clock: bool = True
    looks: bool = True
    links: Mapping[str, Sequence[Traffic]] = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        """True if all ranks of the job are here."""
        known = self.local.ranks
        return len(known.in_order) == known.job.world_size and not known.spans_nodes

    async def gather(self, own: Streams) -> Streams | None:
        """Return the calls of all ranks: this node's."""
        return own

    async def profile(self, ranks: Sequence[int], seconds: float) -> tuple[Profile, ...]:
        """Watch ``ranks`` and return where they spend their time."""
        return await self.local.arrivals.profile(ranks, seconds)

    async def capture(self, *, devices: bool) -> Capture:
        """Capture all ranks, once."""
        capture = await self.local.capture_once(())
        return await self.local.hardware(capture, OF_THE_LATE) if devices else capture


@dataclass
class SlownessWatch:
    """Follows one job. ``incidents`` reports what is slow, and the end of that. ``comparison``: of which ranks and nodes."""

    local: LocalScope
    incidents: IncidentLifecycle
    comparison: Comparison = field(init=False)
    _following: Following = field(default_factory=Following)
    _links: deque[SlowLink | None] = field(default_factory=lambda: deque(maxlen=2))
    _task: asyncio.Task[Slow | None] | None = None
    _due_s: float = 0.0
    _past: OwnPast = field(init=False)
    _rests_until_s: float = 0.0
    #: A rank, the nodes of a link, or ``_JOB``.
    _reported: int | tuple[str, ...] | str | None = None
    #: The rank that the last look named, and a usual one; kept until the rank is reported.
    _profiles: tuple[Profile, ...] = ()

    def __post_init__(self) -> None:
        """Begin with this node alone."""
        self.comparison = OnThisNode(self.local)
        self._past = OwnPast(self.local)

    async def update(self, beats: Mapping[int, Beat], now_s: float, now_ns: int, *, calm: bool) -> None:
        """Take part in a tick. ``calm``: nothing is suspected."""
        if not calm:
            self.stop()
            self._due_s = max(self._due_s, now_s + _PERIOD_S)
            return
        if not self.comparison.looks and self._reported is not None:  # another node will see it, and report it
            self._reported = None
            await self.incidents.close(now_ns)
        if self._task is not None and self._task.done():
            task, self._task = self._task, None
            await self._tell(task.result(), now_ns)
        if self._task is None and now_s >= self._due_s:
            self._due_s = now_s + _PERIOD_S
            enough = (self.local.ranks.job.world_size or 0) >= MIN_PEERS
            if enough and self.comparison.is_whole and self.local.arrivals.tell(beats):
                self._task = asyncio.create_task(self._look(beats, now_s, now_ns), name="hangwatch slowness")

    @property
    def last_to_join(self) -> Mapping[Hashable, LastToJoin]:
        """Who joined the operations of each group last, by the group's key, in the records read so far."""
        return self.local.arrivals.windows.last_to_join

    def stop(self) -> None:
        """Look no more, until the next update."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def resume(self, record: IncidentRecord) -> None:
        """Go on with an incident that an agent before this one has reported."""
        self.incidents.resume(record)
        slow = record.diagnosis.case.capture.slow
        if isinstance(slow, SlowLink):
            self._reported = slow.nodes
            self._links.extend([slow, slow])
        elif isinstance(slow, SlowJob):
            self._reported = _JOB
            self._past.resume(slow)
        elif slow is not None and (rank := slow.lateness.rank) is not None:
            self._reported, late = rank, slow.lateness
            nanoseconds = round(late.late_s * 1e9)
            self._following.found = LateRank(
                rank, late.lost, nanoseconds, late.waiting, late.steps, late.of_steps, slow.onset_ns
            )

    async def _look(self, beats: Mapping[int, Beat], now_s: float, now_ns: int) -> Slow | None:
        """Read the records once, and return what is slow, if that is so by now and was not reported."""
        arrivals = self.local.arrivals
        arrivals.cpu_s = 0.0
        read, pause_s = await arrivals.read(beats)
        streams = await arrivals.count(arrivals.windows.newest) if read else None
        if not self.comparison.looks:
            streams = None
        own = streams
        if streams:
            streams = await self.comparison.gather(streams)
        if streams is not None:
            await arrivals.count(partial(self._judge, streams))
        self._due_s = max(self._due_s, now_s + max(pause_s, arrivals.cpu_s * _PERIOD_OF_CPU))
        if self.comparison.looks:
            self._links.append(find_slow_link(self.comparison.links))
        if self._reported is None and (link := self._agreed_link()) is not None:
            return link
        if own:
            await arrivals.count(partial(self._past.look, own, now_ns))
        if streams is None or isinstance(self._reported, tuple | str):
            return None
        news = await self._news(now_s)
        nobody = self._following.named is None and self._following.found is None and self._reported is None
        return await self._past.explain(now_ns) if own and news is None and nobody else news

    def _agreed_link(self) -> SlowLink | None:
        named = self._links_named
        return self._links[-1] if len(named) == self._links.maxlen and len(set(named)) == 1 else None

    @property
    def _links_named(self) -> list[tuple[str, ...]]:
        return [link.nodes for link in self._links if link is not None]

    async def _news(self, now_s: float) -> SlowRank | None:
        """Return who is late, if two looks agree and nobody else is to blame; have a rank watched that one look names."""
        if now_s < self._rests_until_s:
            self._following = Following()
            return None
        found, named = self._following.found, self._following.named
        if found is not None and found.rank != self._reported:
            slow = SlowRank(describe(found), found.since_ns, self._profiles)
            if runs_out_first(slow):
                self._rests_until_s = now_s + _AFTER_INPUT_S
            elif self._may_be_a_link(found) and not works_longer(slow):
                self._rests_until_s = now_s + _AFTER_TRANSFER_S
            else:
                return slow
            self._following, self._profiles = Following(), ()
        elif named is not None and named.rank != self._reported:
            self._profiles = await self._profile(named)
            self._due_s = now_s  # to see if it still holds
        return None

    def _may_be_a_link(self, found: LateRank) -> bool:
        """Return whether a slow link between nodes would look the same."""
        return not (self.comparison.one_clock or found.on_device)

    def _judge(self, streams: Streams) -> None:
        if streams and self.comparison.one_clock:
            self.local.arrivals.windows.find_last()
        self._following.look(streams, one_clock=self.comparison.one_clock)

    async def _profile(self, found: LateRank) -> tuple[Profile, ...]:
        """Watch the late rank and a usual one for some steps; empty if that cannot be, or if a step takes too long."""
        step_s = found.late_ns / 1e9 / max(found.lost, 1e-3)
        least_s = seconds_to_tell(found.lost) if self._may_be_a_link(found) else SHORTEST_S
        wanted = [rank for rank in (found.rank, found.usual) if rank is not None]
        seconds = min(LONGEST_S, max(least_s, SHORTEST_S, _PROFILED_STEPS * step_s))
        if len(wanted) < 2 or seconds < _LEAST_STEPS * step_s:
            return ()
        profiles = await self.comparison.profile(wanted, seconds)
        return tuple(sorted(profiles, key=lambda one: wanted.index(one.rank))) if len(profiles) == len(wanted) else ()

    async def _tell(self, slow: Slow | None, now_ns: int) -> None:
        """Report what a look has found; or that what was reported holds no more."""
        found = self._following.found
        late = found.rank if found is not None else None
        if self._reported not in {None, late, *self._links_named, _JOB if self._past.holds else None}:
            self._reported = None
            await self.incidents.close(now_ns)
        if slow is None:
            return
        by_rank = isinstance(slow, SlowRank)
        capture = await self.comparison.capture(devices=by_rank and found is not None and found.on_device)
        if isinstance(slow, SlowRank):
            self._reported = slow.lateness.rank
            slow = msgspec.structs.replace(slow, gpus=gpus_of([one.rank for one in slow.profiles], capture.nodes))
        else:
            self._reported = slow.nodes if isinstance(slow, SlowLink) else _JOB
        capture = msgspec.structs.replace(capture, slow=slow)
        await self.incidents.report(diagnose(hide_secrets(capture)), detected_ns=now_ns)
