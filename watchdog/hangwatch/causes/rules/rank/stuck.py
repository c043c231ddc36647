"""A rank that is there and does not move: at a prompt, behind a DataLoader or a file, with the interpreter's lock."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hangwatch.analysis.case import Case
from hangwatch.analysis.places import calls, user_frame, where
from hangwatch.analysis.ranks.file_locks import FILE_CALLS, find_lock_file, is_terminal
from hangwatch.analysis.ranks.mutexes import follow, steady_waits
from hangwatch.analysis.ranks.views import RankView, number_by_process
from hangwatch.analysis.stacks.prompts import find_debugger, find_input
from hangwatch.causes.evidence import at_process, at_stack, at_tasks, present_culprits, stuck_culprits
from hangwatch.causes.match import LEVELS, Level, Match
from hangwatch.causes.rules.rank.children import children_of
from hangwatch.causes.rules.rank.mutexes import at_mutexes, explain
from hangwatch.causes.rules.rank.threads import awaited_connection
from hangwatch.model.incident import Evidence
from hangwatch.model.processes import POLLS, SELECTS, SLEEPS, ProcessSample
from hangwatch.model.stacks import PROBE_THREAD, ThreadStack

#: Kernel wait channels of a file system, a pipe or a device; those of sockets are below.
_FILE_CHANNELS = re.compile(
    r"pipe_read|pipe_write|pipe_wait|fifo|nfs|rpc_|fuse|request_wait|lustre|ceph|cifs|smb|gpfs|folio|io_schedule|wait_on_page|jbd2|xfs_|ext4_|flock|fcntl_setlk|posix_lock"
)
_SOCKET_CHANNELS = re.compile(r"sk_wait|wait_woken|inet_|unix_stream|tcp_")
#: An idle worker waits for its next task in it.
_QUEUES = "multiprocessing/queues.py"
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
_SOCKET_CALLS = frozenset({"recvfrom", "recvmsg", "recv", "sendto", "sendmsg", "connect", "accept", "accept4"})
#: A beat is written every half second; a load on the machine does not delay it for this long.
STALE_BEAT_S = 2.0


def is_outside(channel: str) -> bool:
    """True if a kernel wait channel is that of a file, a pipe or a connection."""
    return bool(_FILE_CHANNELS.search(channel) or _SOCKET_CHANNELS.search(channel))


def debugger(case: Case) -> Match | None:
    """Return a match for debugger frames above the user's code, or a line that asks for input and waits in a read."""
    for rank, view in present_culprits(case):
        frame = find_debugger(view.frames)
        if frame is not None:
            said = f"Rank {rank}'s {view.who} is in a debugger, called from the user's line."
            return Match("debugger", "certain", said, (*at_stack(case, rank, frame), *at_process(case, rank)))
        asking = find_input(view.frames)
        last = view.sample
        if asking is not None and view.motion.state != "busy":
            reading = last is not None and last.syscall in {"read", "readv", "select", "pselect6", "poll", "ppoll"}
            said = f"Rank {rank} asks for input and waits for an answer."
            return Match(
                "debugger",
                "certain" if reading else "strong",
                said,
                (*at_stack(case, rank, asking), *at_process(case, rank)),
            )
        if last is not None and last.syscall in {"read", "readv"} and is_terminal(last.blocked_on or ""):
            said = f"Rank {rank} reads from its terminal and waits for somebody to type."
            return Match("debugger", "certain", said, (*at_process(case, rank), *at_stack(case, rank)))
    return None


def dataloader(case: Case) -> Match | None:
    """Return a match if the main thread is in the DataLoader's wait for its workers; a worker's stack says why."""
    for rank, view in present_culprits(case):
        frame = calls(view.frames, "torch/utils/data/dataloader.py", "_try_get_data", "_get_data", "_shutdown_workers")
        if frame is None:
            continue
        evidence = (*at_stack(case, rank, frame), *at_process(case, rank))
        busy = [c for c in children_of(view) if c.stack and not any(_QUEUES in line for line in c.stack[:4])]
        for child in busy:
            channel = f", kernel wait channel {child.wait_channel}" if child.wait_channel else ""
            seen = f"worker {child.pid} is in {child.stack[0]}, state {child.state}{channel}"
            evidence += (Evidence(rank, "child process", seen),)
        at_line = next((c for c in busy if c.own_line is not None), None)
        stays = f"worker {at_line.pid} stays in {at_line.own_line}" if at_line else "its workers do not deliver one"
        said = f"Rank {rank} waits for the next batch, but {stays}."
        return Match("dataloader-stall", "certain", said, evidence)
    return None


