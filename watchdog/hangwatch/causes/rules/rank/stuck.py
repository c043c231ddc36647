"""A rank that is there and does not move: at a prompt, behind a DataLoader or a file, with the interpreter's lock."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hangwatch.analysis.case import Case
from hangwatch.analysis.places import calls
from hangwatch.analysis.ranks.file_locks import FILE_CALLS, find_lock_file, is_terminal
from hangwatch.analysis.ranks.mutexes import follow, steady_waits
from hangwatch.analysis.ranks.views import RankView
from hangwatch.analysis.stacks.prompts import find_debugger, find_input
from hangwatch.causes.evidence import at_process, at_stack, looked_at, standing
from hangwatch.causes.rules.rank.mutexes import at_mutexes, explain
from hangwatch.causes.signature import Match, Signature
from hangwatch.model.incident import Evidence
from hangwatch.model.processes import SLEEPS, ProcessSample
from hangwatch.model.stacks import ThreadStack

#: A prompt reads from a terminal, and a post-mortem one is under an exception.
DEBUGGER = Signature("debugger", "prompt", "certain", beats=("blocked-io", "rank-raised", "init-missing-rank"))
#: Input is read as from any file; that a person is to type it says more.
READING_INPUT = Signature("debugger", "reading-input", "certain", beats=("blocked-io", "init-missing-rank"))
#: Input is read as from any file; that a person is to type it says more.
READING_TERMINAL = Signature("debugger", "reading-terminal", "certain", beats=("blocked-io", "init-missing-rank"))
ASKING_FOR_INPUT = Signature("debugger", "asking-for-input", "strong")
#: What the main thread waits for is its workers, by whatever call; and why it is not in initialization.
DATALOADER = Signature("dataloader-stall", "waits-for-workers", "certain", beats=("blocked-io", "init-missing-rank"))
LOCK_FILE = Signature("blocked-io", "lock-file", "certain")
LOCK_FILE_OF_A_BUSY_RANK = Signature("blocked-io", "lock-file-others-at-work", "likely")
FILE_CALL = Signature("blocked-io", "file-call", "certain")
UNINTERRUPTIBLE = Signature("blocked-io", "uninterruptible", "strong")
FILE_CHANNEL = Signature("blocked-io", "file-channel", "strong")
FILE_LOCK = Signature("blocked-io", "file-lock-polled", "strong")
SOCKET_CALL = Signature("blocked-io", "socket", "strong")
PIPE_OR_PROMPT = Signature("blocked-io", "pipe-without-source", "strong")
SOCKET_CHANNEL = Signature("blocked-io", "socket-channel", "likely")
SELECT = Signature("blocked-io", "select", "possible")
#: A file is read without the lock by all but code that keeps it.
GIL_HELD = Signature("gil-held", "beat-stale", "certain", beats=("blocked-io", "init-missing-rank"))
#: In what it sleeps is of no matter: it keeps all others from running.
GIL_HELD_ASLEEP = Signature("gil-held", "holder-asleep", "strong", beats=("blocked-io",))
#: It does not move: it waits with the lock.
GIL_HELD_ACTIVE = Signature("gil-held", "holder-active", "likely", beats=("busy-loop",))
GIL_HELD_AT_TIMES = Signature("gil-held", "beat-stale-other-holders", "likely")
GIL_HELD_COMPUTING = Signature("gil-held", "holder-computes", "likely")

#: Wait channels of a file system, a pipe or a device; those of sockets and terminals are apart.
_FILE_CHANNELS = re.compile(
    r"pipe_read|pipe_write|pipe_wait|fifo|nfs|rpc_|fuse|request_wait|lustre|ceph|cifs|smb|gpfs|folio|io_schedule|wait_on_page|jbd2|xfs_|ext4_|flock|fcntl_setlk|posix_lock"
)
_SOCKET_CHANNELS = re.compile(r"sk_wait|wait_woken|inet_|unix_stream|tcp_")
_CALLS = FILE_CALLS | {
    "access",
    "close",
    "copy_file_range",
    "faccessat",
    "faccessat2",
    "fallocate",
    "ftruncate",
    "mkdir",
    "sendfile",
}
SELECTS = frozenset({"select", "pselect6"})
POLLS = frozenset({"poll", "ppoll", "epoll_wait", "epoll_pwait", "epoll_pwait2"})
_SOCKET_CALLS = frozenset({"recvfrom", "recvmsg", "recv", "sendto", "sendmsg", "connect", "accept", "accept4"})
#: A beat is written every half second; beyond this it is late, and not merely a loaded machine.
STALE_BEAT_S = 2.0


def is_outside(channel: str) -> bool:
    """Whether a kernel wait channel is that of a file, a pipe or a connection."""
    return bool(_FILE_CHANNELS.search(channel) or _SOCKET_CHANNELS.search(channel))


def debugger(case: Case) -> Match | None:
    """Debugger frames above the user's code, or a line that asks for input and waits in a read."""
    for rank, view in looked_at(case):
        frame = find_debugger(view.frames)
        if frame is not None:
            said = f"Rank {rank}'s {view.who} is in the debugger, called from the user's line."
            return Match(DEBUGGER, said, (*at_stack(case, rank, frame), *at_process(case, rank)))
        asking = find_input(view.frames)
        last = view.sample
        if asking is not None and view.motion.state != "busy":
            reading = last is not None and last.syscall in {"read", "readv", "select", "pselect6", "poll", "ppoll"}
            said = f"Rank {rank} asks for input and waits for the answer."
            return Match(
                READING_INPUT if reading else ASKING_FOR_INPUT,
                said,
                (*at_stack(case, rank, asking), *at_process(case, rank)),
            )
        if last is not None and last.syscall in {"read", "readv"} and is_terminal(last.blocked_on or ""):
            said = f"Rank {rank} reads from its terminal and waits for a person to type."
            return Match(READING_TERMINAL, said, (*at_process(case, rank), *at_stack(case, rank)))
    return None


