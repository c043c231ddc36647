"""A rank whose main thread is in an event loop that has nothing left to do: its coroutine waits for a task of its own."""

from __future__ import annotations

from hangwatch.analysis.case import Case
from hangwatch.analysis.places import bare, find_event_loop
from hangwatch.causes.evidence import at_process, at_stack, at_tasks, stuck_culprits
from hangwatch.causes.match import Match
from hangwatch.model.incident import Evidence
from hangwatch.model.processes import POLLS, SELECTS


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
