"""The flight records of a capture: which ranks are asked for theirs, in which way, and which answers count.

A rank with the probe is asked over its sockets. A rank without is asked through torch's pipe, which costs it its GIL
for a moment, a file on its disk and some lines in its log. So it is asked only if it has not moved for a while, its
interpreter is free and it has made such a pipe; and once, until it has moved. May import the model, the analysis, the
sources and ``redact``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, MutableMapping, Sequence

import msgspec

from hangwatch.agent.capturing.redact import hide_secrets
from hangwatch.analysis.motion.samples import still_since_ns
from hangwatch.model.beats import Beat, BeatGroup
from hangwatch.model.capture import Capture, Gap, RankCapture, RankIdentity
from hangwatch.model.collectives import FlightRecord, in_flight
from hangwatch.model.processes import ProcessSample
from hangwatch.model.stacks import StackSample
from hangwatch.model.transforms.clocks import shift
from hangwatch.sources.beats.node_beats import NodeBeats
from hangwatch.sources.discovery.rank_processes import RankProcess, read_rank_process, uses_nccl
from hangwatch.sources.flight.pipe import fetch_by_pipe, pipe_path
from hangwatch.sources.flight.recorder import fetch_flight
from hangwatch.sources.stacks import source_lines

#: A rank that has not run for this long is not in an ordinary step any more.
STILL_S = 2.0
#: The record of a rank that has not moved since is still valid; but operations may end without the main thread.
RECORD_MAX_AGE_S = 60.0
#: A beat is written every half second: one this old is late, and not only because of a loaded machine.
STALE_BEAT_S = 2.0
#: An operation that is called while the record is read is no older than that.
_SET_BACK_NS = 1_000_000_000


class PipedRecord(msgspec.Struct, frozen=True):
    """A rank's answer, and when it was asked (wall clock)."""

    asked_at_ns: int
    answer: FlightRecord | Gap


async def fetch_records(
    ranks: Sequence[RankIdentity], beats: Mapping[int, Beat], *, call_sites: bool
) -> dict[int, FlightRecord | Gap]:
    """Return the flight records, by pid, of the probed ranks that have, or may still have, a process group."""
    now_ns = time.time_ns()
    asked = [(r, beats[r.pid]) for r in ranks if r.pid in beats and may_record(beats[r.pid])]
    known = _known_groups([beats[r.pid] for r in ranks if r.pid in beats])
    fetched = (
        fetch_flight(beat if beat.initialized else _with_groups(beat, known), rank=r.rank, call_sites=call_sites)
        for r, beat in asked
    )
    records = zip(asked, await asyncio.gather(*fetched), strict=True)
    return {r.pid: _by_clock(record, beat) for (r, beat), record in records if _counts(beat, record, now_ns)}


def _by_clock(record: FlightRecord | Gap, beat: Beat) -> FlightRecord | Gap:
    """Return the record as of the present clock, if that was set back after the last operation: its time is still to come then.

    Nothing was called after the rank last moved, and how long that is ago, the beat has from a steady clock.
    """
    if isinstance(record, Gap) or not len(record.operations):
        return record
    ahead_ns = record.operations[-1].created_ns - record.at_ns
    if ahead_ns < _SET_BACK_NS:
        return record
    still_ns = int(min((group.unmoved_s for group in beat.groups), default=0.0) * 1e9)
    return msgspec.structs.replace(shift(record, -ahead_ns - still_ns), at_ns=record.at_ns)


def may_record(beat: Beat) -> bool:
    # torch's server needs no interpreter, and knows better than the beat of an interpreter that is held, or of a rank
    # whose groups are being destroyed: torch forgets them before their destructors have awaited what is pending.
    return beat.initialized or beat.server is not None


def _counts(beat: Beat, record: FlightRecord | Gap, now_ns: int) -> bool:
    """True if the record of a rank that may have no group says anything: only operations in flight do.

    If the beat is late, it may be older than the first group. Then an empty record says that there still is none.
    """
    if beat.initialized or beat.groups:
        return True
    late = beat.age_s(now_ns) > STALE_BEAT_S
    if isinstance(record, Gap):
        return late
    return bool(in_flight(record.operations)) or (late and bool(record.progress or record.operations))


def _known_groups(beats: Sequence[Beat]) -> dict[str, BeatGroup]:
    """Return every rank's groups by name, without progress.

    Names that stand for different groups on different ranks are left out.
    """
    found: dict[str, BeatGroup] = {}
    several: set[str] = set()
    for group in (g for beat in beats for g in beat.groups):
        if (
            found.setdefault(
                group.name, BeatGroup(group.name, group.ranks, None, group.description, outside=group.outside)
            ).ranks
            != group.ranks
        ):
            several.add(group.name)
    return {name: group for name, group in found.items() if name not in several}


def _with_groups(beat: Beat, known: Mapping[str, BeatGroup]) -> Beat:
    """Return the beat of a rank that knows no group any more, with the groups that other ranks count it in."""
    own = {g.name for g in beat.groups}
    number = beat.rank if beat.number is None else beat.number
    more = (g for g in known.values() if g.name not in own and number in g.ranks)
    return msgspec.structs.replace(beat, groups=(*beat.groups, *more))


async def add_call_sites(capture: Capture, reader: NodeBeats | None, ranks: Collection[int]) -> Capture:
    """Return the capture with call sites in the flight records of those of ``ranks`` that are on this node.

    Call sites need the rank's GIL for a moment, and its CPU time, which must not be mistaken for motion. So they are
    read after the samples, and only of ranks that are found to hang.
    """
    beats = reader.read()[0] if reader is not None else {}
    here = [r for r in capture.ranks if r.rank in ranks]
    records = await fetch_records([r.identity for r in here], beats, call_sites=True)
    found = {
        pid: await source_lines.shared.attach_to_record(pid, record)
        for pid, record in records.items()
        if isinstance(record, FlightRecord) and record.source == "pickle"
    }
    with_sites = tuple(msgspec.structs.replace(r, flight=found.get(r.identity.pid, r.flight)) for r in here)
    # Other nodes have redacted what they sent: their processes' environments cannot be read here.
    hidden = hide_secrets(msgspec.structs.replace(capture, ranks=with_sites))
    changed = {r.rank: r for r in hidden.ranks}
    return msgspec.structs.replace(hidden, ranks=tuple(changed.get(r.rank, r) for r in capture.ranks))


async def fetch_by_pipes(
    ranks: Sequence[RankIdentity],
    processes: Mapping[int, Sequence[ProcessSample]],
    stacks: Mapping[int, Sequence[StackSample]],
    known: MutableMapping[int, PipedRecord],
    world_size: int | None,
) -> dict[int, FlightRecord | Gap]:
    """Return records of unprobed NCCL ranks that do not move, by pid, or gaps that say why there is none.

    ``known``: keeps the records from capture to capture.
    """
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
            continue  # it cannot have a pipe: nothing is missing
        if _holds_gil(seen):
            reason = "the rank's interpreter is blocked, so it could not answer through its pipe"
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
    """True if a thread holds the GIL in each of the last samples.

    torch's dumping thread would wait for it, and in some versions keep torch's own monitor waiting.
    """
    holders = [{t.os_thread_id for t in s.threads if t.owns_gil} for s in seen.stacks[-2:]]
    return len(holders) > 1 and bool(set.intersection(*holders))
