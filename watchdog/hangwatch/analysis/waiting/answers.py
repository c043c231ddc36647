"""Which ranks wait for another process, outside every collective: for an answer, for work, for room in a queue. Pure.

A connection shows which process has the other end, but not which one is to send: if both read, each may await the
other. So such an edge carries no proof, and no circle is based on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hangwatch.analysis.places import called_by_user, find_event_loop, user_frames
from hangwatch.analysis.ranks.requests import find_awaiting
from hangwatch.analysis.ranks.threads import find_serving
from hangwatch.analysis.ranks.views import RankView, number_by_process
from hangwatch.analysis.stacks.prompts import asks_person
from hangwatch.analysis.stacks.remote_calls import names_awaited, runs_remote_call
from hangwatch.analysis.waiting.graph import Edge
from hangwatch.model.processes import SLEEPS

#: System calls and files in which a process waits for processes that it has started.
_CHILDREN_CALLS = frozenset({"wait4", "waitid"})
_CHILDREN_FILES = ("multiprocessing/popen_", "multiprocessing/spawn.py", "torch/distributed/elastic/")


def find_answers(views: Mapping[int, RankView]) -> dict[int, int]:
    """Return the process that each rank waits for, by rank, if it was captured and is in the middle of something."""
    numbers = number_by_process(views)
    departed = find_departed(views)
    found = {rank: _find_other_end(view, views, numbers, departed) for rank, view in views.items()}
    found = {rank: _find_callee(views[rank], views) if end is None else end for rank, end in found.items()}
    return {rank: answering for rank, answering in found.items() if answering is not None}


def _find_other_end(
    view: RankView, views: Mapping[int, RankView], numbers: Mapping[tuple[str, int], int], departed: int | None
) -> int | None:
    """Return the process at the other end of what a rank is blocked on; None if it is not known.

    ``numbers`` has the rank of each node and pid. Of several candidates it is the only one that may answer: the others
    wait themselves, for their children or for other ranks. If no living process may, it is ``departed``, the process
    beside the job that has failed.
    """
    last = view.sample
    if last is None or not (awaits_answer(view) or (departed is not None and _reads_in_vain(view))):
        return None
    ends = [numbers.get((view.capture.identity.node, pid)) for pid in last.other_ends]
    if last.answering is not None:
        ends = [last.answering if last.answering in views else None]
    meant = [n for n in ends if n is not None]
    if len(meant) < len(ends):
        return None
    able = [n for n in meant if n != view.rank and _may_answer(views[n]) and not _awaits(views[n], view)]
    if len(meant) > 1:
        able = [n for n in able if views[n].wait is None and views[n].frontier is None]
    return able[0] if len(able) == 1 else None if able else departed


def _find_callee(view: RankView, views: Mapping[int, RankView]) -> int | None:
    """Return the process that runs the function whose result is awaited: the only one in a function of that name.

    If the line does not tell the name, it is the only one in any function that another process has called. Else None.
    """
    names = names_awaited(view.frames) if view.wait is None else None
    if names is None:
        return None
    running = {rank: _running(other) for rank, other in views.items() if other is not view}
    able = [rank for rank, found in running.items() if (found & names if names else found)]
    return able[0] if len(able) == 1 else None


def _running(view: RankView) -> set[str]:
    """Return the functions that a process runs for others, also in threads beside the one that matters."""
    works = view.wait is None and view.frontier is None
    threads = [*([view.frames] if works else []), *(thread.frames for thread in view.side_threads)]
    return {name for frames in threads if (name := runs_remote_call(frames)) is not None}


def find_departed(views: Mapping[int, RankView]) -> int | None:
    """Return the process beside the job that has failed; None if there are several, or none."""
    found = [rank for rank, view in views.items() if view.gone and view.capture.identity.worldless]
    return found[0] if len(found) == 1 else None


def _reads_in_vain(view: RankView) -> bool:
    """True if a rank is stuck in a read of what another process has to send, even if that is its next command."""
    last = view.capture.processes[-1]
    queued = (last.blocked_on or "").startswith("pipe:[") and not last.writers
    blocked = queued or view.asks or _polls_shared_memory(view)
    return view.wait is None and view.motion.state == "stuck" and blocked


def _polls_shared_memory(view: RankView) -> bool:
    """True if a rank sleeps in a loop of a function that has memory which another process writes to."""
    own = next(iter(user_frames(view.frames)), None)
    asleep = view.capture.processes[-1].syscall in SLEEPS
    loops = own is not None and any(b.kind == "while" for b in own.blocks)
    return asleep and loops and own is not None and "SharedMemory" in (own.locals or {}).values()


def awaits_answer(view: RankView) -> bool:
    """True if a rank's thread is stuck in a read from another process that is not the read of its next command."""
    asks = view.asks and not asks_person(view.frames)
    return asks and view.motion.state == "stuck" and find_awaiting(view) is None


def _may_answer(view: RankView) -> bool:
    """True if a process may be at work on an answer; one that awaits requests itself may never have had this one."""
    if view.motion.state == "stopped":
        return True
    polls = bool(view.frames) and view.frames[0].file.endswith("selectors.py")
    serves = not view.capture.identity.worldless or find_serving(view.taken) is not None
    works = serves and not (polls and find_event_loop(view.frames[:2]) is not None) and not waits_for_children(view)
    return bool(view.frames) and not view.gone and works and find_awaiting(view) is None


def _awaits(view: RankView, asker: RankView) -> bool:
    """True if a process reads a pipe with several writers, of which the asker is one: its work may be done.

    If the asker alone can write to it, the two are a circle.
    """
    last = view.sample
    if last is None or view.motion.state != "stuck":
        return False
    return len(last.writers) > 1 and asker.capture.identity.pid in last.writers


def waits_for_children(view: RankView) -> bool:
    """True if a process waits for the end of processes that it has started."""
    last = view.sample
    joins = any(part in f.file for f in called_by_user(view.frames) for part in _CHILDREN_FILES)
    return joins or (last is not None and last.syscall in _CHILDREN_CALLS)


def answer_edges(answers: Mapping[int, int], views: Mapping[int, RankView]) -> Iterator[Edge]:
    """Yield the edge of each rank that awaits an answer."""
    for rank, server in sorted(answers.items()):
        yield Edge((rank,), (server,), "returning" if views[server].gone else "answer", None, weak=True)