def blocked_io(case: Case) -> Match | None:
    """Return a match if the main thread is in a system call on a file, a pipe or a connection: of several ranks the surest.

    Or if the event loop that it waits for, in a thread beside it, waits for a connection.
    """
    found = [one for rank, view in present_culprits(case) if (one := _blocked_io_of(case, rank, view)) is not None]
    return min(found, key=lambda match: LEVELS.index(match.level), default=None)


def _blocked_io_of(case: Case, rank: int, view: RankView) -> Match | None:
    if view.motion.state == "busy" or not view.capture.processes:
        return None
    keeper = _waiting_holder(case, rank, view)
    lock = find_lock_file(view.frames)
    if keeper is not None:
        said = (
            f"Rank {rank}'s {view.who} waits for a lock that rank {keeper} has ({view.capture.processes[-1].blocked_on}), "
            f"and rank {keeper} waits for rank {rank}: neither can go on."
        )
        evidence = (*at_stack(case, rank, lock), *at_process(case, rank), *at_stack(case, keeper))
        return Match("blocked-io", "certain", said, evidence)
    if lock is not None:
        # Its holder may be another rank, which is at work.
        level_of_lock: Level = "certain" if len(stuck_culprits(case)) == len(case.blame.culprits) else "likely"
        last = view.sample
        holder = f" ({last.blocked_on})" if last is not None and last.lock_owner is not None else ""
        said = (
            f"Rank {rank}'s {view.who} waits for a lock file that another process holds{holder or ' or left behind'}."
        )
        return Match("blocked-io", level_of_lock, said, (*at_stack(case, rank, lock), *at_process(case, rank)))
    if (awaited := awaited_connection(view)) is not None:
        thread, connection = awaited
        # Without the probe, it is not known whether a coroutine waits there.
        awaits: Level = "strong" if view.capture.tasks else "likely"
        said = (
            f"Rank {rank}'s {view.who} waits for its thread {thread.label}, whose event loop waits for "
            f"an answer on {connection}."
        )
        loop = Evidence(rank, "stack", f"thread {thread.label} is in {where(thread.frames[0])}")
        evidence = (*at_tasks(case, rank), loop, *at_stack(case, rank), *at_process(case, rank))
        return Match("blocked-io", awaits, said, evidence)
    level = _io_level(view.capture.processes)
    if level is None:
        return None
    last = view.capture.processes[-1]
    if (last.blocked_on or "").startswith("pipe:") and not any(f.source for f in view.frames):
        # An unnamed pipe may be the standard input, and without its line a prompt cannot be distinguished from a read.
        level = "strong" if level == "certain" else level
    what = f" on {last.blocked_on}" if last.blocked_on else ""
    if _awaits_other_end(last):
        what = f" waiting for {_other_end(last)} at the other end of its connection"
    call = f"{last.syscall}()" if last.syscall else f"the kernel ({last.wait_channel})"
    said = f"Rank {rank}'s {view.who} is blocked in {call}{what}."
    return Match("blocked-io", level, said, (*at_process(case, rank), *at_stack(case, rank)))


def _waiting_holder(case: Case, rank: int, view: RankView) -> int | None:
    """Return the rank that has the lock on a file which this one waits for, if it waits for this one; else None."""
    owner = view.sample.lock_owner if view.sample is not None else None
    if owner is None:
        return None
    holder = number_by_process(case.views).get((view.capture.identity.node, owner), rank)
    waits = any(holder in edge.waiters and rank in edge.awaited for edge in case.graph.edges)
    return holder if waits and holder != rank else None


