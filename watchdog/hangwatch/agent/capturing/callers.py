"""Who is to call a rank that awaits what to do: the nearest Python process above it, and where that one is.

May import the model, ``analysis`` and the sources.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import PurePosixPath

import msgspec

from hangwatch.analysis.places import user_frames
from hangwatch.analysis.ranks.threads import side_threads
from hangwatch.analysis.stacks.awaiting import read_awaiting
from hangwatch.analysis.stacks.waits import read_wait
from hangwatch.model.processes import CallerProcess, ProcessSample
from hangwatch.model.stacks import Frame, StackSample
from hangwatch.model.text import short_path
from hangwatch.sources.discovery.launchers import is_python_program, name_launcher
from hangwatch.sources.proc.files import read_arguments, read_link, read_stat
from hangwatch.sources.stacks.samples import sample_stacks

#: A Ray worker's driver is above its raylet; an engine's core is the parent of its workers.
_LEVELS = 4
_MOST_CALLERS = 8
_FRAMES = 6
_TIMEOUT_S = 1.5


async def add_callers(seen: Mapping[int, tuple[ProcessSample, StackSample | None]]) -> dict[int, ProcessSample]:
    """The process samples (by the rank's pid) of ranks that await what to do, with who started them."""
    callers = {
        pid: caller
        for pid, (process, stack) in seen.items()
        if stack is not None and _awaits(process, stack) and (caller := find_caller(pid)) is not None
    }
    asked = list(dict.fromkeys(caller.pid for caller in callers.values()))[:_MOST_CALLERS]
    stacks = await sample_stacks(asked, timeout_s=_TIMEOUT_S, with_locals=False) if asked else {}
    return {
        pid: msgspec.structs.replace(seen[pid][0], caller=_with_stack(caller, stacks.get(caller.pid)))
        for pid, caller in callers.items()
    }


def find_caller(pid: int) -> CallerProcess | None:
    """The nearest Python process above; None where a launcher comes first, or ourselves, or nothing."""
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
    """Whether the program of a process is a Python interpreter."""
    return is_python_program(PurePosixPath(read_link(f"/proc/{pid}/exe") or "").name)


def _awaits(process: ProcessSample, stack: StackSample) -> bool:
    main = stack.main
    if main is None or read_wait(main.frames) is not None:
        return False
    return read_awaiting(main.frames, side_threads(stack.threads), process) is not None


def _with_stack(caller: CallerProcess, stack: object) -> CallerProcess:
    main = stack.main if isinstance(stack, StackSample) else None
    frames = user_frames(main.frames) or main.frames if main is not None else ()
    return msgspec.structs.replace(caller, stack=tuple(_line(f) for f in frames[:_FRAMES]))


def _line(frame: Frame) -> str:
    return f"{frame.function} ({short_path(frame.file)}:{frame.line})" + (f": {frame.source}" if frame.source else "")
