"""When the ranks of this node joined their operations, and where some of them spend their time, read while the job goes on.

May import the sources, ``slow`` and its own room.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from hangwatch.agent.capturing.local_ranks import LocalRanks
from hangwatch.agent.capturing.redact import hide_in, secret_values
from hangwatch.agent.capturing.source_health import SourceHealth
from hangwatch.model.beats import Beat
from hangwatch.model.capture import RankIdentity
from hangwatch.model.slowness import Profile, ProfiledStack, Traffic
from hangwatch.model.stacks import TaskStack
from hangwatch.slow.follow import Process, Windows
from hangwatch.sources.connections.transfers import LinkMeter
from hangwatch.sources.discovery.rank_processes import read_rank_process
from hangwatch.sources.flight.pickles import FlightFormatError
from hangwatch.sources.flight.recorder import has_unrecorded, parse_timed, times_operations
from hangwatch.sources.flight.transport import RawDump, decode_newest, fetch_dump
from hangwatch.sources.proc.delays import DelayMeter
from hangwatch.sources.stacks import source_lines
from hangwatch.sources.stacks.profile import profile_stacks, profile_workers

log = logging.getLogger("hangwatch")
_T = TypeVar("_T")

#: An entry costs its rank 20 us, in a thread of torch's without the GIL (benchmarks); this is 0.4 % of the time of one core.
_PERIOD_OF_ENTRY_S = 0.005
_ANSWER_S = 2.5
_AFTER_FAILURE_S = 60.0
_LOOK_S = 0.02
#: A rank is watched for at least so long, and at most.
SHORTEST_S, LONGEST_S = 5.0, 60.0


@dataclass
class Arrivals:
    """Reads what is new in the records of the job's ``ranks`` on this node, into ``windows``. ``cpu_s``: what that has cost.

    ``links``: the busiest to other nodes since the reading before, if the job has ranks there.
    """

    ranks: LocalRanks
    health: SourceHealth
    windows: Windows = field(default_factory=Windows)
    links: tuple[Traffic, ...] = ()
    cpu_s: float = 0.0
    _meter: LinkMeter = field(default_factory=LinkMeter)

    def tell(self, beats: Mapping[int, Beat]) -> bool:
        """Return whether all ranks here have records that tell when they joined their operations, all on one backend.

        Those of NCCL do with TORCH_NCCL_ENABLE_TIMING; those of a torch without a recorder for Gloo do not. torch's server is the
        one way to read a record without the GIL.
        """
        ranks = self.ranks.in_order
        if self.ranks.lost_since_s or any(one.pid not in beats or beats[one.pid].server is None for one in ranks):
            return False
        backends = {find_backend(beats[one.pid]) for one in ranks}
        return backends == {"gloo"} or (backends == {"nccl"} and all(map(_is_timed, ranks)))

    async def read(self, beats: Mapping[int, Beat]) -> tuple[bool, float]:
        """Read all records once. Return whether all were read, and after how many seconds they may be read again."""
        processes = [Process(one.rank, one.pid, one.start_time) for one in self.ranks.in_order]
        self.windows.keep(processes)
        if len(processes) < (self.ranks.job.world_size or 0):
            self.links = await self.count(partial(self._meter.look, [one.pid for one in processes]))
        pause_s = 0.0
        with self.health.reading("flight recorder") as reading:
            for process in processes:  # one after the other: a record is a megabyte
                beat = beats[process.pid]
                entries = await self._read_one(process, beat)
                reading.tried += 1
                reading.failed += not entries
                pause_s = max(pause_s, entries * _PERIOD_OF_ENTRY_S)
        return not reading.failed, _AFTER_FAILURE_S if reading.failed else pause_s

    async def _read_one(self, process: Process, beat: Beat) -> int:
        """Read the record of a rank, and return how many entries it has; 0 if it does not answer."""
        dumps, late = await fetch_dump(beat, _ANSWER_S, backend=find_backend(beat), call_sites=False)
        if not dumps:
            log.debug("the record of rank %d was not read: %s", process.rank, "; ".join(late))
            return 0
        return await self.count(lambda: self._add(process, dumps[0], beat))

    def _add(self, process: Process, dump: RawDump, beat: Beat) -> int:
        """Take in what is new in a record, and return how many entries it has."""
        try:
            new, entries = decode_newest(dump.data, self.windows.last(process))
            timed = parse_timed(new, beat_groups=beat.groups, world_size=beat.world_size)
        except FlightFormatError:
            return 0
        self.windows.add(process, timed.operations, timed.times)
        return entries

    async def count(self, do: Callable[[], _T]) -> _T:
        """Do something in a thread, and count what it costs."""

        def counted() -> _T:
            began_s = time.thread_time()
            try:
                return do()
            finally:
                self.cpu_s += time.thread_time() - began_s

        return await asyncio.to_thread(counted)

    async def profile(self, ranks: Sequence[int], seconds: float) -> tuple[Profile, ...]:
        """Watch those of ``ranks`` that are here, and return where each spends its time; without those that cannot be read."""
        here = [(rank, self.ranks.known[rank].pid) for rank in ranks if rank in self.ranks.known]
        profiles = await asyncio.gather(*(profile_rank(rank, pid, seconds) for rank, pid in here))
        secrets = secret_values(self.ranks.in_order)
        return tuple(hide_in(one, secrets) for one in profiles if one is not None)


def find_backend(beat: Beat) -> str:
    """Return on which backend a rank is compared; empty if on none.

    Beside NCCL, Gloo is for what is on the CPU, such as flags and checkpoints. Who waits there is late on NCCL together with whom
    it waits for, and of several late ranks none is named.
    """
    used = {group.backend for group in beat.groups if group.enqueued}
    return "nccl" if "nccl" in used else "gloo" if used == {"gloo"} and not has_unrecorded(beat) else ""


def _is_timed(rank: RankIdentity) -> bool:
    return times_operations(read_rank_process(rank).variables)


async def profile_rank(rank: int, pid: int, seconds: float) -> Profile | None:
    """Return where the main thread of a process spends its time, watched for ``seconds``; None if it cannot be read."""
    meter = DelayMeter(pid)
    workers = asyncio.create_task(profile_workers(pid, seconds))
    watching = asyncio.create_task(profile_stacks(pid, seconds))
    try:
        while not watching.done():
            meter.look()
            await asyncio.wait({watching}, timeout=_LOOK_S)
        delays = meter.read()
        fetching = await workers
    finally:
        watching.cancel()
        workers.cancel()
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
        **delays._asdict(),
        fetching=fetching,
    )
