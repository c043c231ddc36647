"""The stacks of the children a rank may be waiting for: DataLoader workers, pools, whatever it forked.

May import the model, ``analysis.stacks``, ``sources.proc`` and ``sources.stacks``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from hangwatch.analysis.stacks.loops import is_between_items
from hangwatch.analysis.stacks.waits import read_wait
from hangwatch.model.processes import SLEEPS, ChildProcess, ProcessSample
from hangwatch.model.stacks import Frame, StackSample
from hangwatch.model.text import short_path
from hangwatch.sources.proc.mutexes import find_mutex_waits
from hangwatch.sources.proc.samples import find_descendants
from hangwatch.sources.stacks.samples import sample_stacks

#: A stack costs tens of milliseconds of the node's CPU time, and one worker's mostly tells what all of them do.
_CHILDREN_PER_RANK = 8
_CHILDREN_IN_ALL = 24
_FRAMES = 16
_TIMEOUT_S = 1.5


async def add_child_stacks(seen: Mapping[int, tuple[ProcessSample, StackSample | None]]) -> dict[int, ProcessSample]:
    """The process samples (by the rank's pid) that have gained stacks of children, as far as these can be read.

    Only of ranks that wait for no other rank by their own stack: the others' workers idle. Where one of those sleeps, it may look
    for what the child of another rank makes: then of all, its own first.
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
    # A reader takes a while to start. Of a child that has ended meanwhile, another process may have the pid.
    there = {child for pid in wanted for child in find_descendants(pid)}
    stacks = {pid: stack for pid, stack in found.items() if isinstance(stack, StackSample) and pid in there}
    return {
        pid: _with_stacks(seen[pid][0], stacks)
        for pid, children in wanted.items()
        if not stacks.keys().isdisjoint(children)
    }


def _line(frame: Frame) -> str:
    return f"{frame.function} ({short_path(frame.file)}:{frame.line})" + (f": {frame.source}" if frame.source else "")


def _with_stacks(process: ProcessSample, stacks: Mapping[int, StackSample]) -> ProcessSample:
    children = (_with_stack(c, stacks[c.pid]) if c.pid in stacks else c for c in process.children)
    return msgspec.structs.replace(process, children=tuple(children))


def _with_stack(child: ChildProcess, stack: StackSample) -> ChildProcess:
    main = stack.main.frames[:_FRAMES] if stack.main is not None else ()
    others = (t.frames[0] for t in stack.threads if not t.is_main)
    return msgspec.structs.replace(
        child,
        stack=tuple(_line(f) for f in main),
        side_threads=tuple(_line(f) for f in others)[:_FRAMES],
        positions=tuple(p for f in main for p in f.positions),
        mutexes=find_mutex_waits(child.pid),
        sleep_left_s=_left_s(child, main),
        between_items=is_between_items(main),
    )


def _left_s(child: ChildProcess, main: Sequence[Frame]) -> float | None:
    """In how many seconds its sleep ends, and where a loop counts its sleeps the last of them."""
    counted = [f.ends_in_s - f.early_s for f in main if f.ends_in_s is not None and f.early_s]
    return child.sleep_left_s + min(counted) if child.sleep_left_s is not None and counted else child.sleep_left_s
