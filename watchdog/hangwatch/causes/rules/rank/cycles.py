"""Processes that wait for each other outside of every collective: each for an answer, or for a lock, of the next one."""

from __future__ import annotations

from hangwatch.analysis.case import Case
from hangwatch.causes.evidence import at_process, at_stack
from hangwatch.causes.match import Match

#: How many processes are shown as evidence.
_SHOWN = 3


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
