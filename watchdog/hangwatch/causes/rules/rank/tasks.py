"""A rank whose main thread is in an event loop that has nothing left to do: its coroutine waits for a task of its own."""

from __future__ import annotations

from hangwatch.analysis.case import Case
from hangwatch.analysis.places import bare, calls
from hangwatch.causes.evidence import at_process, at_stack, at_tasks, standing
from hangwatch.causes.signature import Match, Signature
from hangwatch.model.incident import Evidence

TASKS = Signature("thread-stall", "event-loop-idle", "likely")
#: Why the loop has nothing to run.
TASK_FAILED = Signature("rank-raised", "ended-a-task", "strong", beats=("thread-stall",))

#: Where asyncio (CPython 3.11) waits for the next event: ``BaseEventLoop._run_once``.
_EVENT_LOOP = "asyncio/base_events.py"
_POLL_CALLS = frozenset({"epoll_wait", "epoll_pwait", "epoll_pwait2", "poll", "ppoll", "select", "pselect6"})


def task_stall(case: Case) -> Match | None:
    """The event loop of the main thread waits for events, and watches no connection from which one could come."""
    for rank, view in standing(case):
        frame = calls(view.frames, _EVENT_LOOP, "_run_once")
        last = view.sample
        if frame is None or last is None or last.syscall not in _POLL_CALLS:
            continue
        if "socket:" in (last.blocked_on or "") or "pipe:" in (last.blocked_on or ""):
            continue  # what it watches may yet speak
        shown = (*at_tasks(case, rank), *at_stack(case, rank, frame), *at_process(case, rank))
        if error := view.capture.task_error:
            failed = tuple(Evidence(rank, "exception", line) for line in error)
            said = f"A task of rank {rank}'s event loop has failed ({error[0]}), and the loop has nothing left to run."
            return Match(TASK_FAILED, said, (*failed, *shown))
        said = (
            f"Rank {rank}'s event loop, in {bare(frame)}, watches no connection and has nothing to run: the coroutine that the "
            f"main thread runs waits for a task of its own, which has ended or waits as well, or it sleeps."
        )
        return Match(TASKS, said, shown)
    return None
