"""Does a rank move? From samples a moment apart: the same frames and no CPU time is *stuck*, anything else is *busy*."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeVar

from hangwatch.analysis.stacks.loops import (
    BELOW_A_SOCKET,
    asks,
    children_go_on,
    counts_on,
    gives_up,
    goes_through_data,
    main_place,
    polls_throughout,
    sleeps_between_items,
    tasks_go_on,
    will_retry,
)
from hangwatch.model.capture import RankCapture
from hangwatch.model.processes import ChildProcess, ProcessSample
from hangwatch.model.stacks import Frame, StackSample

Sample = TypeVar("Sample", ProcessSample, StackSample)
State = Literal["lost", "stopped", "stuck", "busy", "unknown"]

#: Share of one core, its children counted in, from which a rank is called busy. A waiting rank was measured at 0-3 %,
#: with side threads (progress bars, uploads, our probe) well below this.
BUSY_CPU_SHARE = 0.15
#: Bytes a second through read and write calls from which a rank is called busy: polling a status file is less. In one that is
#: known to wait for others its side threads may move more than that.
BUSY_IO_BYTES_PER_S = 64 * 1024
BUSY_IO_BESIDE_A_WAIT_BYTES_PER_S = 256 * 1024
#: A thread that wakes this often in a wait for data, for these kernel wait channels, is being given some.
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
    """What moved between the samples, in the liveliest interval. Shares are of one core; ``window_s`` is the time between."""

    state: State
    window_s: float = 0.0
    cpu_share: float | None = None
    io_bytes_per_s: float | None = None
    frames_changed: bool | None = None

    def describe(self) -> str:
        """One phrase for people."""
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
    """CPU seconds a second, children that lived through the interval counted in."""
    return max(0.0, (after.cpu_s - before.cpu_s) / _between_s(before, after) + _children_cpu_share(before, after))


def _children_cpu_share(before: ProcessSample, after: ProcessSample) -> float:
    had = {c.pid: c.cpu_s for c in before.children}
    return sum(c.cpu_s - had[c.pid] for c in after.children if c.pid in had) / _between_s(before, after)


def _between_s(before: ProcessSample, after: ProcessSample) -> float:
    return (after.at_ns - before.at_ns) / 1e9


def _runnable(sample: ProcessSample) -> set[int]:
    """It and its children, those of them that run or are ready to."""
    states = {sample.pid: sample.state, **{child.pid: child.state for child in sample.children}}
    return {pid for pid, state in states.items() if state == "R"}


def _io_rate(before: ProcessSample, after: ProcessSample, *, alone: bool) -> float | None:
    """Bytes a second, those of children that lived through the interval counted in, unless it is to be ``alone``."""
    if before.io_bytes is None or after.io_bytes is None:
        return None
    had = {c.pid: c.io_bytes for c in before.children if c.io_bytes is not None}
    theirs = sum(c.io_bytes - had[c.pid] for c in after.children if c.pid in had and c.io_bytes is not None)
    moved = after.io_bytes - before.io_bytes + (0 if alone else theirs)
    return max(0.0, moved / _between_s(before, after))


def _is_fed(before: ProcessSample, after: ProcessSample, *, asking: bool, receives: bool) -> bool:
    """Whether it is receiving: a download is little CPU time and, on a socket, no read call that /proc/PID/io counts.

    In the read of a pipe a thread wakes for data and for nothing else, be it once, and so does one that ``receives`` all that
    comes; unless it is ``asking`` for them in a loop.
    """
    if before.switches is None or after.switches is None:
        return False
    rate = (after.switches - before.switches) / _between_s(before, after)
    channels = [sample.wait_channel or "" for sample in (before, after)]
    reads = receives or all(channel.startswith(_PIPE_CHANNELS) for channel in channels)
    if rate > 0 and reads and not asking:
        return True
    return rate >= DATA_WAKEUPS_PER_S and (receives or channels[1].startswith(_DATA_CHANNELS))


def _child_is_fed(before: ProcessSample, after: ProcessSample) -> bool:
    """Whether a child is receiving, often enough to be no one whom this process asks how far it is."""
    had = {c.pid: c.switches for c in before.children if c.switches is not None and _reads_data(c)}
    enough = DATA_WAKEUPS_PER_S * _between_s(before, after)
    return any(c.pid in had and (c.switches or 0) - had[c.pid] >= enough for c in after.children if _reads_data(c))


def _reads_data(child: ChildProcess) -> bool:
    return (child.wait_channel or "").startswith(_DATA_CHANNELS)


def _receives(stacks: Sequence[StackSample]) -> bool:
    """Whether the main thread takes all that a child writes, or reads an answer from a connection, however long that takes.

    CPython 3.10 to 3.14: ``Popen._communicate`` has its pipes in a selector, and a time limit of its own ends the wait. So it
    does that of ``SocketIO.readinto``, by which http.client reads, and which cannot be called again then.
    """

    def waits(frames: Sequence[Frame]) -> bool:
        communicates = len(frames) > 1 and frames[0].file.endswith("/selectors.py")
        return (communicates and frames[1].file.endswith("/subprocess.py")) or any(
            f.file.endswith("/socket.py") and f.function.endswith("readinto") for f in frames[:BELOW_A_SOCKET]
        )

    return bool(stacks) and all(s.main is not None and waits(s.main.frames) for s in stacks)


def _since(samples: Sequence[Sample], since_ns: int, began_ns: int) -> Sequence[Sample]:
    """The samples after the wait began that cover the time since ``since_ns``, from the last one before it; two at the least."""
    skipped = sum(s.at_ns <= began_ns for s in samples)
    before = sum(s.at_ns <= since_ns for s in samples)
    return samples[max(0, min(max(before - 1, skipped), len(samples) - 2)) :]


def _intervals(samples: Sequence[ProcessSample]) -> list[tuple[ProcessSample, ProcessSample]]:
    return [(a, b) for a, b in pairwise(samples) if b.at_ns - a.at_ns >= MIN_INTERVAL_NS]


def still_since_ns(capture: RankCapture, *, polls: bool = False) -> int | None:
    """Since when the main thread has not run at all, by the samples: same frames, and no context switch of its own.

    This dates a wait that no recorder shows. A thread that goes round a loop is found in the same place each time, but
    it has switched in between. ``polls``: it is known to be in one call that polls, so frames alone count.
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
    """The motion of one rank over its samples since ``since_ns``: busy if it was so in any interval between two.

    The last two samples count in any case, and so does the one before ``since_ns``: samples are seconds apart. None from before
    its wait began (``began_ns``) does: what it did on its way there is no motion in the wait. ``spins``: it is known to wait for
    a GPU, which it does at full speed, as do NCCL's own threads: then CPU time is no motion. ``waits``: by its stack it waits for
    other ranks.
    """
    samples = _since(capture.processes, since_ns, began_ns)
    stacks = _since(capture.stacks, since_ns, began_ns)
    if not samples:
        return Motion("unknown")
    last = samples[-1]
    if last.ended:
        return Motion("lost")
    if last.state in {"T", "t"} or last.frozen:
        return Motion("stopped")
    pairs = _intervals(samples)
    if not pairs:
        return Motion("unknown")
    window_s = (last.at_ns - samples[0].at_ns) / 1e9
    cpu = max(_cpu_share(a, b) for a, b in pairs)
    rates = [rate for a, b in pairs if (rate := _io_rate(a, b, alone=waits)) is not None]
    io = max(rates, default=None)
    changed = _frames_changed(stacks)
    # A compiler or a downloader that comes and goes is work, though its CPU time never shows in two samples.
    family = any({c.pid for c in a.children} != {c.pid for c in b.children} for a, b in pairs)
    # On a machine with more to do than it has cores for, a thread that is to run all the time may get next to nothing.
    runnable = bool(_runnable(samples[-2]) & _runnable(last))
    computes = not spins and (runnable or cpu >= BUSY_CPU_SHARE)
    enough = BUSY_IO_BESIDE_A_WAIT_BYTES_PER_S if waits else BUSY_IO_BYTES_PER_S
    moves = computes or (io is not None and io >= enough) or changed is True
    woke = (samples[-1].switches or 0) > (samples[0].switches or 0)
    retries = woke and (will_retry(stacks) or gives_up(stacks) or sleeps_between_items(stacks))
    gets_on = counts_on(stacks) or goes_through_data(stacks) or tasks_go_on(stacks, samples)
    asking, receives = asks(stacks), _receives(stacks)
    fed = any(_is_fed(a, b, asking=asking, receives=receives) for a, b in pairs)
    theirs = not waits and (children_go_on(samples) or any(_child_is_fed(a, b) for a, b in pairs))
    busy = moves or family or retries or gets_on or fed or theirs
    return Motion("busy" if busy else "stuck", window_s, cpu, io, changed)


def children_work(capture: RankCapture, since_ns: int = 0) -> bool:
    """Whether a child of a rank works, whatever the rank itself does: it computes, is sent data, or gets on with its own."""
    samples = _since(capture.processes, since_ns, 0)
    pairs = _intervals(samples)
    at_work = any(_children_cpu_share(a, b) >= BUSY_CPU_SHARE or _child_is_fed(a, b) for a, b in pairs)
    return at_work or children_go_on(samples)


def wakes(capture: RankCapture, child: int, since_ns: int = 0) -> bool:
    """Whether a child of a rank has run again and again."""
    samples = _since(capture.processes, since_ns, 0)
    counts = [c.switches for sample in samples for c in sample.children if c.pid == child and c.switches is not None]
    return bool(counts) and counts[-1] > counts[0]