def dataloader(case: Case) -> Match | None:
    """The main thread is in the DataLoader's wait for its workers; a worker's stack says why."""
    for rank, view in looked_at(case):
        frame = calls(view.frames, "torch/utils/data/dataloader.py", "_try_get_data", "_get_data", "_shutdown_workers")
        if frame is None:
            continue
        evidence = (*at_stack(case, rank, frame), *at_process(case, rank))
        last = view.sample
        for child in last.children if last else ():
            idle = any("multiprocessing/queues.py" in line for line in child.stack[:4])
            if child.stack and not idle:
                channel = f", kernel wait channel {child.wait_channel}" if child.wait_channel else ""
                seen = f"worker {child.pid} is in {child.stack[0]}, state {child.state}{channel}"
                evidence += (Evidence(rank, "child process", seen),)
        said = f"Rank {rank} waits for the next batch, and its workers do not deliver it."
        return Match(DATALOADER, said, evidence)
    return None


def blocked_io(case: Case) -> Match | None:
    """The main thread sits in a system call on a file, a pipe or a connection: of several ranks, the surest."""
    found = [h for rank, view in looked_at(case) if (h := _blocked_io_of(case, rank, view)) is not None]
    return min(found, key=lambda match: match.signature.weight, default=None)


def _blocked_io_of(case: Case, rank: int, view: RankView) -> Match | None:
    if view.motion.state == "busy" or not view.capture.processes:
        return None
    lock = find_lock_file(view.frames)
    if lock is not None:
        # Its holder may be another rank, which is at work.
        held = LOCK_FILE if len(standing(case)) == len(case.blame.culprits) else LOCK_FILE_OF_A_BUSY_RANK
        said = f"Rank {rank}'s {view.who} waits for a lock file, which another process holds or has left behind."
        return Match(held, said, (*at_stack(case, rank, lock), *at_process(case, rank)))
    row = _io_row(view.capture.processes)
    if row is None:
        return None
    last = view.capture.processes[-1]
    if (last.blocked_on or "").startswith("pipe:") and not any(f.source for f in view.frames):
        # An unnamed pipe may be the standard input, and without its line a prompt cannot be distinguished from a read.
        row = row if row in {SOCKET_CHANNEL, SELECT} else PIPE_OR_PROMPT
    what = f" on {last.blocked_on}" if last.blocked_on else ""
    if _awaits_other_end(last):
        what = f" for {_other_end(last)}, at the other end of its connection"
    call = f"{last.syscall}()" if last.syscall else f"the kernel ({last.wait_channel})"
    said = f"Rank {rank}'s {view.who} is blocked in {call}{what}."
    return Match(row, said, (*at_process(case, rank), *at_stack(case, rank)))


