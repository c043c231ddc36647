"""A capture of ranks: two samples of each a moment apart, the flight recorders, then the progress after.

May import the model, the analysis, the sources, the settings and its own room.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

import msgspec

from hangwatch.agent.capturing.callers import add_callers
from hangwatch.agent.capturing.children import add_child_stacks
from hangwatch.agent.capturing.flight_pipes import fetch_by_pipes
from hangwatch.agent.capturing.redact import hide_secrets
from hangwatch.agent.capturing.servers import Beyond, find_servers, find_task_workers
from hangwatch.agent.capturing.source_health import SourceHealth
from hangwatch.agent.capturing.trail import Trail
from hangwatch.analysis.ranks.threads import side_threads
from hangwatch.analysis.stacks.remote_calls import awaits_ray
from hangwatch.config.settings import Settings
from hangwatch.model.beats import Beat, BeatGroup
from hangwatch.model.capture import Capture, Gap, Job, RankCapture, RankIdentity
from hangwatch.model.collectives import FlightRecord, call_group, in_flight
from hangwatch.model.numbers import is_guest
from hangwatch.model.processes import ProcessSample, ThreadSample
from hangwatch.model.stacks import Frame, StackSample, TaskStack
from hangwatch.sources.connections.other_ends import Thread
from hangwatch.sources.connections.ray_tasks import RayTask
from hangwatch.sources.flight.recorder import fetch_flight, has_unrecorded, progress_of
from hangwatch.sources.flight.transport import ask_for_beats
from hangwatch.sources.proc.files import inner_pid
from hangwatch.sources.proc.running_code import RunningCode
from hangwatch.sources.proc.samples import find_living, sample_process
from hangwatch.sources.proc.threads import sample_threads
from hangwatch.sources.redaction import redact_text
from hangwatch.sources.stacks import source_lines
from hangwatch.sources.stacks.locals import name_groups
from hangwatch.sources.stacks.samples import sample_stacks

#: Between two samples of a rank: long enough for the kernel's 10 ms ticks to tell busy from stuck.
SAMPLE_INTERVAL_S = 0.3
#: A beat younger than the flight record is awaited this long; a rank that holds its GIL never writes one.
BEAT_WAIT_S = 0.7
#: A probe that is asked for a beat writes it within milliseconds, unless its interpreter is held.
BEAT_ANSWER_S = 0.2
#: A beat is written every half second: one that is this old is late, and not merely of a loaded machine.
STALE_BEAT_S = 2.0
#: Of a process with more tasks of Ray than a person reads, so many are kept.
_MOST_TASKS = 8

Sampled = TypeVar("Sampled", ProcessSample, ThreadSample)


class Beats(Protocol):
    """Where beats are read: one run directory, or several as one."""

    def read(self) -> tuple[dict[int, Beat], tuple[Gap, ...]]:
        """All beats by pid, and what could not be read."""
        ...

    def last_of(self, ranks: Iterable[RankIdentity]) -> dict[int, Beat]:
        """What those of the processes that are gone have written last, by pid."""
        ...


async def sample_ranks(
    ranks: Sequence[RankIdentity], trail: Trail, health: SourceHealth, settings: Settings
) -> tuple[Gap, ...]:
    """One sample of every rank's process and stack into the trail."""
    by_pid = {r.pid: r for r in ranks}
    processes = {r.pid: sample_process(r, deep=True) for r in ranks}
    alive = [pid for pid, p in processes.items() if not p.ended]
    with health.reading("stacks") as reading:
        stacks = await sample_stacks(
            alive, with_values=settings.with_values, condition_values=settings.condition_values
        )
        reading.tried, reading.failed = len(stacks), sum(isinstance(s, Gap) for s in stacks.values())
    gaps = []
    # A reader takes a while to start. Of one that has ended meanwhile, another process may have the pid.
    living = {one.pid for one in find_living([by_pid[pid] for pid in stacks])}
    for pid, process in processes.items():
        stack = stacks.get(pid) if pid in living else None
        if isinstance(stack, Gap):
            gaps.append(Gap(stack.source, stack.reason, by_pid[pid].rank, stack.hint))
        seen = stack if isinstance(stack, StackSample) else None
        trail.add(pid, _with_threads(process, seen) if seen is not None else process, seen)
    return tuple(gaps)


def _with_threads(process: ProcessSample, stack: StackSample) -> ProcessSample:
    """The sample with those of the program's other Python threads: whether they wait, and for what, is theirs alone."""
    others = {t.os_thread_id for t in side_threads(stack.threads) if t.os_thread_id}
    threads = sample_threads(process.pid, others, (child.pid for child in process.children))
    return msgspec.structs.replace(process, threads=threads)


