"""A rank whose main thread is in an event loop that has nothing left to do: its coroutine waits for a task of its own."""

from __future__ import annotations

from hangwatch.analysis.case import Case
from hangwatch.analysis.places import bare, calls
from hangwatch.causes.evidence import at_process, at_stack, standing
from hangwatch.causes.signature import Match, Signature

TASKS = Signature("thread-stall", "event-loop-idle", "likely")

#: Where asyncio (CPython 3.11) waits for the next event: ``BaseEventLoop._run_once``.
_EVENT_LOOP = "asyncio/base_events.py"
_POLL_CALLS = frozenset({"epoll_wait", "epoll_pwait", "epoll_pwait2", "poll", "ppoll", "select", "pselect6"})


def task_stall(case: Case) -> Match | None:
    """The event loop of the main thread waits for events, and watches no connection from which one could come."""
    for rank, view in standing(case):
        frame = calls(view.frames, _EVENT_LOOP, "_run_once")
        last = view.capture.processes[-1] if view.capture.processes else None
        if frame is None or last is None or last.syscall not in _POLL_CALLS:
            continue
        if "socket:" in (last.blocked_on or "") or "pipe:" in (last.blocked_on or ""):
            continue  # what it watches may yet speak
        said = (
            f"Rank {rank}'s event loop, in {bare(frame)}, watches no connection and has nothing to run: the coroutine that the "
            f"main thread runs waits for a task of its own, which has ended or waits as well, or it sleeps."
        )
        return Match(TASKS, said, (*at_stack(case, rank, frame), *at_process(case, rank)))
    return None
