"""A rank that tries again what has failed."""

from __future__ import annotations

from hangwatch.analysis.case import Case
from hangwatch.analysis.motion.loops import retries
from hangwatch.causes.evidence import at_process, at_sleep, at_stack, present_culprits
from hangwatch.causes.match import Match


def retry_backoff(case: Case) -> Match | None:
    """Return a match if a culprit sleeps in an ``except`` inside a loop; else None."""
    for rank, view in present_culprits(case):
        if retries(view.frames):
            said = f"Rank {rank} sleeps before it retries what failed."
            evidence = (*at_stack(case, rank), *at_sleep(case, rank), *at_process(case, rank))
            return Match("retry-backoff", "certain", said, evidence)
    return None
