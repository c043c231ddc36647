"""A rank that has nothing to do: its main thread is where its program takes the next call, command or task. Pure.

Such a rank is blocked in a read, and nothing is wrong with what it reads from: it was not called. Its stack shows one of the
places of ``awaiting.py``. If that is a loop of its program, the loop reads the command first.
"""

from __future__ import annotations

from hangwatch.analysis.places import bare
from hangwatch.analysis.ranks.views import RankView
from hangwatch.analysis.stacks.awaiting import Awaiting, read_awaiting
from hangwatch.analysis.stacks.remote_calls import awaits_ray
from hangwatch.model.processes import ProcessSample


def find_awaiting(view: RankView) -> Awaiting | None:
    """Return where a rank with nothing in flight awaits what to do; None if it does not, or does so within a step."""
    if view.wait is not None or view.frontier is not None or not view.capture.processes:
        return None
    last = view.capture.processes[-1]
    found = read_awaiting(view.frames, view.side_threads, last)
    if found is None or found.place != "commands" or found.loop is None:
        return found
    return found if not _may_be_from_own_child(last) and _reads_first(view, found, found.loop) else None


def awaits_from_afar(view: RankView) -> bool:
    """True if a rank awaits an answer of a process that is not seen: of Ray's, or over a connection to another machine."""
    if view.wait is not None or not view.capture.processes:
        return False
    return awaits_ray(view.frames) or bool(view.capture.processes[-1].elsewhere)


def has_gone_on(awaiting: Awaiting, other: RankView) -> bool:
    """True if another rank is further on in the loop, or in a call of the server, where this rank awaits its own."""
    own = awaiting.frame
    here = [f for f in other.frames if (f.file, bare(f)) == (own.file, bare(own))]
    if awaiting.loop is None:
        return bool(here) and other.wait is not None
    return any(f.line > own.line and any(b.line == awaiting.loop for b in f.blocks) for f in here)


def _reads_first(view: RankView, awaiting: Awaiting, loop: int) -> bool:
    """True if an iteration of the loop begins with this read: no collective of this rank comes before it in there."""
    frame = awaiting.frame
    if frame.line == loop:
        return True
    recorded = view.capture.flight.operations if view.capture.flight is not None else ()
    sites = [f.line for o in recorded for f in o.frames or () if (f.file, bare(f)) == (frame.file, bare(frame))]
    inside = [line for line in sites if line > loop]
    return all(line > frame.line for line in inside) if inside else awaiting.at_head


def _may_be_from_own_child(last: ProcessSample) -> bool:
    """True if a child of the rank is, or may be, at the other end: what it delivers is no call."""
    if last.writers:
        return last.writers[0] in {c.pid for c in last.children}
    if (last.blocked_on or "").startswith("pipe:["):
        return True  # nobody seen has the other end
    return any(c.stack and "resource_tracker" not in c.stack[0] for c in last.children)
