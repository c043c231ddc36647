"""A rank that has nothing to do: its main thread is where its program takes the next call, command or task. Pure.

Such a rank is blocked in a read, and nothing is wrong with what it reads from: it was not called. By its stack it is in one of
the places of ``awaiting.py``, and its program's own loop has it read its command at the head.
"""

from __future__ import annotations

from itertools import pairwise

from hangwatch.analysis.places import bare
from hangwatch.analysis.ranks.motion import BUSY_CPU_SHARE, MIN_INTERVAL_NS
from hangwatch.analysis.ranks.views import RankView
from hangwatch.analysis.stacks.awaiting import Awaiting, read_awaiting
from hangwatch.analysis.stacks.remote_calls import awaits_ray
from hangwatch.model.processes import ProcessSample


def find_awaiting(view: RankView) -> Awaiting | None:
    """Where a rank with nothing in flight awaits what to do; None where it does not, or does so in the middle of a step."""
    if view.wait is not None or view.frontier is not None or not view.capture.processes:
        return None
    last = view.capture.processes[-1]
    found = read_awaiting(view.frames, view.side_threads, last)
    if found is None or found.place != "commands" or found.loop is None:
        return found
    return found if not _of_its_own(last) and _begins_with_it(view, found, found.loop) else None


def awaits_from_afar(view: RankView) -> bool:
    """Whether a rank awaits an answer of a process that is not seen: of Ray's, or over a connection to another machine."""
    if view.wait is not None or not view.capture.processes:
        return False
    return awaits_ray(view.frames) or bool(view.capture.processes[-1].elsewhere)


def is_caller_at_work(view: RankView) -> bool:
    """Whether who started a rank that awaits its call has used CPU time of late: the call may be on its way."""
    seen = [(s.at_ns, s.caller) for s in view.capture.processes if s.caller is not None]
    pairs = [
        (later.cpu_s - earlier.cpu_s, at_ns - before_ns)
        for (before_ns, earlier), (at_ns, later) in pairwise(seen)
        if earlier.pid == later.pid and at_ns - before_ns >= MIN_INTERVAL_NS
    ]
    return any(cpu_s >= BUSY_CPU_SHARE * (ns / 1e9) for cpu_s, ns in pairs[-2:])


def has_gone_on(awaiting: Awaiting, other: RankView) -> bool:
    """Whether another rank is further on in the very loop, or in a call of the very server, in which this one awaits its own."""
    mine = awaiting.frame
    here = [f for f in other.frames if (f.file, bare(f)) == (mine.file, bare(mine))]
    if awaiting.loop is None:
        return bool(here) and other.wait is not None
    return any(f.line > mine.line and any(b.line == awaiting.loop for b in f.blocks) for f in here)


def _begins_with_it(view: RankView, awaiting: Awaiting, loop: int) -> bool:
    """Whether an iteration of the loop begins with this read: no collective of this rank's comes before it in there."""
    frame = awaiting.frame
    if frame.line == loop:
        return True
    recorded = view.capture.flight.operations if view.capture.flight is not None else ()
    sites = [f.line for o in recorded for f in o.frames or () if (f.file, bare(f)) == (frame.file, bare(frame))]
    inside = [line for line in sites if line > loop]
    return all(line > frame.line for line in inside) if inside else awaiting.at_head


def _of_its_own(last: ProcessSample) -> bool:
    """Whether a child of the rank's own is, or may be, at the other end: what it delivers is no call."""
    if last.writers:
        return last.writers[0] in {c.pid for c in last.children}
    if (last.blocked_on or "").startswith("pipe:["):
        return True  # nobody seen has the other end
    return any(c.stack and "resource_tracker" not in c.stack[0] for c in last.children)