def _io_level(samples: Sequence[ProcessSample]) -> Level | None:
    """Return how surely a process is blocked in input or output, by its last two samples; None if it is not."""
    last = samples[-1]
    channel = last.wait_channel or ""
    if last.state == "D" and all(s.state == "D" for s in samples[-2:]):
        return "strong"
    if last.state not in {"S", "D"} or len({s.wait_channel for s in samples[-2:]}) > 1:
        return None
    if all(s.syscall in SLEEPS and s.lock_owner is not None for s in samples[-2:]):
        return "strong"  # it polls whether another process's lock on a file it has open is gone
    on_socket = (last.blocked_on or "").startswith("socket:")
    if last.syscall in _SOCKET_CALLS or on_socket or _awaits_other_end(last):
        return "strong"
    if last.syscall in _CALLS:
        return "certain"
    if last.syscall in SELECTS:
        return "possible"  # it is not read which of its descriptors it waits for
    if last.syscall is None and _FILE_CHANNELS.search(channel):
        return "strong"
    if last.syscall is None and _SOCKET_CHANNELS.search(channel):
        return "likely"
    return None


def _awaits_other_end(sample: ProcessSample) -> bool:
    """True if the main thread polls for a message of a known other end, itself or through a library's thread that wakes it."""
    return sample.syscall in POLLS and bool(sample.other_ends or sample.elsewhere)


def _other_end(sample: ProcessSample) -> str:
    pids = sample.other_ends
    return f"process{'es' if len(pids) > 1 else ''} {', '.join(map(str, pids))}" if pids else sample.elsewhere


def gil_held(case: Case) -> Match | None:
    """Return a match if one thread has the GIL in every sample and does not move, or the beat has stopped.

    The probe's thread needs the GIL for each beat.
    """
    for rank, view in present_culprits(case):
        stacks = view.capture.stacks
        # What the probe's own thread waits for in torch's recorder, the rank waits for itself.
        holders = [next((t for t in s.threads if t.owns_gil and t.name != PROBE_THREAD), None) for s in stacks]
        held = [h for h in holders if h is not None]
        same = len(held) >= 2 and len(held) == len(stacks) and len({(h.os_thread_id, _place(h)) for h in held}) == 1
        age = view.capture.beat_age_s
        stale = age is not None and age > STALE_BEAT_S
        fresh = age is not None and not stale
        still = view.motion.cpu_share is not None and view.motion.state == "stuck"
        # A thread that merely computes owns the lock too, as far as one can see from outside. A main thread that gets
        # to other lines has had the lock in between.
        if fresh or view.motion.frames_changed or not ((same and still) or (stale and held)):
            continue
        holder = held[-1]
        # Asleep in the kernel with the lock: no thread that merely computes looks like this.
        without_beat: Level = "likely" if holder.active else "strong"
        level: Level = ("certain" if same else "likely") if stale else without_beat
        computes = view.motion.state == "busy" and all(p.state == "R" for p in view.capture.processes[-2:])
        if holder.active and computes:
            level = "strong" if same and stale else "likely"  # it may be many calls, which let others run too rarely
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
                Evidence(
                    rank,
                    "heartbeat",
                    f"the probe's thread, which needs the GIL, has sent no heartbeat for {age:.1f} s",
                ),
            )
        own = user_frame(holder.frames)
        called = f", called by `{own.source}`" if own is not None and own.source else ""
        said = (
            f"Rank {rank} {'computes' if computes else 'is'} in native code that holds the GIL{called}; "
            "no other Python thread of the process can run."
        )
        chain = follow(steady_waits(view.capture), holder.os_thread_id)
        if chain is not None:
            said += f" Thread {holder.label} {explain(view, chain)}"
            evidence += at_mutexes(view, chain.waits)
        evidence += at_process(case, rank)
        return Match("gil-held", level, said, evidence)
    return None


def _place(thread: ThreadStack) -> tuple[tuple[str, int], ...]:
    return tuple((f.file, f.line) for f in thread.frames)
