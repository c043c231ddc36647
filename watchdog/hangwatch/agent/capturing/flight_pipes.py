"""When the recorder of a rank without the probe is asked for through torch's pipe, and when what it said last still holds.

A dump costs the rank its GIL for a moment, a file on its disk and some lines in its log. So it is asked for only of a rank that
has not moved for a while, whose interpreter is free, and that has made such a pipe; and once, until it has moved.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, MutableMapping, Sequence

import msgspec

from hangwatch.analysis.ranks.motion import still_since_ns
from hangwatch.model.capture import Gap, RankCapture, RankIdentity
from hangwatch.model.collectives import FlightRecord
from hangwatch.model.processes import ProcessSample
from hangwatch.model.stacks import StackSample
from hangwatch.sources.discovery.rank_processes import RankProcess, read_rank_process, uses_nccl
from hangwatch.sources.flight.pipe import fetch_by_pipe, pipe_path

#: A rank that has not run for so long is no longer in an ordinary step.
STILL_S = 2.0
#: A record of a rank that has not moved since is as good as new; but operations may end without its main thread.
RECORD_MAX_AGE_S = 60.0


class PipedRecord(msgspec.Struct, frozen=True):
    """What a rank answered, and when it was asked (wall clock)."""

    asked_at_ns: int
    answer: FlightRecord | Gap


async def fetch_by_pipes(
    ranks: Sequence[RankIdentity],
    processes: Mapping[int, Sequence[ProcessSample]],
    stacks: Mapping[int, Sequence[StackSample]],
    known: MutableMapping[int, PipedRecord],
    world_size: int | None,
) -> dict[int, FlightRecord | Gap]:
    """Records (or why there is none) of the ranks of NCCL jobs that do not move, by pid; ``known`` keeps them."""
    found: dict[int, FlightRecord | Gap] = {}
    asked: list[RankProcess] = []
    now_ns = time.time_ns()
    for identity in ranks:
        pid = identity.pid
        seen = RankCapture(identity, tuple(processes.get(pid, ())), tuple(stacks.get(pid, ())))
        since_ns = still_since_ns(seen)
        if since_ns is None or now_ns - since_ns < STILL_S * 1e9 or not _alive(seen):
            continue
        last = known.get(pid)
        if last is not None and last.asked_at_ns >= since_ns and now_ns - last.asked_at_ns < RECORD_MAX_AGE_S * 1e9:
            found[pid] = last.answer
            continue
        process = read_rank_process(identity)
        if pipe_path(process.variables, identity.rank) is None and not uses_nccl(pid):
            continue  # it could not have a pipe: nothing is missing
        if _holds_gil(seen):
            reason = "its interpreter is held, so it could not answer through its pipe"
            found[pid] = Gap("flight recorder", reason, identity.rank)
            continue
        asked.append(process)
    answers = await asyncio.gather(*(fetch_by_pipe(p, world_size) for p in asked))
    for process, answer in zip(asked, answers, strict=True):
        found[process.pid] = answer
        known[process.pid] = PipedRecord(now_ns, answer)
    return found


def _alive(seen: RankCapture) -> bool:
    last = seen.sample
    return last is not None and not last.ended and last.state not in {"T", "t"}


def _holds_gil(seen: RankCapture) -> bool:
    """Whether one thread has the lock in each of the last samples.

    torch's thread would wait for it, and in some versions keep torch's own monitor waiting.
    """
    holders = [{t.os_thread_id for t in s.threads if t.owns_gil} for s in seen.stacks[-2:]]
    return len(holders) > 1 and bool(set.intersection(*holders))
