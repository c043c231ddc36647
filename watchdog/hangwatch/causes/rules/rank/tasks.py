"""A rank whose main thread is in an event loop that has nothing left to do: its coroutine waits for a task of its own."""

from __future__ import annotations

from hangwatch.analysis.case import Case
from hangwatch.analysis.places import bare, calls
from hangwatch.causes.evidence import at_process, at_stack, at_tasks, standing
from hangwatch.causes.rules.rank.stuck import POLLS, SELECTS
from hangwatch.causes.signature import Match, Signature
from hangwatch.model.incident import Evidence

TASKS = Signature("thread-stall", "event-loop-idle", "likely")
#: Why the loop has nothing to run.
TASK_FAILED = Signature("rank-raised", "ended-a-task", "strong", beats=("thread-stall",))

#: What it watches may be clients of its own, or the connection that the task had.
TASK_FAILED_AMONG_OTHERS = Signature(
    "rank-raised",
    "ended-a-task-beside-connections",
    "strong",
    beats=("thread-stall", "waits-for-request", "blocked-io"),
)

#: Where asyncio (CPython 3.11) waits for the next event: ``BaseEventLoop._run_once``.
_EVENT_LOOP = "asyncio/base_events.py"


def task_stall(case: Case) -> Match | None:
    """The event loop of the main thread waits for events, and watches no connection from which one could come."""
    for rank, view in standing(case):
        frame = calls(view.frames, _EVENT_LOOP, "_run_once")
        last = view.sample
        if frame is None or last is None or last.syscall not in POLLS | SELECTS:
            continue
        watches = "socket:" in (last.blocked_on or "") or "pipe:" in (last.blocked_on or "")
        shown = (*at_tasks(case, rank), *at_stack(case, rank, frame), *at_process(case, rank))
        if error := view.capture.task_error:
            failed = tuple(Evidence(rank, "exception", line) for line in error)
            rest = "waits for what its connections may bring" if watches else "has nothing left to run"
            said = f"A task of rank {rank}'s event loop has failed ({error[0]}), and the loop {rest}."
            return Match(TASK_FAILED_AMONG_OTHERS if watches else TASK_FAILED, said, (*failed, *shown))
        if watches:
            continue  # what it watches may yet speak
        said = (
            f"Rank {rank}'s event loop, in {bare(frame)}, watches no connection and has nothing to run: the coroutine that the "
            f"main thread runs waits for a task of its own, which has ended or waits as well, or it sleeps."
        )
        return Match(TASKS, said, shown)
    return None
