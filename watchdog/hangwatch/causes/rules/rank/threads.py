"""A rank whose main thread waits for another thread of its own, or for a task: for a lock, or for a result that does not come."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from hangwatch.analysis.case import Case
from hangwatch.analysis.places import bare, calls, find_event_loop, is_interpreter, is_program, package_of, where
from hangwatch.analysis.ranks.shutdown import shutdown_frame
from hangwatch.analysis.ranks.views import RankView
from hangwatch.analysis.stacks.waits import in_torch_distributed
from hangwatch.causes.evidence import at_handling, at_process, at_stack, at_tasks, stuck_culprits
from hangwatch.causes.match import Level, Match
from hangwatch.causes.rules.rank.children import POOLS, SYNCHRONIZED, waits_for_child
from hangwatch.model.incident import Evidence
from hangwatch.model.processes import POLLS, SELECTS
from hangwatch.model.stacks import Frame, ThreadStack

_LOCKING = re.compile(
    r"(?:^|[\s=(])(?P<called>\w[\w.]*(?:\[[^\]]*\])?)\.acquire\("
    r"|^(?:async )?with\s+(?P<held>\w[\w.]*(?:\[[^\]]*\])?)\s*(?:\(|:|,| as )"
)
#: ``importlib/_bootstrap.py``: each module has a lock, which is held while its code runs.
_IMPORT, _IMPORT_LOCK = "<frozen importlib._bootstrap>", "a module's import"
#: A handler of log lines has a lock, which is held while it writes one.
_LOGGING, _HANDLER_LOCK = "logging/__init__.py", "the handler's lock"
#: Functions that wait for another thread of the process, by file of the standard library.
_HANDOVERS = {
    "threading.py": ("wait", "wait_for", "join", "_wait_for_tstate_lock", "acquire"),
    "queue.py": ("get", "put", "join"),
    "concurrent/futures/_base.py": ("result", "exception", "wait", "as_completed"),
    "concurrent/futures/thread.py": ("shutdown",),
}
_HANDED = re.compile(r"\.(?:get|result|join|wait)\(")
#: Files in which a thread with nothing to do waits.
_RESTS = ("threading.py", "queue.py", "selectors.py", "socketserver.py", "concurrent/futures/", "multiprocessing/")


def lock_deadlock(case: Case) -> Match | None:
    """Return a match if the main thread is stuck taking a lock in the program's own code.

    Evidence: threads blocked there too.
    """
    for rank, view in stuck_culprits(case):
        main = _main(view)
        if main is None or not _on_futex(view):
            continue
        wanted = _lock_taken(main)
        if wanted is None:
            continue
        others = [t for t in _others(view) if not t.active]
        holder = next((t for t in others if _holds(t.frames, wanted)), None)
        is_own = "[" not in wanted and _holds(main.frames[1:], wanted)  # of many locks, the two may be different ones
        resting = [t for t in others if is_program(t.frames[0]) and t.frames[0].source is None]
        taking = [t for t in others if _lock_taken(t) is not None]
        shown = [holder] if holder is not None else (taking or resting)
        evidence = at_stack(case, rank, main.frames[0])
        evidence += tuple(
            Evidence(rank, "stack", f"thread {t.label} is blocked in {where(t.frames[0])}") for t in shown[:2]
        )
        if holder is not None:
            inside = {_IMPORT_LOCK: "and inside such an import", _HANDLER_LOCK: "and while it writes a log line"}
            held = inside.get(wanted, "inside whose `with`")
            said = f"Rank {rank}'s {view.who} waits for {wanted}, {held} its thread {holder.label} is blocked."
        elif is_own:
            said = f"Rank {rank}'s {view.who} takes {wanted}, which it already holds further up, and waits for itself."
        elif shown:
            said = (
                f"Rank {rank}'s {view.who} waits for a lock, another of its threads is blocked too, and neither moves."
            )
        elif _is_between_processes(main):
            said = (
                f"Rank {rank}'s {view.who} takes {wanted}, a lock between processes. Another process holds it, or has "
                "ended without releasing it."
            )
        else:
            said = f"Rank {rank}'s {view.who} takes {wanted}, but none of its threads is visibly inside a `with` of it."
        # Without the source of the other threads, they may be blocked in anything.
        level: Level = "strong" if holder is not None or is_own or taking else "possible"
        return Match("lock-deadlock", level, said, (*evidence, *at_handling(case, rank), *at_process(case, rank)))
    return None


def thread_stall(case: Case) -> Match | None:
    """Return a match if the main thread waits in a queue, event, future or join for a thread that is gone or blocked itself."""
    for rank, view in stuck_culprits(case):
        frame = waits_for_thread(view)
        if frame is None or awaited_connection(view) is not None:
            continue
        others = _others(view)
        if any(in_torch_distributed(f) for t in others for f in t.frames[:8]):
            continue  # it waits for other ranks after all, through its thread
        if any(calls(t.frames, part) is not None for t in others for part in POOLS):
            continue  # results come from processes; the thread only hands them on
        evidence = at_stack(case, rank, frame)
        working = working_threads(view)
        resting = [t for t in others if _rests(t) and _own(t.frames) is not None]
        shown = working or resting
        for thread in shown[:3]:
            places = [where(f) for f in (thread.frames[0], _own(thread.frames)) if f is not None]
            evidence += tuple(Evidence(rank, "stack", f"thread {thread.label} is in {place}") for place in places)
        if shown:
            at = _own(shown[0].frames) or shown[0].frames[0]
            said = (
                f"Rank {rank}'s {view.who} waits in {bare(frame)} for another of its threads; thread "
                f"{shown[0].label} is stuck in {where(at)}."
            )
        else:
            said = (
                f"Rank {rank}'s {view.who} waits in {bare(frame)} for another of its threads, but "
                "none is at work. That thread has ended, perhaps through an exception, so nothing "
                "will wake the main thread."
            )
        level: Level = "strong" if working or not shown else "likely"
        return Match("thread-stall", level, said, (*evidence, *at_handling(case, rank), *at_process(case, rank)))
    return None


def _main(view: RankView) -> ThreadStack | None:
    return next((t for t in view.threads if t.is_main and t.frames), None)


def _others(view: RankView) -> list[ThreadStack]:
    """Return the other Python threads, without the probe's and those that only refresh a progress bar."""
    others = (t for t in view.side_threads if t.frames)
    return [t for t in others if calls(t.frames, "tqdm/_monitor.py") is None]


