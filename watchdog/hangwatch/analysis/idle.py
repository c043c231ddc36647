"""Ranks that await work from outside while their group awaits their next command: an engine without requests. Pure.

Worker 0 of such an engine reads a queue, a pipe or a socket at the head of an endless loop, and passes on what it has
read; the others wait in that broadcast. This may last for hours, and is no hang. A rank that reads in the middle of its
step looks alike, but the others do not wait for it in this way: they are in another operation, in a loop over data, or
not in what this rank sends. Worker 0 may be a service under asyncio, whose event loop listens for requests.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import Literal

from hangwatch.analysis.places import diverging_frames, find_event_loop, is_interpreter, user_frame, user_frames
from hangwatch.analysis.ranks.views import RankView, root_of
from hangwatch.analysis.situation import Situation
from hangwatch.model.processes import POLLS, SELECTS
from hangwatch.model.stacks import Block, Frame

#: ``idle``: all that can be seen says so. ``likely``: the same, but for where the loop is, or who is at the other end.
Idleness = Literal["idle", "likely"]

#: What one member sends and all others receive.
_FROM_ONE = frozenset({"broadcast", "scatter", "recv"})
_READS = frozenset({"read", "recvfrom", "recvmsg", "recv", "accept", "accept4"})
#: Where the standard library, and ZeroMQ's binding, read what another process has put.
_QUEUES = ("multiprocessing/connection.py", "multiprocessing/queues.py", "zmq/")
_THREAD_QUEUE = "/queue.py"
_SERVES = ("selectors.py", "socketserver.py", "asyncio/", "multiprocessing/connection.py", "socket.py")
_ENDLESS = re.compile(r"while\s*\(?\s*(?:True|1)\s*\)?\s*:|while\s+not\b.*:")


def find_idleness(case: Situation) -> Idleness | None:
    """Return how sure it is that all that any rank waits for is work from outside; None if some of it is not."""
    blame = case.blame
    if blame.shape != "root" or blame.proof is not None or not blame.culprits or not blame.waiting:
        return None
    roots, followers = frozenset(blame.culprits), frozenset(blame.waiting) - frozenset(blame.culprits)
    if any(r not in case.views for r in roots | followers):
        return None
    if any(_source(case.views[r]) not in roots | followers - {r} for r in followers):
        return None
    found: list[Idleness] = []
    for rank in blame.culprits:
        work = _awaits_work(case, case.views[rank])
        own_followers = [case.views[r] for r in followers if _source(case.views[r]) == rank]
        if work is None or not own_followers or not all(_in_while(view) for view in (case.views[rank], *own_followers)):
            return None
        at_head = all(_at_one_head(case.views[rank], view) for view in own_followers)
        found.append("idle" if work == "idle" and at_head else "likely")
    return "idle" if all(one == "idle" for one in found) else "likely"


def _source(view: RankView) -> int | None:
    """Return the rank that sends what this one receives; None if it is in no such operation or its stack does not tell."""
    front, wait = view.frontier, view.wait
    op = front.op if front is not None else wait.op if wait is not None else ""
    if op not in _FROM_ONE or (wait is not None and wait.outside):
        return None
    if front is not None and front.p2p:
        return front.peer
    return root_of(view)


def _awaits_work(case: Situation, view: RankView) -> Idleness | None:
    """Return how sure it is that a rank with nothing in flight reads work that others put there; None if it does not."""
    samples = view.capture.processes[-2:]
    own = user_frame(view.frames)
    if view.frontier is not None or view.wait is not None or view.motion.state != "stuck" or own is None:
        return None
    above = view.frames[: view.frames.index(own)]
    queued = any(part in f.file for f in above for part in _QUEUES)
    if not samples or not all(is_interpreter(f) or "zmq/" in f.file for f in above):
        return None  # a library reads for its own purpose: from the workers of a DataLoader, a download
    calls = {s.syscall for s in samples}
    if any(f.file.endswith(_THREAD_QUEUE) for f in above):
        serves = any(t.frames and any(s in t.frames[0].file for s in _SERVES) for t in view.side_threads)
        return "idle" if serves else "likely"
    if not calls <= _READS | POLLS | SELECTS:
        return None
    return _other_end(case, view, queued=queued)


def _other_end(case: Situation, view: RankView, *, queued: bool) -> Idleness | None:
    """Return how sure it is that the other end is a living process of no rank, or a client that may come; None if neither."""
    last = view.capture.processes[-1]
    on = last.blocked_on or ""
    if last.writers:
        # The process that started the ranks may be captured with them, but is in no group.
        members = (r.identity.pid for r in case.capture.ranks if not r.identity.worldless)
        ours = {c.pid for c in last.children} | set(members)
        return None if last.writers[0] in ours else "idle"
    if on.startswith("pipe:["):
        return None  # no process seen has the other end: nothing will come any more
    if " listening on port " in on or on == "anon_inode:[eventfd]":
        return "idle"
    if on.startswith("socket:["):
        return "idle" if queued and on.endswith("]") else "likely"
    return None


def _in_while(view: RankView) -> bool:
    """True if the program's innermost loop around a rank is a ``while`` or an event loop."""
    if find_event_loop(view.frames) is not None:
        return True
    return next((f.loops[-1].kind == "while" for f in user_frames(view.frames) if f.loops), False)


def _at_one_head(root: RankView, follower: RankView) -> bool:
    """True if both are at the head of the same endless loop, the root at or before the line of the follower.

    Under an event loop the root's next command is what it is sent, and its code has nothing in common with the
    follower's: then the follower's loop alone decides.
    """
    if find_event_loop(root.frames) is not None:
        loops = (f for f in user_frames(follower.frames) if f.loops)
        return any(_endless(f) is not None for f in islice(loops, 1))
    here, there = diverging_frames(root.frames, follower.frames)
    if here is None or there is None or (here.file, here.function) != (there.file, there.function):
        return False
    loop = _endless(here)
    return loop is not None and loop == _endless(there) and here.line <= there.line


def _endless(frame: Frame) -> Block | None:
    """Return the innermost loop around a line if it is a ``while`` that ends only from within, else None."""
    last = frame.loops[-1] if frame.loops else None
    return last if last is not None and last.kind == "while" and _ENDLESS.match(last.text) else None
