"""The diagnosis of a job that one rank makes late: who and why in, a verdict out. Pure."""

from __future__ import annotations

import msgspec

from hangwatch.diagnosis.causes import to_causes
from hangwatch.model.incident import Divergence, Lateness, SourceLine, Verdict
from hangwatch.model.slowness import Slowness
from hangwatch.slow.causes import slow_rank
from hangwatch.slow.reason import find_reason


def diagnose_slowness(slowness: Slowness) -> Verdict:
    """Return the verdict on a rank that makes the others late."""
    lateness, cause = slowness.lateness, to_causes([slow_rank(slowness)])[0]
    culprits = (lateness.rank,) if lateness.rank is not None else ()
    return Verdict(
        kind="slow",
        proven=False,
        severity="warning",
        summary=lateness.says,
        culprit_ranks=culprits,
        waiting_ranks=lateness.waiting,
        divergence=_divergence(slowness),
        cause=cause,
    )


def describe_lateness(slowness: Slowness) -> Lateness:
    """Return who was late, with the reason."""
    return msgspec.structs.replace(slowness.lateness, reason=find_reason(slowness).kind)


def _divergence(slowness: Slowness) -> Divergence | None:
    """Return the line at which the rank spends more of its time; None if no line does."""
    frame, rank = find_reason(slowness).frame, slowness.lateness.rank
    if frame is None or rank is None:
        return None
    return Divergence(SourceLine(frame.file, frame.line, frame.function, frame.source, ranks=(rank,)), None)
