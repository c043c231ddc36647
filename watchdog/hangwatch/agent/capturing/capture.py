"""A capture of ranks in four steps: sample them, ask for their flight records, follow what they wait for, assemble it.

May import the model, the analysis, the sources, the settings and its own room.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TypeVar

import msgspec

from hangwatch.agent.capturing.records import fetch_by_pipes, fetch_records, may_record
from hangwatch.agent.capturing.redact import hide_secrets
from hangwatch.agent.capturing.relatives import add_callers, add_child_stacks, add_lock_holders
from hangwatch.agent.capturing.servers import Beyond, find_servers, find_task_workers
from hangwatch.agent.capturing.source_health import SourceHealth
from hangwatch.agent.capturing.trail import Trail
from hangwatch.analysis.ranks.threads import side_threads
from hangwatch.analysis.stacks.remote_calls import awaits_ray, names_awaited
from hangwatch.config.settings import Settings
from hangwatch.model.beats import Beat
from hangwatch.model.capture import Capture, Gap, Job, RankCapture, RankIdentity
from hangwatch.model.collectives import FlightRecord, call_group
from hangwatch.model.numbers import is_guest
from hangwatch.model.processes import ProcessSample, ThreadSample
from hangwatch.model.stacks import Frame, StackSample, TaskStack
from hangwatch.sources.beats.node_beats import NodeBeats
from hangwatch.sources.connections.other_ends import Thread
from hangwatch.sources.connections.ray_tasks import RayTask
from hangwatch.sources.flight.recorder import has_unrecorded, progress_of
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
#: How many Ray tasks of a process are kept: more than a person reads.
_MOST_TASKS = 8
_NO_PROBE_HINT = 'start the job with `hangwatch run -- CMD` or after `eval "$(hangwatch env)"`'

Sampled = TypeVar("Sampled", ProcessSample, ThreadSample)


@dataclass
class JobCapture:
    """One capture of a job while it is made; ``take`` makes it.

    ``ranks``: whom to capture; only their flight records are asked for. ``others``: ranks of the job that are not
    captured. ``reader``: where their beats are; None without beats. ``samples``: how many of each rank,
    ``interval_s`` seconds apart; for a single one, no process beside the job is searched. ``trail``: keeps samples
    from capture to capture. ``health``: counts the sources' successes and failures. ``settings``: whether to keep the
    values of locals. ``gaps``: what is missing, at first what the caller knows. ``beside``: processes beside the job
    that are captured too, at first those the caller names. ``departed``: returns the processes beside the job that
    have failed; called once the others are sampled.
    """

    job: Job
    ranks: Sequence[RankIdentity]
    _: KW_ONLY
    reader: NodeBeats | None
    samples: int = 2
    interval_s: float = SAMPLE_INTERVAL_S
    trail: Trail = field(default_factory=Trail)
    health: SourceHealth = field(default_factory=SourceHealth)
    settings: Settings = field(default_factory=Settings)
    gaps: Sequence[Gap] = ()
    beside: Sequence[RankIdentity] = ()
    others: Sequence[RankIdentity] = ()
    departed: Callable[[], Sequence[RankIdentity]] = tuple
    _beats: dict[int, Beat] = field(default_factory=dict)
    _records: dict[int, FlightRecord | Gap] = field(default_factory=dict)
    _beyond: dict[Thread, Beyond] = field(default_factory=dict)
    _tasks: dict[int, tuple[RayTask, ...]] = field(default_factory=dict)

    async def take(self) -> Capture:
        """Capture all ranks now. Call it once."""
        began_ns = time.time_ns()
        with RunningCode() as code:
            await self._sample(code)
            await self._ask(code)
        beats = await self._follow(began_ns)
        return await self._assemble(beats, began_ns)

    @property
    def _everyone(self) -> list[RankIdentity]:
        return [*self.ranks, *self.beside]

    @property
    def _known(self) -> set[int]:
        return {one.pid for one in (*self._everyone, *self.others)}

    async def _sample(self, code: RunningCode) -> None:
        """Take all samples except the last, and find the processes beside the job whose answer a rank awaits."""
        if self.samples == 1:
            return
        beats = _read_beats(self.reader)
        self._beyond, servers = await asyncio.to_thread(find_servers, self._everyone, self.others)
        self.beside = (*self.beside, *servers)
        for _ in range(self.samples - 1):
            await sample_ranks(self._everyone, self.trail, self.health, self.settings)
            code.watch(r for r in self.ranks if _may_spin(beats.get(r.pid), self.trail.last(r.pid)))
            callers = {one: called for one in self._everyone if (called := self._called_by_ray(one.pid)) is not None}
            self._tasks, workers = await find_task_workers(callers, self._known)
            self.beside = (*self.beside, *workers)
            await asyncio.sleep(self.interval_s)

    async def _ask(self, code: RunningCode) -> None:
        """Take the last sample, and meanwhile ask the ranks for their flight records.

        Without call sites a record costs a rank milliseconds in a thread of its own, so it may be read at the same
        time as the stacks.
        """
        # Read again: a rank without a group may have one by now, and hang in it.
        self._beats = _read_beats(self.reader)
        unseen, _ = await asyncio.gather(
            sample_ranks(self._everyone, self.trail, self.health, self.settings), self._fetch_records()
        )
        files, refused = code.read()
        self.gaps = (*self.gaps, *unseen, *refused)
        for pid, names in files.items():
            if (last := self.trail.last(pid)) is not None and last.state == "R":
                self.trail.put_last(pid, msgspec.structs.replace(last, runs_in=names))

    async def _fetch_records(self) -> None:
        with self.health.reading("flight recorder") as reading:
            self._records = await fetch_records(self.ranks, self._beats, call_sites=False)
            reading.count(self._records.values())

    async def _follow(self, began_ns: int) -> dict[int, Beat]:
        """Add to the last samples what they wait for beyond their process; return the beats read after the records."""
        for thread, found in self._beyond.items():
            self._add_server(thread, found)
        for pid, tasks in self._tasks.items():
            self._add_tasks(pid, tasks)
        sampled = {one.pid for one in self._everyone}
        for one in self.departed():
            if one.pid not in sampled:
                self.trail.add(one.pid, sample_process(one), None)
                self.beside = (*self.beside, one)
        late = {pid: r.at_ns for pid, r in self._records.items() if isinstance(r, FlightRecord)}
        unprobed = [r for r in self.ranks if r.pid not in self._beats]
        after, _, piped = await asyncio.gather(
            _fresh_beats(self.reader, late),
            self._add_relatives(began_ns),
            fetch_by_pipes(unprobed, self.trail.processes, self.trail.stacks, self.trail.piped, self.job.world_size),
        )
        self._records |= piped
        return self._beats | after

    async def _assemble(self, beats: Mapping[int, Beat], began_ns: int) -> Capture:
        """Return everything seen as one value, without secrets."""
        now_ns = time.time_ns()
        last = self.reader.last_of(self._everyone) if self.reader is not None else {}
        gaps, captures = [*self.gaps], []
        for identity in self._everyone:
            beat = beats.get(identity.pid)
            gaps += self._missing(identity, beat)
            seen = self._seen(identity, beat, began_ns)
            if beat is not None:
                seen = await _with_beat(seen, beat, now_ns)
                # A process beside the job numbers its groups by its own world, not by this one.
                seen = seen if identity in self.beside else msgspec.structs.replace(seen, progress=progress_of(beat))
            captures.append(_with_failure(seen, last.get(identity.pid, beat)))
        return hide_secrets(Capture(self.job, now_ns, tuple(captures), tuple(dict.fromkeys(gaps))))

    def _seen(self, identity: RankIdentity, beat: Beat | None, began_ns: int) -> RankCapture:
        pid, names = identity.pid, _group_names(beat)
        record = self._records.get(pid)
        return RankCapture(
            identity,
            processes=tuple(self.trail.processes.get(pid, ())),
            stacks=tuple(name_groups(one, names) for one in self.trail.stacks_since(pid, began_ns)),
            flight=record if isinstance(record, FlightRecord) else None,
        )

    def _missing(self, identity: RankIdentity, beat: Beat | None) -> Iterator[Gap]:
        """Yield the gaps of a process: why it has no record, and that it has no probe."""
        pid, rank = identity.pid, identity.rank
        record, last = self._records.get(pid), self.trail.last(pid)
        if isinstance(record, Gap):
            yield record
        elif record is None and beat is not None and beat.groups and not may_record(self._beats.get(pid, beat)):
            yield Gap("flight recorder", "the first group was created after the recorders were read", rank)
        # A process of another world without a beat is a server or the scheduler of an engine: it has no group to record.
        if beat is None and last is not None and not last.ended and not is_guest(rank):
            yield Gap("probe", "not loaded in this process; no recorder, only stacks", rank, _NO_PROBE_HINT)

    def _add_server(self, thread: Thread, found: Beyond) -> None:
        """Add to the last sample what a thread waits for beyond its process, if it is still in a system call."""
        pid, number = thread
        last = self.trail.last(pid)
        if last is None:
            return
        if number == inner_pid(pid) and last.syscall is not None:
            self.trail.put_last(pid, _put_beyond(last, found))
        else:
            others = (_put_beyond(t, found) if t.os_thread_id == number and t.syscall else t for t in last.threads)
            self.trail.put_last(pid, msgspec.structs.replace(last, threads=tuple(others)))

    def _add_tasks(self, pid: int, tasks: Sequence[RayTask]) -> None:
        """Add to the last sample which Ray tasks a process awaits, and which of the captured processes run them."""
        last = self.trail.last(pid)
        if last is not None and tasks and self._called_by_ray(pid) is not None:
            here = tuple(sorted({t.pid for t in tasks if t.pid is not None and t.pid in self._known - {pid}}))
            said = tuple(f"{t.name} ({t.state})" for t in tasks[:_MOST_TASKS])
            self.trail.put_last(pid, msgspec.structs.replace(_put_servers(last, here), tasks=said))

    async def _add_relatives(self, began_ns: int) -> None:
        """Add to the last samples what a rank may wait for: its children's stacks, its caller, the holder of its lock."""
        for add in (add_child_stacks, add_callers, add_lock_holders):
            seen = {}
            for one in self._everyone:
                if (last := self.trail.last(one.pid)) is not None:
                    stacks = self.trail.stacks_since(one.pid, began_ns)
                    seen[one.pid] = last, stacks[-1] if stacks else None
            for pid, process in (await add(seen)).items():
                self.trail.put_last(pid, process)

    def _called_by_ray(self, pid: int) -> frozenset[str] | None:
        """Return the names of what a process in ``ray.get`` or ``ray.wait`` may have called there; None if it is in neither."""
        stacks = self.trail.stacks.get(pid, [])
        frames = stacks[-1].main_frames if stacks else ()
        return names_awaited(frames) if awaits_ray(frames) else None


