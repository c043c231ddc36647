"""torch's flight recorder of one rank: the dump it wrote or answers with, normalised to a ``FlightRecord``.

May import hangwatch.model, hangwatch.sources' own parts, msgspec and the standard library. Reads dumps of versions 2.0 to 2.10
(torch 2.4 to 2.13), pickled or JSON, NCCL or Gloo, complete or without entries. What differs between them is settled
here and nowhere else; see ``flight_entries``, ``flight_coalescing`` and ``flight_groups``.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from hangwatch.model.beats import Beat, BeatGroup
from hangwatch.model.capture import Gap
from hangwatch.model.collectives import DeviceTime, FlightRecord, Group, GroupProgress, Operation, Timed
from hangwatch.sources.flight.columns import Entries, parse_entries
from hangwatch.sources.flight.entries import parse_number
from hangwatch.sources.flight.groups import GroupTable, parse_config
from hangwatch.sources.flight.pickles import FlightFormatError
from hangwatch.sources.flight.transport import RawDump, fetch_dump
from hangwatch.sources.proc.files import read_stat

_SOURCE = "flight recorder"
_ENTRIES_LIMIT = 200_000
#: Has torch time NCCL's operations.
TIMING = "TORCH_NCCL_ENABLE_TIMING"
#: The first torch that records what Gloo does.
_GLOO_IS_RECORDED = (2, 10)


def parse_flight(
    dump: Mapping[str, object],
    *,
    at_ns: int,
    source: str,
    beat_groups: Sequence[BeatGroup] = (),
    world_size: int | None = None,
    columns: bool = False,
) -> FlightRecord:
    """Return a dump in our terms. Raises ``FlightFormatError`` if it is no dump at all.

    ``beat_groups``: the groups as the rank itself knows them, for dumps with wrong or no members. ``world_size``:
    gives the default group its members if nothing else does. ``columns``: keep the operations as columns. Unusable
    entries are left out and counted in ``dropped``. A group the rank has never used has progress 0.
    """
    entries, parsed, groups = _parse_entries(dump, beat_groups, world_size)
    dropped = len(entries) - len(parsed.operations)
    status = _parse_status(dump.get("pg_status"))
    wrapped = dropped > 0 or (len(parsed.operations) > 0 and parsed.operations[0].record_id > 0)
    if status is None:
        progress = _derive_progress(tuple(parsed.operations))
    else:
        progress = _map_progress(status, groups, parsed.groups, beat_groups)
    settled = parsed.settle({one.group.name: one.completed for one in progress if status is not None})
    progress = [_mark(one, one.group.name in parsed.mixed) for one in progress]
    timed = Timed(parsed.operations, _device_times(entries, parsed)) if columns else None
    version = dump.get("version")
    return FlightRecord(
        at_ns=at_ns,
        source=source,
        version=str(version)[:40] if version is not None else "",
        operations=settled if columns else tuple(settled),
        progress=tuple(sorted(progress, key=lambda one: (len(one.group.name), one.group.key))),
        dropped=dropped,
        whole=status is not None or not wrapped,
        newest_ns=parsed.newest_ns,
        completions=parsed.completions() if columns else (),
        timed=timed if timed is not None and any(timed.times) else None,
    )


def progress_of(beat: Beat) -> tuple[GroupProgress, ...]:
    """Return how far the rank is in each of its groups, by its last beat. Unknown numbers are left out, not 0."""
    known = [
        (Group(one.name, one.ranks, one.description, one.outside), one) for one in beat.groups if one.enqueued >= 0
    ]
    twice = {group for group, _ in known if sum(other == group for other, _ in known) > 1}
    return tuple(
        _mark(GroupProgress(group, one.enqueued, one.started, max(0, one.completed)), group in twice)
        for group, one in known
    )


def has_unrecorded(beat: Beat) -> bool:
    """True if operations of a group may be in no recorder.

    That is so if the group's numbers are unknown, or this torch has no recorder for Gloo.
    """
    return not records_gloo(beat.torch) or any(group.enqueued < 0 for group in beat.groups)


def records_gloo(torch: str) -> bool | None:
    """Return whether this version of torch has a recorder for Gloo; None if that is no version."""
    version = re.match(r"(\d+)\.(\d+)", torch)
    return (int(version[1]), int(version[2])) >= _GLOO_IS_RECORDED if version is not None else None


async def fetch_flight(beat: Beat, *, rank: int, timeout_s: float = 2.5, call_sites: bool = True) -> FlightRecord | Gap:
    """Return what the rank's recorder holds now; a Gap if it does not answer within ``timeout_s``.

    With ``call_sites`` the probe is asked too (pickle; needs the GIL for some 10 to 50 ms), and its answer preferred
    if it comes in time; without, only torch's worker server if there is one (JSON, without the GIL). A rank that uses
    NCCL and Gloo has a recorder for each; both are read and merged by time.
    """
    if beat.control is None and beat.server is None:
        return Gap(_SOURCE, "; ".join(beat.problems) or "the probe offers no way to ask it", rank)
    backends = sorted({group.backend for group in beat.groups if group.pg_id is not None and group.backend}) or [""]
    answers = await asyncio.gather(
        *(fetch_dump(beat, timeout_s, backend=backend, call_sites=call_sites) for backend in backends)
    )
    records: list[FlightRecord] = []
    failures: list[str] = []
    for backend, (dumps, late) in zip(backends, answers, strict=True):
        groups = [group for group in beat.groups if not backend or group.pg_id is None or group.backend == backend]
        record = _parse_first(dumps, groups, beat.world_size, failures)
        if record is not None:
            records.append(record)
        else:
            failures.extend(late)
    if records:
        return merge_flights(records)
    stat = read_stat(beat.pid)
    if stat is None or stat.start_ticks != beat.start_ticks:
        return Gap(_SOURCE, f"process {beat.pid} is gone", rank)
    if stat.state in {"T", "t"}:
        return Gap(_SOURCE, f"process {beat.pid} is stopped, so it cannot answer", rank)
    return Gap(_SOURCE, "; ".join(dict.fromkeys(failures)), rank)


def merge_flights(records: Sequence[FlightRecord]) -> FlightRecord:
    """Return the records of a rank's recorders as one, with new record ids in order of creation."""
    if len(records) == 1:
        return records[0]
    operations = sorted((o for record in records for o in record.operations), key=lambda o: (o.created_ns, o.record_id))
    progress = [one for record in records for one in record.progress]
    twice = {one.group for one in progress if sum(other.group == one.group for other in progress) > 1}
    return FlightRecord(
        at_ns=min(record.at_ns for record in records),
        source="pickle" if all(record.source == "pickle" for record in records) else "json",
        version=records[0].version,
        operations=tuple(msgspec.structs.replace(o, record_id=i) for i, o in enumerate(operations)),
        progress=tuple(_mark(one, one.group in twice) for one in progress),
        dropped=sum(record.dropped for record in records),
        whole=all(record.whole for record in records),
    )


