"""Processes that wait for each other, and not both in a collective: for an answer, or for a lock on a file."""

from __future__ import annotations

from hangwatch.analysis.case import Case
from hangwatch.causes.evidence import at_process, at_stack, stuck_culprits
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


def locked_by_a_waiter(case: Case) -> Match | None:
    """Return a match if a culprit waits for a lock on a file, and the rank that has the lock waits for the culprit."""
    ranks = {(view.capture.identity.node, view.capture.identity.pid): rank for rank, view in case.views.items()}
    for rank, view in stuck_culprits(case):
        last = view.sample
        owner = last.lock_owner if last is not None else None
        holder = ranks.get((view.capture.identity.node, owner)) if owner is not None else None
        if last is None or holder is None or holder == rank:
            continue
        if any(holder in edge.waiters and rank in edge.awaited for edge in case.graph.edges):
            said = (
                f"Rank {rank} waits for a lock that rank {holder} has ({last.blocked_on}), and rank {holder} "
                f"waits for rank {rank}: neither can go on."
            )
            evidence = (*at_stack(case, rank), *at_process(case, rank), *at_stack(case, holder))
            return Match("lock-deadlock", "certain", said, evidence)
    return None
