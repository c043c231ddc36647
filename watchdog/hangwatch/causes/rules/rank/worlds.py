"""A process of another world that is gone or has failed, while this one waits for it in the group of the two."""

from __future__ import annotations

from hangwatch.analysis.case import Case
from hangwatch.analysis.divergence.frames import where
from hangwatch.analysis.ranks.shutdown import shutdown_frame
from hangwatch.causes.evidence import at_process, at_stack
from hangwatch.causes.match import Match
from hangwatch.model.incident import Evidence
from hangwatch.model.numbers import world_of


def peer_world_lost(case: Case) -> Match | None:
    """Return a match if a culprit is gone, or failed, and only processes of other worlds wait for it."""
    for rank in case.blame.culprits:
        view = case.views.get(rank)
        waiters = {w for e in case.graph.edges if rank in e.awaited for w in e.waiters}
        if view is None or not waiters or any(world_of(w) == world_of(rank) for w in waiters):
            continue
        last = next((line.strip() for line in reversed(view.capture.log_error) if line.strip()), None)
        ending = shutdown_frame(view.frames)
        if not view.gone and (last is None or ending is None):
            continue
        words = f" after {last}" if last is not None else ""
        state = "has ended" if view.gone else "has failed"
        said = f"Rank {rank}'s process {state}{words}. Nothing stops the processes of the other job with it."
        evidence = tuple(Evidence(rank, "exception", line.strip()) for line in view.capture.log_error[-2:])
        evidence += (Evidence(rank, "stack", where(ending)),) if ending is not None else at_process(case, rank)
        return Match("peer-world-lost", "certain", said, (*evidence, *at_stack(case, min(waiters))))
    return None