async def sample_ranks(
    ranks: Sequence[RankIdentity], trail: Trail, health: SourceHealth, settings: Settings
) -> tuple[Gap, ...]:
    """Add a sample of every rank's process and stack to the trail; return gaps for unreadable stacks."""
    by_pid = {r.pid: r for r in ranks}
    processes = {r.pid: sample_process(r, deep=True) for r in ranks}
    alive = [pid for pid, p in processes.items() if not p.ended]
    with health.reading("stacks") as reading:
        stacks = await sample_stacks(
            alive, with_values=settings.with_values, condition_values=settings.condition_values
        )
        reading.count(stacks.values())
    gaps = []
    # A reader takes a while to start: meanwhile a process may end and its pid be reused.
    living = {one.pid for one in find_living([by_pid[pid] for pid in stacks])}
    for pid, process in processes.items():
        stack = stacks.get(pid) if pid in living else None
        if isinstance(stack, Gap):
            gaps.append(Gap(stack.source, stack.reason, by_pid[pid].rank, stack.hint))
        seen = stack if isinstance(stack, StackSample) else None
        trail.add(pid, _with_threads(process, seen) if seen is not None else process, seen)
    return tuple(gaps)


def _with_threads(process: ProcessSample, stack: StackSample) -> ProcessSample:
    """Return the sample with those of other Python threads of the program, which may wait for something else."""
    others = {t.os_thread_id for t in side_threads(stack.threads) if t.os_thread_id}
    threads = sample_threads(process.pid, others, (child.pid for child in process.children))
    return msgspec.structs.replace(process, threads=threads)


