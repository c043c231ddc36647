"""What moves between samples of one rank: its main thread, CPU time, bytes, its children. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeVar

from hangwatch.analysis.motion.loops import (
    BELOW_A_SOCKET,
    asks_again,
    children_go_on,
    counts_on,
    ends_by_clock,
    goes_through_data,
    is_between_items,
    main_place,
    polls_throughout,
    retries,
    tasks_go_on,
)
from hangwatch.analysis.places import FETCHES
from hangwatch.model.capture import RankCapture
from hangwatch.model.processes import ChildProcess, ProcessSample
from hangwatch.model.stacks import Frame, StackSample, once_a_stack

Sample = TypeVar("Sample", ProcessSample, StackSample)
_Interval = tuple[ProcessSample, ProcessSample]
State = Literal["lost", "stopped", "stuck", "busy", "unknown"]

#: Share of one core, its children counted in, from which a rank is called busy. A waiting rank was measured at 0-3 %,
#: with side threads (progress bars, uploads, our probe) well below this.
BUSY_CPU_SHARE = 0.15
#: Bytes a second through read and write calls from which a rank is called busy: polling a status file is less. In one that is
#: known to wait for others its side threads may move more than that.
BUSY_IO_BYTES_PER_S = 64 * 1024
BUSY_IO_BESIDE_A_WAIT_BYTES_PER_S = 256 * 1024
#: A thread that wakes this often on one of these kernel wait channels is receiving data.
DATA_WAKEUPS_PER_S = 5.0
_PIPE_CHANNELS = ("pipe_read", "anon_pipe_read")
_DATA_CHANNELS = (
    *_PIPE_CHANNELS, "wait_woken", "sk_wait_data", "unix_stream_", "io_schedule", "folio_wait", "nfs", "rpc_wait",
    "request_wait", "fuse",
)  # fmt: skip
#: Intervals shorter than this say nothing: the kernel counts CPU time in ticks of 10 ms.
MIN_INTERVAL_NS = 200_000_000


@dataclass(frozen=True)
class Motion:
    """What moved between the samples, in the liveliest interval.

    Shares are of one core; ``window_s`` is the time covered.
    """

    state: State
    window_s: float = 0.0
    cpu_share: float | None = None
    frames_changed: bool | None = None

    def describe(self) -> str:
        """Return one phrase for people."""
        if self.state == "lost":
            return "its process is gone"
        if self.state == "stopped":
            return "its process is stopped"
        if self.cpu_share is None:
            return "motion unknown"
        frames = {None: "no stack", True: "frames change", False: "same frames"}[self.frames_changed]
        return f"{frames}, {self.cpu_share:.0%} CPU over {self.window_s:.1f} s"


def _frames_changed(stacks: Sequence[StackSample]) -> bool | None:
    if len(stacks) < 2:
        return None
    places = [main_place(s) for s in stacks]
    return any(p != places[0] for p in places[1:]) and not polls_throughout(stacks)


def _cpu_share(before: ProcessSample, after: ProcessSample) -> float:
    """Return CPU seconds a second, with those of children that lived through the interval."""
    return max(0.0, (after.cpu_s - before.cpu_s) / _between_s(before, after) + _children_cpu_share(before, after))


def _children_cpu_share(before: ProcessSample, after: ProcessSample) -> float:
    had = {c.pid: c.cpu_s for c in before.children}
    return sum(c.cpu_s - had[c.pid] for c in after.children if c.pid in had) / _between_s(before, after)


def _between_s(before: ProcessSample, after: ProcessSample) -> float:
    return (after.at_ns - before.at_ns) / 1e9


def _runnable(sample: ProcessSample) -> set[int]:
    """Return the pids of a process and its children that run or are ready to.

    On a machine with more to do than it has cores for, a thread that is to run all the time may get next to nothing.
    """
    states = {sample.pid: sample.state, **{child.pid: child.state for child in sample.children}}
    return {pid for pid, state in states.items() if state == "R"}


def _changes_children(before: ProcessSample, after: ProcessSample) -> bool:
    """True if a compiler or a downloader has come or gone: that is work, though its CPU time never shows in two samples."""
    return {c.pid for c in before.children} != {c.pid for c in after.children}


def _io_rate(before: ProcessSample, after: ProcessSample, *, alone: bool) -> float | None:
    """Return bytes a second, with those of children that lived through the interval unless ``alone``; None if not known."""
    if before.io_bytes is None or after.io_bytes is None:
        return None
    had = {c.pid: c.io_bytes for c in before.children if c.io_bytes is not None}
    by_children = sum(c.io_bytes - had[c.pid] for c in after.children if c.pid in had and c.io_bytes is not None)
    moved = after.io_bytes - before.io_bytes + (0 if alone else by_children)
    return max(0.0, moved / _between_s(before, after))


def _is_fed(pairs: Iterable[_Interval], stacks: Sequence[StackSample]) -> bool:
    """True if the rank is receiving: a download is little CPU time and, on a socket, no read call that /proc/PID/io counts.

    A thread in the read of a pipe, or one that receives all that comes, wakes for data and for nothing else: one wake
    is enough, unless it asks in a loop.
    """
    receives = _receives(stacks)
    asks = bool(stacks) and asks_again(stacks[-1].main_frames)
    answered = bool(stacks) and _asks_manager(stacks[-1].main_frames)
    for before, after in pairs:
        if before.switches is None or after.switches is None:
            continue
        rate = (after.switches - before.switches) / _between_s(before, after)
        channels = [sample.wait_channel or "" for sample in (before, after)]
        reads = receives or all(channel.startswith(_PIPE_CHANNELS) for channel in channels)
        if rate > 0 and reads and not asks:
            return True
        if rate >= DATA_WAKEUPS_PER_S and not answered and (receives or channels[1].startswith(_DATA_CHANNELS)):
            return True
    return False


@once_a_stack
def _asks_manager(frames: Sequence[Frame]) -> bool:
    """True if a thread asks a manager of multiprocessing, which says nothing by itself: each wake answers a question.

    CPython 3.10 to 3.14: ``BaseProxy._callmethod``. A queue of a manager is polled by it (``Dataset.map`` of datasets
    2 to 5, also with ``multiprocess``).
    """
    return any(f.file.endswith("/managers.py") and f.function.endswith("_callmethod") for f in frames)


def _child_is_fed(before: ProcessSample, after: ProcessSample) -> bool:
    """True if a child wakes too often to be merely answering its parent's questions.

    It receives data, or it is a DataLoader's worker in the data set's own code, where it may wait for its item piece by piece.
    """
    had = {c.pid: c for c in before.children if c.switches is not None}
    enough = DATA_WAKEUPS_PER_S * _between_s(before, after)
    return any(
        (c.switches or 0) - (earlier.switches or 0) >= enough
        for c in after.children
        if (earlier := had.get(c.pid)) is not None and (_loads(c) or (_reads_data(earlier) and _reads_data(c)))
    )


def _loads(child: ChildProcess) -> bool:
    return any(FETCHES in line for line in child.stack)


def _reads_data(child: ChildProcess) -> bool:
    return (child.wait_channel or "").startswith(_DATA_CHANNELS)


def _receives(stacks: Sequence[StackSample]) -> bool:
    """True if the main thread takes all that a child writes, or reads an answer from a connection, however long that takes.

    CPython 3.10 to 3.14: ``Popen._communicate`` has its pipes in a selector, and a time limit ends the wait. A time
    limit also ends ``SocketIO.readinto``, by which http.client reads, and which cannot be called again then.
    """
    return bool(stacks) and all(_takes_all(s.main_frames) for s in stacks)


@once_a_stack
def _takes_all(frames: Sequence[Frame]) -> bool:
    communicates = len(frames) > 1 and frames[0].file.endswith("/selectors.py")
    return (communicates and frames[1].file.endswith("/subprocess.py")) or any(
        f.file.endswith("/socket.py") and f.function.endswith("readinto") for f in frames[:BELOW_A_SOCKET]
    )


def _since(samples: Sequence[Sample], since_ns: int, began_ns: int) -> Sequence[Sample]:
    """Return the samples that cover the time since ``since_ns``, two at the least, and none up to ``began_ns``.

    The last sample before ``since_ns`` is one of them: samples are seconds apart.
    """
    skipped = sum(s.at_ns <= began_ns for s in samples)
    before = sum(s.at_ns <= since_ns for s in samples)
    return samples[max(0, min(max(before - 1, skipped), len(samples) - 2)) :]


def _intervals(samples: Sequence[ProcessSample]) -> list[_Interval]:
    return [(a, b) for a, b in pairwise(samples) if b.at_ns - a.at_ns >= MIN_INTERVAL_NS]


def still_since_ns(capture: RankCapture, *, polls: bool = False) -> int | None:
    """Return since when the main thread has not run at all: same frames, and no context switch (wall clock, ns).

    None without samples. This dates a wait that no recorder shows. A thread that goes round a loop is found in the same
    place each time, but it has switched in between. ``polls``: it is known to be in one call that polls, so frames
    alone count.
    """
    if not capture.processes or not capture.stacks:
        return None
    last, place = capture.processes[-1], main_place(capture.stacks[-1])
    since = last.at_ns
    for sample in reversed(capture.processes):
        if not polls and (sample.switches != last.switches or sample.switches is None):
            break
        since = sample.at_ns
    for stack in reversed(capture.stacks):
        if main_place(stack) != place:
            return max(since, stack.at_ns)
    return since


def read_motion(
    capture: RankCapture, since_ns: int = 0, *, began_ns: int = 0, spins: bool = False, waits: bool = False
) -> Motion:
    """Return the motion of one rank over its samples since ``since_ns`` (``motion`` has the rules).

    The last two samples always count, and so does the last one before ``since_ns``: samples are seconds apart. Samples
    from before ``began_ns``, when its wait began, do not: what a rank did on its way there is no motion in the wait.
    ``spins``: it is known to wait for a GPU at full speed, as NCCL's own threads do: then CPU time is no motion.
    ``waits``: by its stack it waits for other ranks.
    """
    samples = _since(capture.processes, since_ns, began_ns)
    stacks = _since(capture.stacks, since_ns, began_ns)
    pairs = _intervals(samples)
    if (state := _plain_state(samples, pairs)) is not None:
        return Motion(state)
    cpu = max(_cpu_share(a, b) for a, b in pairs)
    rates = [rate for a, b in pairs if (rate := _io_rate(a, b, alone=waits)) is not None]
    enough = BUSY_IO_BESIDE_A_WAIT_BYTES_PER_S if waits else BUSY_IO_BYTES_PER_S
    changed = _frames_changed(stacks)
    busy = (
        (not spins and (cpu >= BUSY_CPU_SHARE or bool(_runnable(samples[-2]) & _runnable(samples[-1]))))
        or any(rate >= enough for rate in rates)
        or changed is True
        or any(_changes_children(a, b) for a, b in pairs)
        or _gets_on(stacks, samples)
        or _is_fed(pairs, stacks)
        or (not waits and _children_get_on(samples))
    )
    window_s = (samples[-1].at_ns - samples[0].at_ns) / 1e9
    return Motion("busy" if busy else "stuck", window_s, cpu, changed)


def _plain_state(samples: Sequence[ProcessSample], pairs: Sequence[_Interval]) -> State | None:
    """Return the state of a rank that is known without comparing samples; None of any other."""
    if samples and samples[-1].ended:
        return "lost"
    if samples and (samples[-1].state in {"T", "t"} or samples[-1].frozen):
        return "stopped"
    return None if pairs else "unknown"


def _gets_on(stacks: Sequence[StackSample], samples: Sequence[ProcessSample]) -> bool:
    """True if the loops around the main thread show that it is further than before, however little CPU that takes."""
    if counts_on(stacks) or goes_through_data(stacks) or tasks_go_on(stacks, samples):
        return True
    frames = stacks[-1].main_frames if stacks else ()
    slept_there = len(stacks) > 1 and main_place(stacks[-1]) == main_place(stacks[0])
    leads_on = retries(frames) or ends_by_clock(frames) or (slept_there and is_between_items(frames))
    return leads_on and (samples[-1].switches or 0) > (samples[0].switches or 0)


def children_work(capture: RankCapture, since_ns: int = 0) -> bool:
    """True if a child of a rank works, whatever the rank itself does: it computes, is sent data, or gets on with its own."""
    samples = _since(capture.processes, since_ns, 0)
    pairs = _intervals(samples)
    return any(_children_cpu_share(*pair) >= BUSY_CPU_SHARE for pair in pairs) or _children_get_on(samples)


def _children_get_on(samples: Sequence[ProcessSample]) -> bool:
    return any(_child_is_fed(a, b) for a, b in _intervals(samples)) or children_go_on(samples)


def child_wakes(capture: RankCapture, child: int, since_ns: int = 0) -> bool:
    """True if a child of a rank has run again and again."""
    samples = _since(capture.processes, since_ns, 0)
    counts = [c.switches for sample in samples for c in sample.children if c.pid == child and c.switches is not None]
    return bool(counts) and counts[-1] > counts[0]


def caller_works(capture: RankCapture) -> bool:
    """True if the process that started this rank, which awaits a call from it, has used CPU time of late."""
    seen = [(s.at_ns, s.caller) for s in capture.processes if s.caller is not None]
    pairs = [
        (later.cpu_s - earlier.cpu_s, at_ns - before_ns)
        for (before_ns, earlier), (at_ns, later) in pairwise(seen)
        if earlier.pid == later.pid and at_ns - before_ns >= MIN_INTERVAL_NS
    ]
    return any(cpu_s >= BUSY_CPU_SHARE * (ns / 1e9) for cpu_s, ns in pairs[-2:])