def _on_futex(view: RankView) -> bool:
    last = view.sample
    return last is not None and "futex" in (last.wait_channel or last.syscall or "")


def _lock_taken(thread: ThreadStack) -> str | None:
    """Return the lock that the thread's deepest frame is taking, as it is written; None if it takes none.

    A wait on a queue or a condition does not count.
    """
    frame = thread.frames[0] if thread.frames else None
    if frame is None or thread.active:
        return None
    if frame.file == _IMPORT and bare(frame) == "acquire":
        return _IMPORT_LOCK
    if _is_between_processes(thread) and len(thread.frames) > 1:
        frame = thread.frames[1]
    elif is_interpreter(frame):
        return _HANDLER_LOCK if bare(frame) == "acquire" and frame.file.endswith(_LOGGING) else None
    found = _LOCKING.search(frame.source or "")
    return (found["called"] or found["held"]) if found is not None and bare(frame) != "wait" else None


def _is_between_processes(thread: ThreadStack) -> bool:
    """True if the thread's deepest frame enters a lock that several processes share: ``SemLock.__enter__``, around C's."""
    frame = thread.frames[0]
    return frame.file.endswith(SYNCHRONIZED) and bare(frame) == "__enter__"


def _holds(frames: Sequence[Frame], lock: str) -> bool:
    """True if the frames are inside a ``with`` of a lock that is written like this one; ``self.x`` is ``other.x``.

    Of many locks in one place, ``self.x[i]``, any may be the one.
    """
    if lock == _IMPORT_LOCK:  # the thread that runs a module's code has it
        return any(f.file == _IMPORT and bare(f) == "_load_unlocked" for f in frames)
    if lock == _HANDLER_LOCK:
        pairs = pairwise(frames)
        return any(bare(f) == "emit" and bare(by) == "handle" and by.file.endswith(_LOGGING) for f, by in pairs)
    last = _attribute(lock)
    for frame in frames:
        for block in frame.blocks:
            found = _LOCKING.search(block.text) if block.kind == "with" else None
            if found is not None and _attribute(found["held"] or "") == last:
                return True
    return False