async def _fresh_beats(reader: Beats | None, wanted: Mapping[int, int]) -> dict[int, Beat]:
    """Beats written after ``wanted[pid]`` (wall clock ns), or the last ones once the time is up."""
    if reader is None:
        return {}
    deadline = time.monotonic() + BEAT_WAIT_S
    beats, _ = reader.read()
    await ask_for_beats([b.control for pid, b in beats.items() if pid in wanted and b.control], BEAT_ANSWER_S)
    while True:
        beats, _ = reader.read()
        fresh = all(pid in beats and beats[pid].at_ns > at_ns for pid, at_ns in wanted.items())
        if fresh or time.monotonic() >= deadline:
            return beats
        await asyncio.sleep(0.02)


async def capture_job(
    job: Job,
    ranks: Sequence[RankIdentity],
    *,
    reader: Beats | None,
    trail: Trail | None = None,
    samples: int = 2,
    interval_s: float = SAMPLE_INTERVAL_S,
    gaps: Sequence[Gap] = (),
    health: SourceHealth | None = None,
    settings: Settings | None = None,
    departed: Callable[[], Sequence[RankIdentity]] = tuple,
    asked: Sequence[RankIdentity] = (),
    others: Sequence[RankIdentity] = (),
) -> Capture:
    """Capture all ``ranks``: ``samples`` of each ``interval_s`` apart, flight records without call sites, the progress after.

    With more samples than one, so are processes beside the job that a rank awaits an answer from.

    ``departed``: processes beside the job that have failed, by the time that the others are sampled. ``asked``: processes beside
    the job that are captured too; ``others``: ranks that are not.

    ``trail`` keeps samples from capture to capture. ``gaps`` are what the caller already knows is missing.
    ``health`` counts how the sources fared. ``settings``: whether to keep what locals hold.
    """
    health = health if health is not None else SourceHealth()
    settings = settings if settings is not None else Settings()
    trail = trail if trail is not None else Trail()
    began_ns = time.time_ns()
    beats = reader.read()[0] if reader is not None else {}
    seen: list[Gap] = list(gaps)
    beyond, found_servers = await asyncio.to_thread(find_servers, [*ranks, *asked], others) if samples > 1 else ({}, ())
    servers = (*asked, *found_servers)
    everyone = [*ranks, *servers]
    tasks: dict[int, tuple[RayTask, ...]] = {}
    with RunningCode() as code:
        for _ in range(samples - 1):
            await sample_ranks(everyone, trail, health, settings)
            code.watch(r for r in ranks if _may_spin(beats.get(r.pid), trail.processes.get(r.pid, ())))
            callers = [one for one in everyone if _awaits_ray(trail.stacks.get(one.pid, ()))]
            tasks, workers = await find_task_workers(callers, {one.pid for one in (*everyone, *others)})
            servers = (*servers, *workers)
            everyone = [*everyone, *workers]
            await asyncio.sleep(interval_s)
        # Read again: a rank that was before its first group then may have one, and hang in it, by now.
        beats = reader.read()[0] if reader is not None else {}
        # Without call sites a record costs a rank milliseconds in a thread of its own: it can go beside the last stacks.
        found, records = await asyncio.gather(
            sample_ranks(everyone, trail, health, settings),
            _recorded(health, _fetch_records(ranks, beats, call_sites=False)),
        )
        files, refused = code.read()
    _add_servers(trail, beyond)
    _add_tasks(trail, tasks, {one.pid for one in (*everyone, *others)})
    _add_files(trail, files)
    lost = [one for one in departed() if all(one.pid != other.pid for other in everyone)]
    for one in lost:
        trail.add(one.pid, sample_process(one), None)
    beside = [*servers, *lost]
    everyone = [*ranks, *beside]
    seen += (*found, *refused)
    late = {pid: r.at_ns for pid, r in records.items() if isinstance(r, FlightRecord)}
    unprobed = [r for r in ranks if r.pid not in beats]
    after, _, piped = await asyncio.gather(
        _fresh_beats(reader, late),
        _sample_relatives(everyone, trail, began_ns),
        fetch_by_pipes(unprobed, trail.processes, trail.stacks, trail.piped, job.world_size),
    )
    records |= piped
    now_ns = time.time_ns()
    last = reader.last_of(everyone) if reader is not None else {}
    captures = []
    for identity in everyone:
        pid = identity.pid
        record, beat = records.get(pid), after.get(pid, beats.get(pid))
        if isinstance(record, Gap):
            seen.append(record)
        elif pid not in records and beat is not None and beat.groups and not _may_record(beats.get(pid, beat)):
            seen.append(Gap("flight recorder", "the first group was made after the recorders were read", identity.rank))
        ended = not trail.processes.get(pid) or trail.processes[pid][-1].ended
        # A process of another world without a beat is a server or the scheduler of an engine: it has no group to record.
        if beat is None and not ended and not is_guest(identity.rank):
            seen.append(_no_probe(identity))
        said = last.get(pid, beat)
        names = _group_names(beat)
        captures.append(
            RankCapture(
                identity=identity,
                processes=tuple(trail.processes.get(pid, ())),
                stacks=tuple(name_groups(one, names) for one in trail.stacks_since(pid, began_ns)),
                flight=record if isinstance(record, FlightRecord) else None,
                # The groups of a process beside the job have numbers of their own world, which are none of this one.
                progress=progress_of(beat) if beat is not None and identity not in beside else None,
                beat_age_s=beat.age_s(now_ns) if beat is not None else None,
                groups_created=beat.groups_created if beat is not None else None,
                log_error=_redacted(said.failure) if said is not None else (),
                thread_error=_redacted(said.thread_failure) if said is not None else (),
                handled_error=_redacted(beat.handled) if beat is not None else (),
                thread_handled_error=_redacted(beat.thread_handled) if beat is not None else (),
                tasks=await source_lines.shared.attach_to_tasks(pid, _tasks_of(beat)) if beat is not None else (),
                task_error=_redacted(beat.task_failure) if beat is not None else (),
                ended=said is not None and said.ended,
                unrecorded=beat is not None and has_unrecorded(beat),
            )
        )
    return hide_secrets(Capture(job=job, at_ns=now_ns, ranks=tuple(captures), gaps=tuple(dict.fromkeys(seen))))


