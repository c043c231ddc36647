"""The processes around a rank that it may wait for: children it has started, its caller, the holder of its lock.

May import the model, ``analysis.stacks``, ``analysis.motion``, ``analysis.ranks`` and the sources. A child may be a
DataLoader worker, one of a pool, or anything that was forked. The caller is the nearest Python process above a rank
that waits for its next command.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

import msgspec

from hangwatch.analysis.motion.loops import is_between_items
from hangwatch.analysis.places import calls, user_frame, user_frames
from hangwatch.analysis.ranks.file_locks import find_lock_file
from hangwatch.analysis.ranks.threads import side_threads
from hangwatch.analysis.stacks.awaiting import read_awaiting
from hangwatch.analysis.stacks.waits import read_wait
from hangwatch.model.processes import SLEEPS, CallerProcess, ChildProcess, ProcessSample
from hangwatch.model.stacks import Frame, StackSample
from hangwatch.model.text import short_path
from hangwatch.sources.connections.lock_files import find_lock_holder
from hangwatch.sources.discovery.launchers import is_python_program, name_launcher
from hangwatch.sources.proc.blocking import held_by
from hangwatch.sources.proc.files import read_arguments, read_link, read_stat
from hangwatch.sources.proc.mutexes import find_mutex_waits
from hangwatch.sources.proc.samples import find_descendants
from hangwatch.sources.stacks.samples import read_paths, sample_stacks

#: A stack costs tens of milliseconds of the node's CPU time, and one worker's mostly tells what all of them do.
_CHILDREN_PER_RANK = 8
_CHILDREN_IN_ALL = 24
_FRAMES = 16
#: A Ray worker's driver is above its raylet; an engine's core is the parent of its workers.
_LEVELS = 4
_MOST_CALLERS = 8
_CALLER_FRAMES = 6
_TIMEOUT_S = 1.5
#: Process samples and last stacks, by the rank's pid.
_Seen = Mapping[int, tuple[ProcessSample, StackSample | None]]


async def add_child_stacks(seen: _Seen) -> dict[int, ProcessSample]:
    """Return the process samples (by the rank's pid) that gained stacks of children, as far as readable.

    Only ranks are considered whose own stack shows no wait for another rank: the others' workers idle. But if such a
    rank sleeps, it may poll for something that another rank's child makes: then all ranks are, its own children
    first.
    """
    apart = {
        pid
        for pid, (_, stack) in seen.items()
        if stack is not None and stack.main is not None and read_wait(stack.main.frames) is None
    }
    asleep = any(seen[pid][0].syscall in SLEEPS for pid in apart)
    wanted = {
        pid: [c.pid for c in seen[pid][0].children if c.state != "Z"][:_CHILDREN_PER_RANK]
        for pid in sorted(seen, key=lambda pid: pid not in apart)
        if seen[pid][0].children and (asleep or pid in apart)
    }
    asked = [child for children in wanted.values() for child in children][:_CHILDREN_IN_ALL]
    if not asked:
        return {}
    found = await sample_stacks(asked, timeout_s=_TIMEOUT_S)
    # A reader takes a while to start: meanwhile a child may end and its pid be reused.
    there = {child for pid in wanted for child in find_descendants(pid)}
    stacks = {pid: stack for pid, stack in found.items() if isinstance(stack, StackSample) and pid in there}
    return {
        pid: _with_stacks(seen[pid][0], stacks)
        for pid, children in wanted.items()
        if not stacks.keys().isdisjoint(children)
    }


def _with_stacks(process: ProcessSample, stacks: Mapping[int, StackSample]) -> ProcessSample:
    children = (_with_stack(c, stacks[c.pid]) if c.pid in stacks else c for c in process.children)
    return msgspec.structs.replace(process, children=tuple(children))


def _with_stack(child: ChildProcess, stack: StackSample) -> ChildProcess:
    main = stack.main_frames[:_FRAMES]
    others = (t.frames[0] for t in stack.threads if not t.is_main)
    return msgspec.structs.replace(
        child,
        stack=tuple(_line(f) for f in main),
        own_line=_own_line(stack.main_frames),
        side_threads=tuple(_line(f) for f in others)[:_FRAMES],
        positions=tuple(p for f in main for p in f.positions),
        mutexes=find_mutex_waits(child.pid),
        sleep_left_s=_left_s(child, main),
        between_items=is_between_items(main),
    )


def _own_line(frames: Sequence[Frame]) -> str | None:
    """Return the user's deepest line that a child runs; None if there is none.

    What a forked child has of its parent's stack is not its own: it starts in ``BaseProcess._bootstrap`` of
    multiprocessing (CPython 3.10 to 3.14).
    """
    start = calls(frames, "/process.py", "_bootstrap")
    own = user_frame(frames[: frames.index(start)] if start is not None else frames)
    return _line(own) if own is not None else None


def _left_s(child: ChildProcess, main: Sequence[Frame]) -> float | None:
    """Return in how many seconds a child's sleep ends; in a loop that counts its sleeps, the last of them.

    None if not known.
    """
    counted = [f.ends_in_s - f.early_s for f in main if f.ends_in_s is not None and f.early_s]
    return child.sleep_left_s + min(counted) if child.sleep_left_s is not None and counted else child.sleep_left_s


async def add_callers(seen: _Seen) -> dict[int, ProcessSample]:
    """Return the process samples (by the rank's pid) of ranks that await a command, with the process that started them."""
    callers = {
        pid: caller
        for pid, (process, stack) in seen.items()
        if stack is not None and _awaits_call(process, stack) and (caller := find_caller(pid)) is not None
    }
    asked = list(dict.fromkeys(caller.pid for caller in callers.values()))[:_MOST_CALLERS]
    stacks = await sample_stacks(asked, timeout_s=_TIMEOUT_S, with_locals=False) if asked else {}
    return {
        pid: msgspec.structs.replace(seen[pid][0], caller=_with_calls(caller, stacks.get(caller.pid)))
        for pid, caller in callers.items()
    }


async def add_lock_holders(seen: _Seen) -> dict[int, ProcessSample]:
    """Return the process samples (by the rank's pid) of ranks that wait for a lock file, with who has that."""
    waiting = [pid for pid, (_, stack) in seen.items() if stack is not None and find_lock_file(stack.main_frames)]
    named = await asyncio.gather(*(read_paths(pid, timeout_s=_TIMEOUT_S) for pid in waiting))
    holders = {paths: await asyncio.to_thread(find_lock_holder, paths, waiting, seen.keys()) for paths in set(named)}
    found = {}
    for pid, paths in zip(waiting, named, strict=True):
        held = holders[paths]
        if held is not None and read_stat(held[1]) is not None:
            found[pid] = msgspec.structs.replace(seen[pid][0], blocked_on=held_by(*held))
    return found


def find_caller(pid: int) -> CallerProcess | None:
    """Return the nearest Python process above; None if there is none.

    None also if a launcher or the agent itself comes first.
    """
    stat = read_stat(pid)
    for _ in range(_LEVELS):
        above = read_stat(stat.parent) if stat is not None and stat.parent > 1 else None
        if above is None or above.pid == os.getpid():
            return None
        if name_launcher(read_arguments(above.pid)) is not None:
            return None
        if runs_python(above.pid):
            return CallerProcess(above.pid, above.name, above.cpu_s)
        stat = above
    return None


def runs_python(pid: int) -> bool:
    """True if the program of a process is a Python interpreter."""
    return is_python_program(PurePosixPath(read_link(f"/proc/{pid}/exe") or "").name)


def _awaits_call(process: ProcessSample, stack: StackSample) -> bool:
    main = stack.main
    if main is None or read_wait(main.frames) is not None:
        return False
    return read_awaiting(main.frames, side_threads(stack.threads), process) is not None


def _with_calls(caller: CallerProcess, stack: object) -> CallerProcess:
    called = stack.main_frames if isinstance(stack, StackSample) else ()
    frames = user_frames(called) or called
    return msgspec.structs.replace(caller, stack=tuple(_line(f) for f in frames[:_CALLER_FRAMES]))


def _line(frame: Frame) -> str:
    return f"{frame.function} ({short_path(frame.file)}:{frame.line})" + (f": {frame.source}" if frame.source else "")
