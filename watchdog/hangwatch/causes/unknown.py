"""When nothing fits: say what was seen and what was not."""

from __future__ import annotations

from hangwatch.analysis.case import Case
from hangwatch.analysis.places import user_frame
from hangwatch.causes.frames import where
from hangwatch.causes.hypothesis import Hypothesis
from hangwatch.causes.knowledge import known
from hangwatch.causes.observations import at_stack
from hangwatch.model.incident import Evidence
from hangwatch.model.text import format_ranks

UNKNOWN = known("unknown")
#: Of how many ranks, and of how many things that could not be seen, is told.
_SHOWN = 3


def unknown(case: Case) -> Hypothesis:
    """Always fits, with the least confidence."""
    seen = tuple(
        Evidence(rank, "stack", f"{case.views[rank].state}: {case.views[rank].motion.describe()}")
        for rank in [r for r in case.blame.culprits if r in case.views][:_SHOWN]
    )
    missing = tuple(Evidence(gap.rank, gap.source, f"not seen: {gap.reason}") for gap in case.capture.gaps[:_SHOWN])
    if not case.blame.culprits:
        said = "No rank could be named, and why nothing completes could not be told from what was seen."
        return Hypothesis(UNKNOWN, 0.05, said, seen + missing)
    rank = case.blame.culprits[0]
    view = case.views.get(rank)
    readers = [r for r in case.blame.waiting if (w := case.views[r].wait) is not None and w.kind == "store"]
    if readers:
        seen += tuple(e for r in readers[:1] for e in at_stack(case, r))
        said = (
            f"Rank {format_ranks(readers)} waits for a key of the store that nobody has set; rank "
            f"{format_ranks(case.blame.culprits)} is elsewhere. Who was to set it cannot be seen."
        )
        return Hypothesis(UNKNOWN, 0.05, said, seen + missing)
    own = user_frame(view.frames) if view is not None else None
    at = f" in {where(own)}" if own is not None else ""
    how = "stands still" if view is not None and view.motion.state == "stuck" else "is"
    deepest = view.frames[0] if view is not None and view.frames else None
    via = f", inside {where(deepest)}" if deepest is not None and deepest != own else ""
    said = f"Rank {rank} {how}{at}{via}. Nothing seen tells what it waits for there."
    return Hypothesis(UNKNOWN, 0.05, said, seen + missing)