def _group_names(beat: Beat | None) -> dict[int, str]:
    """What a rank's process groups are called on all ranks, by the addresses of their objects.

    A group that torch's ``new_group`` did not make may have another name in each process.
    """
    groups = beat.groups if beat is not None else ()
    return {one.address: call_group(one.name, one.description) for one in groups if one.address and one.place is None}


def _tasks_of(beat: Beat) -> tuple[TaskStack, ...]:
    return tuple(TaskStack(task.name, tuple(Frame(*call) for call in task.frames)) for task in beat.tasks)


async def _recorded(
    health: SourceHealth, fetch: Coroutine[None, None, dict[int, FlightRecord | Gap]]
) -> dict[int, FlightRecord | Gap]:
    with health.reading("flight recorder") as reading:
        records = await fetch
        reading.tried, reading.failed = len(records), sum(isinstance(r, Gap) for r in records.values())
    return records


async def _sample_relatives(ranks: Sequence[RankIdentity], trail: Trail, began_ns: int) -> None:
    """Put into the last samples the stacks of children, and who started a rank, where the rank may wait for them."""
    for add in (add_child_stacks, add_callers):
        last = {r.pid: trail.processes[r.pid][-1] for r in ranks if trail.processes.get(r.pid)}
        stacks = {pid: trail.stacks_since(pid, began_ns) for pid in last}
        found = await add({pid: (p, stacks[pid][-1] if stacks[pid] else None) for pid, p in last.items()})
        for pid, process in found.items():
            trail.processes[pid][-1] = process


def _add_servers(trail: Trail, beyond: Mapping[Thread, Beyond]) -> None:
    """Put into the last samples what is beyond each thread, where it is still in a call."""
    for (pid, thread), found in beyond.items():
        samples = trail.processes.get(pid)
        if not samples:
            continue
        last = samples[-1]
        if thread == inner_pid(pid) and last.syscall is not None:
            samples[-1] = _put_beyond(last, found)
        else:
            others = (_put_beyond(t, found) if t.os_thread_id == thread and t.syscall else t for t in last.threads)
            samples[-1] = msgspec.structs.replace(last, threads=tuple(others))


def _awaits_ray(stacks: Sequence[StackSample]) -> bool:
    main = stacks[-1].main if stacks else None
    return main is not None and awaits_ray(main.frames)


def _add_tasks(trail: Trail, tasks: Mapping[int, tuple[RayTask, ...]], seen: Collection[int]) -> None:
    """Put into the last samples which tasks of Ray a process awaits, and who of those that are seen runs them."""
    for pid, found in tasks.items():
        samples = trail.processes.get(pid)
        if samples and found and _awaits_ray(trail.stacks.get(pid, ())):
            here = tuple(sorted({t.pid for t in found if t.pid is not None and t.pid in seen and t.pid != pid}))
            said = tuple(f"{t.name} ({t.state})" for t in found[:_MOST_TASKS])
            samples[-1] = msgspec.structs.replace(_put_servers(samples[-1], here), tasks=said)


def _put_beyond(sample: Sampled, found: Beyond) -> Sampled:
    return msgspec.structs.replace(
        _put_servers(sample, found.servers), store=found.store, elsewhere=found.elsewhere, own_end=found.own_end
    )