def _parse_first(
    dumps: Sequence[RawDump], groups: Sequence[BeatGroup], world_size: int | None, failures: list[str]
) -> FlightRecord | None:
    """Return the first readable dump, or None; why others are unreadable is added to ``failures``."""
    for dump in dumps:
        try:
            return parse_flight(
                dump.decode(),
                at_ns=dump.at_ns,
                source=dump.form,
                beat_groups=groups,
                world_size=world_size,
            )
        except FlightFormatError as error:
            failures.append(str(error))
    return None


def times_operations(variables: Mapping[str, str]) -> bool:
    """Return whether torch times what a rank does on its device, by the rank's environment (``getCvarBool``, torch 2.13)."""
    return variables.get(TIMING, "").lower() in {"y", "yes", "1", "t", "true"}


def parse_timed(dump: Mapping[str, object], *, beat_groups: Sequence[BeatGroup], world_size: int | None) -> Timed:
    """Return the operations of a dump, and the time of each on its device; no times on Gloo, or if an entry cannot be used.

    Raises ``FlightFormatError`` if it is no dump at all.
    """
    entries, parsed, _ = _parse_entries(dump, beat_groups, world_size)
    return Timed(parsed.operations, _device_times(entries, parsed))


def _device_times(entries: Sequence[Any], parsed: Entries) -> tuple[DeviceTime | None, ...]:
    """Return the time of each operation on its device; empty if an entry cannot be used, or if none has ended.

    ``duration_ms``: between two CUDA events, before and after the operation on the communicator's stream, with
    TORCH_NCCL_ENABLE_TIMING. An operation has it some time after it has been found completed, once torch's watchdog retires it
    (``FlightRecorder.cpp``, torch 2.4 to 2.13).
    """
    if len(parsed.ended_ns) != len(entries) or not any(parsed.ended_ns):
        return ()
    took = (entry.get("duration_ms") for entry in entries)
    times = (
        DeviceTime(ended_ns, round(ms * 1e6)) if ended_ns and isinstance(ms, float) and 0 <= ms < math.inf else None
        for ended_ns, ms in zip(parsed.ended_ns, took, strict=True)
    )
    return tuple(times)


