"""A rank that makes the others late while the job goes on: when its records are read, and when that becomes an incident.

Once a look names a rank, its stacks and those of a usual rank are read, and the next look has to agree. One incident at a time;
it is over when two looks no longer name the rank. The records are read beside the ticks, and never while a hang is suspected. May
import the capturing and the incidents rooms, the diagnosis, ``slow`` and the sources.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from hangwatch.agent.capturing.redact import hide_secrets
from hangwatch.agent.capturing.scope import LocalScope
from hangwatch.agent.incidents.lifecycle import IncidentLifecycle
from hangwatch.agent.incidents.record import IncidentRecord
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.beats import Beat
from hangwatch.model.capture import RankIdentity
from hangwatch.model.live import LastToJoin
from hangwatch.model.slowness import Profile, ProfiledStack, Slowness
from hangwatch.model.stacks import TaskStack
from hangwatch.slow.arrival import MIN_PEERS, LateRank
from hangwatch.slow.follow import NEW, STEPS, Following, Process
from hangwatch.slow.words import describe
from hangwatch.sources.discovery.rank_processes import read_rank_process
from hangwatch.sources.flight.recorder import FlightFormatError, has_unrecorded, parse_timed
from hangwatch.sources.flight.transport import RawDump, decode_newest, fetch_dump
from hangwatch.sources.proc.delays import DelayMeter
from hangwatch.sources.stacks import source_lines
from hangwatch.sources.stacks.profile import profile_stacks

log = logging.getLogger("hangwatch")

#: However short the records are, a look this often is enough.
_PERIOD_S = 5.0
#: An entry costs its rank 20 us, in a thread of torch's without the GIL (benchmarks); this is 0.4 % of the time of one core.
_PERIOD_OF_ENTRY_S = 0.005
#: A look costs the agent 0.5 % of a core at most.
_PERIOD_OF_CPU = 200.0
_ANSWER_S = 2.5
_AFTER_FAILURE_S = 60.0
#: After these steps the next look counts. A profile that shows fewer than three says nothing.
_PROFILED_STEPS, _LEAST_STEPS = math.ceil(NEW * STEPS), 3
_SHORTEST_S, _LONGEST_S = 5.0, 60.0
_LOOK_S = 0.02
#: What torch takes for yes in its environment (``getCvarBool``, torch 2.13).
_YES = frozenset({"y", "yes", "1", "t", "true"})


@dataclass
class SlownessWatch:
    """Follows one job on one node. ``incidents`` reports who is late, and the end of that."""

    local: LocalScope
    incidents: IncidentLifecycle
    _following: Following = field(default_factory=Following)
    _task: asyncio.Task[Slowness | None] | None = None
    _due_s: float = 0.0
    _cpu_s: float = 0.0
    _reported: int | None = None
    #: Of the rank that the last looks have named, if it has not been reported, and of a usual one.
    _profiles: tuple[Profile, ...] = ()

    async def update(self, beats: Mapping[int, Beat], now_s: float, now_ns: int, *, calm: bool) -> None:
        """Take part in a tick. ``calm``: nothing is suspected, and no other node has ranks of the job."""
        if not calm:
            self.stop()
            self._due_s = max(self._due_s, now_s + _PERIOD_S)
            return
        if self._task is not None and self._task.done():
            task, self._task = self._task, None
            await self._tell(task.result(), now_ns)
        ranks = self.local.ranks.in_order
        if self._task is None and now_s >= self._due_s:
            self._due_s = now_s + _PERIOD_S
            if self._tells(ranks, beats):
                self._task = asyncio.create_task(self._look(ranks, beats, now_s), name="hangwatch slowness")

    @property
    def last_to_join(self) -> Mapping[Hashable, LastToJoin]:
        """Who joined the operations of each group last, by the group's key, in the records read so far."""
        return self._following.last_to_join

    def stop(self) -> None:
        """Look no more, until the next update."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def resume(self, record: IncidentRecord) -> None:
        """Go on with an incident that an agent before this one has reported."""
        self.incidents.resume(record)
        late = record.incident.lateness
        if late is not None and late.rank is not None:
            self._reported = late.rank
            nanoseconds = round(late.late_s * 1e9)
            self._following.found = LateRank(
                late.rank, late.lost, nanoseconds, late.waiting, late.steps, late.of_steps, record.onset_ns
            )

    def _tells(self, ranks: Sequence[RankIdentity], beats: Mapping[int, Beat]) -> bool:
        """True if all ranks of the job are here, and have records that tell when they joined their operations.

        Those of NCCL do with TORCH_NCCL_ENABLE_TIMING; those of a torch without a recorder for Gloo do not. torch's server is the
        one way to read a record without the GIL.
        """
        known = self.local.ranks
        if len(ranks) < MIN_PEERS or len(ranks) != known.job.world_size or known.lost_since_s or known.spans_nodes:
            return False
        return all(_tells_arrivals(one, beats.get(one.pid)) for one in ranks)

    async def _look(self, ranks: Sequence[RankIdentity], beats: Mapping[int, Beat], now_s: float) -> Slowness | None:
        """Read all records once, and return who is late, if that is so by now and was not reported."""
        processes = [Process(one.rank, one.pid, one.start_time) for one in ranks]
        self._following.keep(processes)
        self._cpu_s = 0.0
        with self.local.health.reading("flight recorder") as reading:
            for process in processes:  # one after the other: a record is a megabyte
                entries = await self._read(process, beats[process.pid])
                reading.tried += 1
                reading.failed += not entries
                self._due_s = max(self._due_s, now_s + entries * _PERIOD_OF_ENTRY_S)
        if reading.failed:
            self._due_s = max(self._due_s, now_s + _AFTER_FAILURE_S)
            return None
        await asyncio.to_thread(self._judge)
        self._due_s = max(self._due_s, now_s + self._cpu_s * _PERIOD_OF_CPU)
        found, named = self._following.found, self._following.named
        if found is not None and found.rank != self._reported:
            return Slowness(describe(found), found.since_ns, self._profiles)
        if named is not None and named.rank != self._reported:
            self._profiles = await self._profile(named, ranks)
            self._due_s = now_s  # to see if it still holds
        return None

    async def _read(self, process: Process, beat: Beat) -> int:
        """Read the record of a rank, and return how many entries it has; 0 if it does not answer."""
        (backend,) = {group.backend for group in beat.groups}
        dumps, late = await fetch_dump(beat, _ANSWER_S, backend=backend, call_sites=False)
        if not dumps:
            log.debug("the record of rank %d was not read: %s", process.rank, "; ".join(late))
            return 0
        return await asyncio.to_thread(self._add, process, dumps[0], beat)

    def _add(self, process: Process, dump: RawDump, beat: Beat) -> int:
        """Take in what is new in a record, and return how many entries it has."""
        began_s = time.thread_time()
        try:
            new, entries = decode_newest(dump.data, self._following.last(process))
            operations, times = parse_timed(new, beat_groups=beat.groups, world_size=beat.world_size)
        except FlightFormatError:
            return 0
        self._following.add(process, operations, times)
        self._cpu_s += time.thread_time() - began_s
        return entries

    def _judge(self) -> None:
        began_s = time.thread_time()
        self._following.look()
        self._cpu_s += time.thread_time() - began_s

    async def _profile(self, found: LateRank, ranks: Sequence[RankIdentity]) -> tuple[Profile, ...]:
        """Watch the late rank and a usual one for some steps; empty if that cannot be, or if a step takes too long."""
        step_s = found.late_ns / 1e9 / max(found.lost, 1e-3)
        seconds = min(_LONGEST_S, max(_SHORTEST_S, _PROFILED_STEPS * step_s))
        pids = {one.rank: one.pid for one in ranks}
        wanted = [rank for rank in (found.rank, found.usual) if rank is not None]
        if len(wanted) < 2 or seconds < _LEAST_STEPS * step_s:
            return ()
        profiles = await asyncio.gather(*(profile_rank(rank, pids[rank], seconds) for rank in wanted))
        return tuple(one for one in profiles if one is not None) if None not in profiles else ()

    async def _tell(self, slowness: Slowness | None, now_ns: int) -> None:
        """Report what a look has found; or that what was reported holds no more."""
        found = self._following.found
        if self._reported is not None and (found is None or found.rank != self._reported):
            self._reported = None
            await self.incidents.close(now_ns)
        if slowness is not None:
            self._reported = slowness.lateness.rank
            capture = await self.local.capture_once(())
            diagnosis = diagnose(hide_secrets(msgspec.structs.replace(capture, slowness=slowness)))
            await self.incidents.report(diagnosis, detected_ns=now_ns)


def _tells_arrivals(rank: RankIdentity, beat: Beat | None) -> bool:
    """True if the record of a rank can be read and tells when it joined its operations."""
    if beat is None or beat.server is None or has_unrecorded(beat):
        return False
    backends = {group.backend for group in beat.groups}
    return backends == {"gloo"} or (backends == {"nccl"} and _is_timed(rank))


def _is_timed(rank: RankIdentity) -> bool:
    """True if torch times what this rank does on its device."""
    return read_rank_process(rank).variables.get("TORCH_NCCL_ENABLE_TIMING", "").lower() in _YES


async def profile_rank(rank: int, pid: int, seconds: float) -> Profile | None:
    """Return where the main thread of a process spends its time, watched for ``seconds``; None if it cannot be read."""
    meter = DelayMeter(pid)
    watching = asyncio.create_task(profile_stacks(pid, seconds))
    try:
        while not watching.done():
            meter.look()
            await asyncio.wait({watching}, timeout=_LOOK_S)
    finally:
        watching.cancel()
    seen = watching.result()
    if not isinstance(seen, tuple):
        log.debug("rank %d was not watched: %s", rank, seen)
        return None
    samples, stacks = seen
    tasks = await source_lines.shared.attach_to_tasks(pid, tuple(TaskStack("", stack.frames) for stack in stacks))
    shown = zip(tasks, stacks, strict=True)
    return Profile(
        rank,
        samples,
        tuple(ProfiledStack(task.frames, stack.share) for task, stack in shown),
        **meter.read()._asdict(),
    )