def _io_row(samples: Sequence[ProcessSample]) -> Signature | None:
    """How a process sits in input or output, by its last two samples; None where it does not."""
    last = samples[-1]
    channel = last.wait_channel or ""
    if last.state == "D" and all(s.state == "D" for s in samples[-2:]):
        return UNINTERRUPTIBLE
    if last.state not in {"S", "D"} or len({s.wait_channel for s in samples[-2:]}) > 1:
        return None
    if all(s.syscall in SLEEPS and s.lock_owner is not None for s in samples[-2:]):
        return FILE_LOCK  # it polls whether another process's lock on a file it has open is gone
    on_socket = (last.blocked_on or "").startswith("socket:")
    if last.syscall in _SOCKET_CALLS or on_socket or _awaits_other_end(last):
        return SOCKET_CALL
    if last.syscall in _CALLS:
        return FILE_CALL
    if last.syscall in SELECTS:
        return SELECT  # for which of its descriptors is not read
    if last.syscall is None and _FILE_CHANNELS.search(channel):
        return FILE_CHANNEL
    if last.syscall is None and _SOCKET_CHANNELS.search(channel):
        return SOCKET_CHANNEL
    return None


def _awaits_other_end(sample: ProcessSample) -> bool:
    """Whether the main thread polls for a message, itself or through a library's thread that wakes it, of a known other end."""
    return sample.syscall in POLLS and bool(sample.other_ends or sample.elsewhere)


def _other_end(sample: ProcessSample) -> str:
    pids = sample.other_ends
    return f"process{'es' if len(pids) > 1 else ''} {', '.join(map(str, pids))}" if pids else sample.elsewhere


def gil_held(case: Case) -> Match | None:
    """One thread has the lock in every sample and does not move; the beat, which needs the lock, has stopped."""
    for rank, view in looked_at(case):
        stacks = view.capture.stacks
        holders = [next((t for t in s.threads if t.owns_gil), None) for s in stacks]
        held = [h for h in holders if h is not None]
        same = len(held) >= 2 and len(held) == len(stacks) and len({(h.os_thread_id, _place(h)) for h in held}) == 1
        age = view.capture.beat_age_s
        stale = age is not None and age > STALE_BEAT_S
        fresh = age is not None and not stale
        still = view.motion.cpu_share is not None and view.motion.state == "stuck"
        # A thread that merely computes owns the lock too, as far as one can see from outside.
        if fresh or not ((same and still) or (stale and held)):
            continue
        holder = held[-1]
        # Asleep in the kernel with the lock: no thread that merely computes looks like this.
        alone = GIL_HELD_ACTIVE if holder.active else GIL_HELD_ASLEEP
        row = (GIL_HELD if same else GIL_HELD_AT_TIMES) if stale else alone
        if holder.active and view.motion.state == "busy" and all(p.state == "R" for p in view.capture.processes[-2:]):
            row = GIL_HELD_COMPUTING  # it computes, in one call; that others starve follows from it
        evidence: tuple[Evidence, ...] = (
            Evidence(
                rank,
                "stack",
                f"thread {holder.label} owns the GIL in {len(held)} of {len(stacks)} samples",
            ),
        )
        evidence += at_stack(case, rank, holder.frames[0] if holder.frames else None)
        if stale:
            evidence += (
                Evidence(rank, "beat", f"the probe's thread, which needs the lock, has been silent for {age:.1f} s"),
            )
        said = f"Rank {rank} is in native code that keeps the interpreter's lock; no other thread of it can run."
        chain = follow(steady_waits(view.capture), holder.os_thread_id)
        if chain is not None:
            said += f" Thread {holder.label} {explain(view, chain)}"
            evidence += at_mutexes(view, chain.waits)
        evidence += at_process(case, rank)
        return Match(row, said, evidence)
    return None


def _place(thread: ThreadStack) -> tuple[tuple[str, int], ...]:
    return tuple((f.file, f.line) for f in thread.frames)
