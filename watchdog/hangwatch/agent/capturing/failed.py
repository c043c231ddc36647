"""Makes a capture of what a failed job left: each rank as it was in the call in which it failed.

A rank that left nothing is a gap: it was killed, or left by ``os._exit``. May import the model, the analysis, the
sources and its own room.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from hangwatch.agent.capturing.redact import hide_secrets
from hangwatch.analysis.operations.signatures import signature
from hangwatch.analysis.places import user_frame
from hangwatch.model.capture import Capture, Gap, Job, RankCapture, RankIdentity
from hangwatch.model.collectives import FlightRecord, in_flight
from hangwatch.model.left import Left
from hangwatch.model.processes import ExitStatus, ProcessSample
from hangwatch.model.stacks import StackSample
from hangwatch.sources.proc.samples import GONE
from hangwatch.sources.stacks import source_lines


async def capture_failed(
    job: Job,
    ranks: Sequence[RankIdentity],
    left: Mapping[int, Left],
    dumped: Mapping[int, FlightRecord],
    exits: Mapping[int, ExitStatus],
    at_ns: int,
) -> Capture:
    """Return the capture of a job that has failed.

    ``left``: what its ranks left. ``dumped``: their records that NCCL's watchdog wrote. ``exits``: how they ended.
    """
    captures, gaps = [], []
    together = [_put_together(one, left.get(one.pid), dumped.get(one.pid), exits.get(one.pid)) for one in ranks]
    for one, rank in zip(ranks, _stood_still(together), strict=True):
        captures.append(await _with_source(rank))
        if rank.flight is None:
            reason = "its process has left nothing"
            gaps.append(Gap("flight recorder", reason, one.rank))
    return hide_secrets(Capture(job, at_ns, tuple(captures), tuple(gaps), failed=True))


def _put_together(
    identity: RankIdentity, left: Left | None, dumped: FlightRecord | None, end: ExitStatus | None
) -> RankCapture:
    gone = () if end is None else (ProcessSample(end.seen_at_ns or 0, identity.pid, GONE, exit=end),)
    if dumped is not None:
        return RankCapture(identity, flight=dumped, log_error=("NCCL's watchdog has written a dump",), terminated=True)
    if left is None:
        return RankCapture(identity, processes=gone)
    if left.stack is None:
        sample = gone or (ProcessSample(left.at_ns, identity.pid, GONE),)
        return RankCapture(identity, processes=sample, flight=left.flight, ended=left.reported, log_error=left.error)
    return RankCapture(
        identity,
        stacks=(left.stack,),
        flight=left.flight if left.flight is None or left.how == "asked" else reopen_last(left.flight, left.stack),
        log_error=left.error,
        terminated=left.how == "terminate",
    )


def reopen_last(flight: FlightRecord, stack: StackSample | None) -> FlightRecord:
    """Return the record with its last collective in flight, if nothing is: a failed collective of Gloo's looks completed.

    ``stack``: where the rank failed, which must be where that collective was called; None if not known.
    """
    if in_flight(flight.operations) or not len(flight.operations):
        return flight
    *before, last = flight.operations
    called = user_frame(last.frames or ())
    at = {(frame.file, frame.line) for frame in stack.threads[0].frames} if stack is not None else set()
    if stack is not None and (called is None or (called.file, called.line) not in at):
        return flight
    progress = tuple(
        msgspec.structs.replace(p, completed=min(p.completed, last.seq - 1)) if p.group.key == last.group.key else p
        for p in flight.progress
    )
    operations = (*before, msgspec.structs.replace(last, completed=False))
    return msgspec.structs.replace(flight, operations=operations, progress=progress)


def _stood_still(ranks: Sequence[RankCapture]) -> list[RankCapture]:
    """Return the ranks, with a rank still in its last operation if that did not match what a failed rank was in.

    If a smaller message fits, Gloo calls the operation completed on that side, and the rank may go on to its end.
    """
    last = {r.identity.pid: r.flight.operations[-1] for r in ranks if r.flight is not None and len(r.flight.operations)}
    failed = {(o.group.key, o.seq): signature(o) for o in last.values() if not o.completed}

    def stood(rank: RankCapture) -> RankCapture:
        mine = last.get(rank.identity.pid)
        met = failed.get((mine.group.key, mine.seq)) if mine is not None and rank.ended else None
        if mine is None or rank.flight is None or met is None or met == signature(mine):
            return rank
        return msgspec.structs.replace(rank, processes=(), ended=False, flight=reopen_last(rank.flight, None))

    return list(map(stood, ranks))


async def _with_source(rank: RankCapture) -> RankCapture:
    """Return the rank with the text of the lines in its stack and its call sites."""
    pid, lines = rank.identity.pid, source_lines.shared
    stacks = [(await lines.attach({pid: one}))[pid] for one in rank.stacks]
    flight = await lines.attach_to_record(pid, rank.flight) if rank.flight is not None else None
    return msgspec.structs.replace(rank, stacks=tuple(stacks), flight=flight)
