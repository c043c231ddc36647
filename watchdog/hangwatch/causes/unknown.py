"""When nothing fits: say what was seen and what was not."""

from __future__ import annotations

from hangwatch.analysis.case import Case
from hangwatch.analysis.places import user_frame
from hangwatch.causes.frames import where
from hangwatch.causes.hypothesis import Hypothesis, Knowledge
from hangwatch.model.incident import Evidence

UNKNOWN = Knowledge(
    id="unknown",
    title="No known cause fits",
    remedy=(
        "Read the two stacks side by side at the lines shown above; the bundle holds every rank's.",
        "If this is a kind of hang others may meet, report it with the bundle so that a cause can be added.",
    ),
)


def unknown(case: Case) -> Hypothesis:
    """Always fits, with the least confidence."""
    seen = tuple(
        Evidence(rank, "stack", f"{case.views[rank].state}: {case.views[rank].motion.describe()}")
        for rank in case.blame.culprits
        if rank in case.views
    )
    missing = tuple(Evidence(gap.rank, gap.source, f"not seen: {gap.reason}") for gap in case.capture.gaps)
    if not case.blame.culprits:
        said = "No rank could be named, and why nothing completes could not be told from what was seen."
        return Hypothesis(UNKNOWN, 0.05, said, seen + missing)
    rank = case.blame.culprits[0]
    view = case.views.get(rank)
    own = user_frame(view.frames) if view is not None else None
    at = f" in {where(own)}" if own is not None else ""
    how = "stands still" if view is not None and view.motion.state == "stuck" else "is"
    deepest = view.frames[0] if view is not None and view.frames else None
    via = f", inside {where(deepest)}" if deepest is not None and deepest != own else ""
    said = f"Rank {rank} {how}{at}{via}. Nothing seen tells what it waits for there."
    return Hypothesis(UNKNOWN, 0.05, said, seen + missing)
