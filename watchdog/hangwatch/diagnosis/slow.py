"""The diagnosis of a job that one rank, or a link, makes late: who and why in, a verdict out. Pure."""

from __future__ import annotations

import msgspec

from hangwatch.diagnosis.causes import to_causes
from hangwatch.model.incident import Divergence, Lateness, SourceLine, Verdict
from hangwatch.model.slowness import SlowLink, Slowness
from hangwatch.slow.causes import slow_link, slow_rank
from hangwatch.slow.links import name_link
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


def diagnose_slow_link(found: SlowLink) -> Verdict:
    """Return the verdict on links that are slower than the rest; they accuse no rank."""
    where = name_link(found)
    return Verdict(
        kind="slow",
        proven=False,
        severity="warning",
        summary=f"The network is slower on {where} than between the other nodes of the job.",
        cause=to_causes([slow_link(found)])[0],
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