def _parse_entries(
    dump: Mapping[str, object], beat_groups: Sequence[BeatGroup], world_size: int | None
) -> tuple[Sequence[Any], Entries, GroupTable]:
    """Return a dump's entries, the newest of them parsed, and its groups. Raises ``FlightFormatError`` if it is no dump."""
    if not isinstance(dump, Mapping) or not dump.keys() & {"entries", "pg_status", "pg_config"}:
        raise FlightFormatError("not a flight-recorder dump (no entries, no pg_status)")
    entries = dump.get("entries", ())
    if not isinstance(entries, (list, tuple)):
        raise FlightFormatError("the dump's entries are no list")
    groups = GroupTable(parse_config(dump.get("pg_config")), beat_groups, world_size)
    return entries, parse_entries(entries[-_ENTRIES_LIMIT:], groups), groups


def _parse_status(value: object) -> dict[int, tuple[int, int, int]] | None:
    """Return the last enqueued, started and completed number by ``pg_id``; None if the dump has no status."""
    if not isinstance(value, Mapping):
        return None
    status: dict[int, tuple[int, int, int]] = {}
    for key, entry in value.items():
        pg_id = parse_number(key)
        if pg_id is None or not isinstance(entry, Mapping):
            continue
        numbers = [parse_number(entry.get(f"last_{what}_collective")) for what in ("enqueued", "started", "completed")]
        enqueued, started, completed = (-1 if number is None else number for number in numbers)
        status[pg_id] = (enqueued, started, completed)
    return status


def _map_progress(
    status: Mapping[int, tuple[int, int, int]],
    groups: GroupTable,
    entries: Mapping[int, Group],
    beat_groups: Sequence[BeatGroup],
) -> list[GroupProgress]:
    """Return progress by group, without groups of unknown name, which could be compared with nothing."""
    progress = [
        GroupProgress(group, max(0, status[pg_id][0]), status[pg_id][1], max(0, status[pg_id][2]))
        for pg_id, group in groups.match_status(status, entries).items()
    ]
    # A group without an id is certainly unused only if every status belongs to another known group.
    seen = {one.group.key for one in progress}
    explained = len(progress) == len(status)
    unused = [
        groups.find(group.pg_id, group.name)
        for group in beat_groups
        if (group.pg_id not in status if group.pg_id is not None else explained and group.enqueued == 0)
    ]
    return progress + [GroupProgress(group, 0, -1, 0) for group in unused if group.key not in seen]


def _mark(progress: GroupProgress, mixed: bool) -> GroupProgress:
    """Return the progress, marked if the group's numbers do not count collectives alone."""
    return msgspec.structs.replace(progress, mixed=True) if mixed else progress


def _derive_progress(operations: Sequence[Operation]) -> list[GroupProgress]:
    """Return progress from the entries alone, for dumps without a status."""
    by_group: dict[Group, list[Operation]] = {}
    for operation in operations:
        if not operation.p2p:
            by_group.setdefault(operation.group, []).append(operation)
    progress = []
    for group, members in by_group.items():
        enqueued = max(operation.seq for operation in members)
        pending = [operation.seq for operation in members if not operation.completed]
        progress.append(GroupProgress(group, enqueued, -1, max(0, min(pending) - 1) if pending else enqueued))
    return progress
