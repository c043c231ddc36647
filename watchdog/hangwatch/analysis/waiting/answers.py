"""Which ranks wait for another process, outside every collective: for an answer, for work, for room in a queue. Pure.

Of a connection it is known who has the other end, and not what is expected of whom: two sides that both read may each await the
other. So such an edge carries no proof, and no circle is based on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hangwatch.analysis.places import called_by_user, calls, user_frames
from hangwatch.analysis.ranks.motion import children_work, wakes
from hangwatch.analysis.ranks.requests import find_awaiting
from hangwatch.analysis.ranks.threads import find_serving
from hangwatch.analysis.ranks.views import RankView
from hangwatch.analysis.stacks.prompts import asks_person
from hangwatch.analysis.stacks.remote_calls import names_awaited, runs_remote_call
from hangwatch.analysis.waiting.graph import Edge
from hangwatch.model.processes import SLEEPS

#: Where a process waits for those that it has started: what they do is theirs.
_CHILDREN_CALLS = frozenset({"wait4", "waitid"})
_CHILDREN_FILES = ("multiprocessing/popen_", "multiprocessing/spawn.py", "torch/distributed/elastic/")


def find_answers(views: Mapping[int, RankView]) -> dict[int, int]:
    """By rank: the process that it waits for, where that one was captured and is in the middle of something.

    Of several that may be meant, one that alone could be: the others wait themselves, for their children or for other ranks.
    Where nobody who lives could be, it is the process beside the job that has failed, if there is one alone.
    """
    departed = find_departed(views)
    numbers = {(v.capture.identity.node, v.capture.identity.pid): rank for rank, v in views.items()}
    found = {}
    for rank, view in views.items():
        last = view.sample
        if (callee := _find_callee(view, views)) is not None:
            found[rank] = callee
        if last is None or not (_asks(view) or (departed is not None and _reads_in_vain(view))):
            continue
        meant = [numbers.get((view.capture.identity.node, pid)) for pid in last.other_ends]
        if last.answering is not None:
            meant = [last.answering if last.answering in views else None]
        able = [
            n for n in meant if n is not None and n != rank and _may_answer(views[n]) and not _awaits(views[n], view)
        ]
        if len(meant) > 1:
            able = [n for n in able if views[n].wait is None and views[n].frontier is None]
        if None not in meant and len(able) == 1:
            found[rank] = able[0]
        elif None not in meant and not able and departed is not None:
            found[rank] = departed
    return found


def _find_callee(view: RankView, views: Mapping[int, RankView]) -> int | None:
    """The process that runs the function whose result is awaited: the only one in a function of that name.

    Where the line does not say its name, the only one in any function that another process has called.
    """
    names = names_awaited(view.frames) if view.wait is None else None
    if names is None:
        return None
    running = {rank: _running(other) for rank, other in views.items() if other is not view}
    able = [rank for rank, found in running.items() if (found & names if names else found)]
    return able[0] if len(able) == 1 else None


def _running(view: RankView) -> set[str]:
    """The functions that a process runs for others: in a thread beside the one that matters too, whatever that one does."""
    works = view.wait is None and view.frontier is None
    threads = [*([view.frames] if works else []), *(thread.frames for thread in view.side_threads)]
    return {name for frames in threads if (name := runs_remote_call(frames)) is not None}


def find_departed(views: Mapping[int, RankView]) -> int | None:
    """The process beside the job that has failed; None where there are several, or none."""
    found = [rank for rank, view in views.items() if view.gone and view.capture.identity.worldless]
    return found[0] if len(found) == 1 else None


def _reads_in_vain(view: RankView) -> bool:
    """Whether it is stuck in a read of what another process has to put there, be it its next command."""
    last = view.capture.processes[-1]
    queued = (last.blocked_on or "").startswith("pipe:[") and not last.writers
    blocked = queued or view.asks or _polls_shared_memory(view)
    return view.wait is None and view.motion.state == "stuck" and blocked


def _polls_shared_memory(view: RankView) -> bool:
    """Whether it sleeps in a loop of a function that has memory which another process writes to."""
    own = next(iter(user_frames(view.frames)), None)
    asleep = view.capture.processes[-1].syscall in SLEEPS
    loops = own is not None and any(b.kind == "while" for b in own.blocks)
    return asleep and loops and own is not None and "SharedMemory" in (own.locals or {}).values()


def _asks(view: RankView) -> bool:
    """Whether the rank's thread is blocked there for long, and it does not read its next command."""
    asks = view.asks and not asks_person(view.frames)
    return asks and view.motion.state == "stuck" and find_awaiting(view) is None


def _may_answer(view: RankView) -> bool:
    """Whether what a process does can be what the answer takes; one that awaits requests itself may never have had this one."""
    if view.motion.state == "stopped":
        return True
    polls = bool(view.frames) and view.frames[0].file.endswith("selectors.py")
    in_event_loop = polls and calls(view.frames[:2], "asyncio/base_events.py", "_run_once") is not None
    serves = not view.capture.identity.worldless or find_serving(view.taken) is not None
    works = serves and not in_event_loop and not waits_for_children(view)
    return bool(view.frames) and not view.gone and works and find_awaiting(view) is None


def waits_for_work(view: RankView, views: Mapping[int, RankView]) -> bool:
    """Whether a rank waits for the lock on a file, or at a connection, of a process beside the job that gets on.

    That need be none that serves: whoever has a lock, works under it. So it is with one that sleeps, to look again, while a child
    of another rank of its node works: what it looks for may be that child's.
    """
    last = view.sample
    if last is None or view.wait is not None or view.motion.state != "stuck":
        return False
    node, ends = view.capture.identity.node, last.other_ends
    here = [other for other in views.values() if other is not view and other.capture.identity.node == node]
    if _asks(view):
        beside = (other.capture.identity for other in here if other.motion.state == "busy")
        return any(one.worldless and one.pid in ends for one in beside)
    if last.syscall not in SLEEPS:
        return False
    owner, since_ns = last.lock_owner, last.at_ns - int(view.motion.window_s * 1e9)
    taken = [other.taken for other in here]
    return any(children_work(t, since_ns) or (owner is not None and wakes(t, owner, since_ns)) for t in taken)


def _awaits(view: RankView, asker: RankView) -> bool:
    """Whether a process reads a pipe that the asker is to write, or one of several others: what it was to do may be done.

    Where the asker alone may be meant the two are a circle.
    """
    last = view.sample
    if last is None or view.motion.state != "stuck":
        return False
    return len(last.writers) > 1 and asker.capture.identity.pid in last.writers


def waits_for_children(view: RankView) -> bool:
    """Whether a process waits for the end of those that it has started."""
    last = view.sample
    joins = any(part in f.file for f in called_by_user(view.frames) for part in _CHILDREN_FILES)
    return joins or (last is not None and last.syscall in _CHILDREN_CALLS)


def answer_edges(answers: Mapping[int, int], views: Mapping[int, RankView]) -> Iterator[Edge]:
    """The edges of these ranks."""
    for rank, server in sorted(answers.items()):
        yield Edge((rank,), (server,), "returning" if views[server].gone else "answer", None, weak=True)