def _read_beats(reader: NodeBeats | None) -> dict[int, Beat]:
    return reader.read()[0] if reader is not None else {}


async def _fresh_beats(reader: NodeBeats | None, wanted: Mapping[int, int]) -> dict[int, Beat]:
    """Return beats written after ``wanted[pid]`` (wall clock ns); the last ones when the time is up."""
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


def _may_spin(beat: Beat | None, last: ProcessSample | None) -> bool:
    """True if a rank runs while an operation of NCCL is in flight.

    It may work, or wait for its device at full speed.
    """
    groups = beat.groups if beat is not None else ()
    flies = any(g.backend == "nccl" and g.enqueued > g.completed for g in groups)
    return flies and last is not None and last.state == "R"


def _put_beyond(sample: Sampled, found: Beyond) -> Sampled:
    return msgspec.structs.replace(
        _put_servers(sample, found.servers), store=found.store, elsewhere=found.elsewhere, own_end=found.own_end
    )


def _put_servers(sample: Sampled, pids: tuple[int, ...]) -> Sampled:
    """Return the sample with the processes at the other end; if there are several, any may be the awaited one."""
    alone = len(pids) == 1
    return msgspec.structs.replace(sample, server=pids[0] if alone else None, servers=() if alone else pids)


async def _with_beat(seen: RankCapture, beat: Beat, now_ns: int) -> RankCapture:
    tasks = tuple(TaskStack(task.name, tuple(Frame(*call) for call in task.frames)) for task in beat.tasks)
    return msgspec.structs.replace(
        seen,
        beat_age_s=beat.age_s(now_ns),
        groups_created=beat.groups_created,
        handled_error=_redacted(beat.handled),
        thread_handled_error=_redacted(beat.thread_handled),
        tasks=await source_lines.shared.attach_to_tasks(seen.identity.pid, tasks),
        task_error=_redacted(beat.task_failure),
        unrecorded=has_unrecorded(beat),
    )


def _with_failure(seen: RankCapture, last: Beat | None) -> RankCapture:
    """Return the rank with the failure that its last beat reports, possibly written as it ended."""
    if last is None:
        return seen
    failure, of_threads = _redacted(last.failure), _redacted(last.thread_failure)
    return msgspec.structs.replace(seen, log_error=failure, thread_error=of_threads, ended=last.ended)


def _redacted(lines: Sequence[str]) -> tuple[str, ...]:
    return tuple(redact_text(line) for line in lines)


def _group_names(beat: Beat | None) -> dict[int, str]:
    """Return the names that a rank's groups have on all ranks, by the addresses of their objects.

    A group that torch's ``new_group`` did not make may have another name in each process.
    """
    groups = beat.groups if beat is not None else ()
    return {one.address: call_group(one.name, one.description) for one in groups if one.address and one.place is None}