def _attribute(lock: str) -> str:
    """Return the last name by which a lock is reached, without its index."""
    return lock.partition("[")[0].rpartition(".")[2]


def waits_for_thread(view: RankView) -> Frame | None:
    """Return the frame in which the main thread waits for another thread of its process; None if it does not."""
    frames = view.frames
    if not frames or not _on_futex(view) or shutdown_frame(frames) is not None or waits_for_child(view) is not None:
        return None
    first_outside = next((i for i, f in enumerate(frames) if not is_interpreter(f)), len(frames))
    above, caller = frames[:first_outside], frames[first_outside : first_outside + 1]
    if calls(caller, "torch/utils/data/dataloader.py") is not None:
        return None  # it waits for its workers; a data set in this process is the program's own
    waits = [f for f in above if any(f.file.endswith(part) and bare(f) in names for part, names in _HANDOVERS.items())]
    if waits:
        return waits[-1]  # the outermost: `get` says more than the `wait` inside it
    # A queue or a lock written in C has no frame of its own.
    first = frames[0]
    return first if not above and is_program(first) and _HANDED.search(first.source or "") else None


def awaited_connection(view: RankView) -> tuple[ThreadStack, str] | None:
    """Return the thread that the main thread waits for, and its connection, if that thread runs an event loop; else None.

    It is the one event loop beside the main thread that has watched the same connection in the last two samples:
    asyncio in a thread of a library, which the program calls from outside (fsspec). A loop without a coroutine keeps
    its connections open for later, and one that listens for clients serves others.
    """
    if waits_for_thread(view) is None or (view.capture.beat_age_s is not None and not view.capture.tasks):
        return None
    found: list[tuple[ThreadStack, str]] = []
    for thread in _others(view):
        own = [t for p in view.capture.processes[-2:] for t in p.threads if t.os_thread_id == thread.os_thread_id]
        watched = {t.blocked_on or "" for t in own}
        if find_event_loop(thread.frames) is not None and len(own) > 1 and len(watched) == 1:
            found += [(thread, on) for on in watched if on.startswith("socket:") and " listening " not in on]
    return found[0] if len(found) == 1 else None


def polls(view: RankView) -> Frame | None:
    """Return the frame in which the main thread polls, with sleeps in between, for what another may have done; else None."""
    frame = view.frames[0] if view.frames else None
    if frame is None or not is_program(frame) or "sleep(" not in (frame.source or ""):
        return None
    return frame if any(b.kind == "while" for b in frame.blocks) else None


def working_threads(view: RankView) -> list[ThreadStack]:
    """Return the other threads of a rank that do not merely wait to be given something to do."""
    return [t for t in _others(view) if not _rests(t)]


def _own(frames: Sequence[Frame]) -> Frame | None:
    """Return the program's own deepest frame of a thread; None if there is none."""
    return next((f for f in frames if not is_interpreter(f) and package_of(f) is None), None)


def _rests(thread: ThreadStack) -> bool:
    """True if the thread waits to be given something to do, as far as one can see."""
    return is_interpreter(thread.frames[0]) and any(part in thread.frames[0].file for part in _RESTS)


def task_stall(case: Case) -> Match | None:
    """Return a match if the main thread's event loop waits and watches no connection, or a task of it has failed."""
    for rank, view in stuck_culprits(case):
        frame = find_event_loop(view.frames)
        last = view.sample
        if frame is None or last is None or last.syscall not in POLLS | SELECTS:
            continue
        watches = "socket:" in (last.blocked_on or "") or "pipe:" in (last.blocked_on or "")
        shown = (*at_tasks(case, rank), *at_stack(case, rank, frame), *at_process(case, rank))
        if error := view.capture.task_error:
            failed = tuple(Evidence(rank, "exception", line) for line in error)
            rest = "waits for its connections" if watches else "has nothing left to run"
            said = f"A task of rank {rank}'s event loop failed ({error[0]}), and the loop {rest}."
            return Match("rank-raised", "strong", said, (*failed, *shown))
        if watches:
            continue  # data may yet come over the connection that it watches
        said = (
            f"Rank {rank}'s event loop, in {bare(frame)}, watches no connection and has nothing to "
            "run. The main thread's coroutine sleeps, or waits for a task of its own that has ended "
            "or waits too."
        )
        return Match("thread-stall", "likely", said, shown)
    return None