def _put_servers(sample: Sampled, pids: tuple[int, ...]) -> Sampled:
    """Who has the other end: one, or several of which any may be meant."""
    alone = len(pids) == 1
    return msgspec.structs.replace(sample, server=pids[0] if alone else None, servers=() if alone else pids)


def _may_spin(beat: Beat | None, samples: Sequence[ProcessSample]) -> bool:
    """Whether a rank runs while an operation of NCCL is in flight: it may work, or wait for its device at full speed."""
    groups = beat.groups if beat is not None else ()
    flies = any(g.backend == "nccl" and g.enqueued > g.completed for g in groups)
    return flies and bool(samples) and samples[-1].state == "R"


def _add_files(trail: Trail, files: Mapping[int, tuple[str, ...]]) -> None:
    """Put into the last samples in which code the main threads were found since the ones before."""
    for pid, names in files.items():
        samples = trail.processes.get(pid)
        if samples and samples[-1].state == "R":
            samples[-1] = msgspec.structs.replace(samples[-1], runs_in=names)


def _redacted(lines: Sequence[str]) -> tuple[str, ...]:
    return tuple(redact_text(line) for line in lines)


async def add_call_sites(capture: Capture, reader: Beats | None, ranks: Collection[int]) -> Capture:
    """The capture with call sites in the flight records of ``ranks``, which are on this node; all else is kept.

    Call sites need the rank's GIL for a moment, and CPU time of its own that must not pass for motion: so they are asked
    for after the samples, and only of ranks that are found to hang.
    """
    beats = reader.read()[0] if reader is not None else {}
    here = [r for r in capture.ranks if r.rank in ranks]
    records = await _fetch_records([r.identity for r in here], beats, call_sites=True)
    found = {
        pid: await source_lines.shared.attach_to_record(pid, record)
        for pid, record in records.items()
        if isinstance(record, FlightRecord) and record.source == "pickle"
    }
    with_sites = tuple(msgspec.structs.replace(r, flight=found.get(r.identity.pid, r.flight)) for r in here)
    # What other nodes have sent they have been through themselves: their processes' environments are not to be read here.
    hidden = hide_secrets(msgspec.structs.replace(capture, ranks=with_sites))
    changed = {r.rank: r for r in hidden.ranks}
    return msgspec.structs.replace(hidden, ranks=tuple(changed.get(r.rank, r) for r in capture.ranks))


async def _fetch_records(
    ranks: Sequence[RankIdentity], beats: Mapping[int, Beat], *, call_sites: bool
) -> dict[int, FlightRecord | Gap]:
    """The flight records of the probed ranks that have, or may still have, a process group, by pid."""
    now_ns = time.time_ns()
    asked = [(r, beats[r.pid]) for r in ranks if r.pid in beats and _may_record(beats[r.pid])]
    known = _known_groups([beats[r.pid] for r in ranks if r.pid in beats])
    fetched = (
        fetch_flight(beat if beat.initialized else _with_groups(beat, known), rank=r.rank, call_sites=call_sites)
        for r, beat in asked
    )
    records = zip(asked, await asyncio.gather(*fetched), strict=True)
    return {r.pid: record for (r, beat), record in records if _counts(beat, record, now_ns)}


def _may_record(beat: Beat) -> bool:
    # torch's server needs no interpreter, and knows better than the beat of an interpreter that is held, or of a rank
    # whose groups are being destroyed: torch forgets them before their destructors have awaited what is pending.
    return beat.initialized or beat.server is not None


def _counts(beat: Beat, record: FlightRecord | Gap, now_ns: int) -> bool:
    """Whether the record of a rank that may have no group at all says anything: only what is in flight does.

    A beat that is late may be of before the first group. Then an empty record says that there still is none.
    """
    if beat.initialized or beat.groups:
        return True
    late = beat.age_s(now_ns) > STALE_BEAT_S
    if isinstance(record, Gap):
        return late
    return bool(in_flight(record.operations)) or (late and bool(record.progress or record.operations))


def _known_groups(beats: Sequence[Beat]) -> dict[str, BeatGroup]:
    """Every rank's groups by name, without progress; none of a name that stands for different groups on different ranks."""
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
    """The beat of a rank that knows no group any more, with the groups that others still know it to be in."""
    own = {g.name for g in beat.groups}
    number = beat.rank if beat.number is None else beat.number
    more = (g for g in known.values() if g.name not in own and number in g.ranks)
    return msgspec.structs.replace(beat, groups=(*beat.groups, *more))


def _no_probe(identity: RankIdentity) -> Gap:
    hint = 'start the job with `hangwatch run -- CMD` or after `eval "$(hangwatch env)"`'
    return Gap("probe", "not loaded in this process; no recorder, stacks alone", identity.rank, hint)
