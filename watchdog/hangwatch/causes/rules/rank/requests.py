"""A rank that nobody has called: it awaits what to do, while its group waits for it."""

from __future__ import annotations

from hangwatch.analysis.case import Case
from hangwatch.analysis.places import bare
from hangwatch.analysis.ranks.awaiting import Awaiting
from hangwatch.analysis.ranks.requests import find_awaiting, has_gone_on
from hangwatch.causes.evidence import at_process, at_stack, at_tasks, looked_at
from hangwatch.causes.signature import Match, Signature
from hangwatch.model.incident import Evidence
from hangwatch.model.processes import CallerProcess

_GENERAL = ("blocked-io", "child-stall", "thread-stall", "init-missing-rank", "busy-loop", "straggler")
#: What it reads from works: the next call comes that way, and the others have had theirs.
CALLED_OTHERS = Signature("waits-for-request", "others-were-called", "certain", beats=_GENERAL)
#: Ray's own loop calls nothing but tasks.
NO_TASK = Signature("waits-for-request", "no-task", "certain", beats=_GENERAL)
#: A server that serves nobody is not blocked: it is free.
NO_CLIENT = Signature("waits-for-request", "no-client", "certain", beats=_GENERAL)
#: The others may have other programs, so that theirs says nothing; the read is still that of the next command.
NO_COMMAND = Signature("waits-for-request", "no-command", "strong", beats=_GENERAL)

_WHERE = {
    "tasks": "in Ray's task loop, with no task",
    "server": "where its server waits for a client",
    "commands": "where it reads its next command",
}


def waits_for_request(case: Case) -> Match | None:
    """The main thread is where the program takes its next call."""
    for rank, view in looked_at(case):
        awaiting = find_awaiting(view)
        if awaiting is None:
            continue
        called = [r for r in case.blame.waiting if r in case.views and has_gone_on(awaiting, case.views[r])]
        caller = view.capture.processes[-1].caller
        who = f" ({view.capture.identity.title})" if view.capture.identity.title else ""
        others = ", and the ranks that wait for it have had theirs" if called else ""
        where = f"{_WHERE[awaiting.place]}, in {bare(awaiting.frame)}"
        said = f"Rank {rank}{who} has nothing to do: its main thread is {where}{others}."
        evidence = (
            *at_tasks(case, rank),
            *at_stack(case, rank, awaiting.frame),
            *at_process(case, rank),
            *_at_caller(rank, caller),
        )
        return Match(_row(awaiting, called=bool(called)), f"{said} {_who_calls(caller)}", evidence)
    return None


def _row(awaiting: Awaiting, *, called: bool) -> Signature:
    if awaiting.place == "tasks":
        return NO_TASK
    if awaiting.place == "server":
        return NO_CLIENT
    return CALLED_OTHERS if called else NO_COMMAND


def _who_calls(caller: CallerProcess | None) -> str:
    if caller is None:
        return "Who is to call it is not visible from here."
    where = f" is in {caller.stack[0]}" if caller.stack else " lives"
    return f"It has not been called by process {caller.pid} ({caller.name}), which started it and{where}."


def _at_caller(rank: int, caller: CallerProcess | None) -> tuple[Evidence, ...]:
    if caller is None:
        return ()
    return tuple(
        Evidence(rank, "caller", f"process {caller.pid} ({caller.name}) is in {line}") for line in caller.stack[:2]
    )
