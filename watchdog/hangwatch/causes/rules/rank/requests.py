"""A rank that awaits a request while its group waits for it, and processes that wait for each other's answers."""

from __future__ import annotations

from hangwatch.analysis.case import Case
from hangwatch.analysis.places import bare
from hangwatch.analysis.ranks.requests import find_awaiting, has_gone_on
from hangwatch.causes.evidence import at_process, at_stack, at_tasks, present_culprits
from hangwatch.causes.match import Level, Match
from hangwatch.model.incident import Evidence
from hangwatch.model.processes import CallerProcess

#: How many processes are shown as evidence.
_SHOWN = 3
_WHERE = {
    "tasks": "in Ray's task loop, without a task",
    "server": "where its server waits for a client",
    "commands": "where it reads its next command",
}


def waits_for_request(case: Case) -> Match | None:
    """Return a match if the main thread is where the program takes its next call."""
    for rank, view in present_culprits(case):
        awaiting = find_awaiting(view)
        if awaiting is None or view.capture.task_error:
            continue  # it may wait for what the failed task had to bring, which is no command
        called = [r for r in case.blame.waiting if r in case.views and has_gone_on(awaiting, case.views[r])]
        last = view.capture.processes[-1]
        caller = last.caller
        who = f" ({view.capture.identity.title})" if view.capture.identity.title else ""
        others = ", and the ranks that wait for it have had their calls" if called else ""
        place = f"{_WHERE[awaiting.place]}, in {bare(awaiting.frame)}"
        said = f"Rank {rank}{who} has nothing to do: its main thread is {place}{others}."
        evidence = (
            *at_tasks(case, rank),
            *at_stack(case, rank, awaiting.frame),
            *at_process(case, rank),
            *_at_caller(rank, caller),
        )
        # The read itself is known to work if other ranks have had their calls, or if the caller is at the other end.
        works = awaiting.place != "commands" or called or (caller is not None and last.writers == (caller.pid,))
        level: Level = "certain" if works else "strong"
        return Match("waits-for-request", level, f"{said} {_who_calls(caller)}", evidence)
    return None


def _who_calls(caller: CallerProcess | None) -> str:
    if caller is None:
        return "Its caller is not visible from here."
    where = f", and is in {caller.stack[0]}" if caller.stack else ""
    return f"Process {caller.pid} ({caller.name}) started it but has not called it{where}."


def _at_caller(rank: int, caller: CallerProcess | None) -> tuple[Evidence, ...]:
    if caller is None:
        return ()
    return tuple(
        Evidence(rank, "caller", f"process {caller.pid} ({caller.name}) is in {line}") for line in caller.stack[:2]
    )


def request_cycle(case: Case) -> Match | None:
    """Return a match if the culprits wait for each other in a circle, each for an answer of the next one."""
    blame = case.blame
    if blame.shape != "cycle" or len(blame.culprits) < 2:
        return None
    within = case.graph.within(blame.culprits)
    if not within or any(edge.reason != "answer" for edge in within):
        return None
    after = {waiter: edge.awaited[0] for edge in within for waiter in edge.waiters}
    first = blame.culprits[0]
    chain = [first]
    while len(chain) <= len(after) and (following := after.get(chain[-1])) is not None and following not in chain:
        chain.append(following)
    waits = ", which waits for ".join(f"rank {rank}" for rank in [*chain[1:], first])
    said = f"Rank {first} waits for {waits}: none of them can continue."
    evidence = tuple(e for rank in chain[:_SHOWN] for e in (*at_stack(case, rank), *at_process(case, rank)))
    return Match("request-cycle", "certain", said, evidence)
