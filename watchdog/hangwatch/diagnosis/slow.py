"""The diagnosis of a job that goes on, but slower than it could: what slows it down in, a verdict out. Pure."""

from __future__ import annotations

import msgspec

from hangwatch.diagnosis.causes import to_causes
from hangwatch.model.incident import Divergence, Lateness, SourceLine, Verdict
from hangwatch.model.slowness import Slow, SlowJob, SlowLink, SlowRank
from hangwatch.slow.causes import match_slow
from hangwatch.slow.links import name_link
from hangwatch.slow.reason import find_reason


def diagnose_slow(slow: Slow, at_ns: int) -> tuple[Verdict, int]:
    """Return the verdict, and its onset (wall clock, ns); ``at_ns``: when it was found. Only a late rank is accused."""
    verdict = Verdict("slow", False, "warning", _say(slow), cause=to_causes([match_slow(slow)])[0])
    if isinstance(slow, SlowLink):
        return verdict, at_ns
    if isinstance(slow, SlowRank):
        culprits = (slow.lateness.rank,) if slow.lateness.rank is not None else ()
        verdict = msgspec.structs.replace(verdict, culprit_ranks=culprits, waiting_ranks=slow.lateness.waiting)
    return msgspec.structs.replace(verdict, divergence=_divergence(slow)), slow.onset_ns


def describe_lateness(slow: Slow | None) -> Lateness | None:
    """Return who was late, with the reason; None if nobody was."""
    return msgspec.structs.replace(slow.lateness, reason=find_reason(slow).kind) if isinstance(slow, SlowRank) else None


def _say(slow: Slow) -> str:
    if isinstance(slow, SlowRank):
        return slow.lateness.says
    if isinstance(slow, SlowLink):
        return f"The network is slower on {name_link(slow)} than between the other nodes of the job."
    times = slow.step_s / slow.before_s
    return f"Steps take {times:.1f} times as long as before: {slow.step_s:.3g} s instead of {slow.before_s:.3g} s."


def _divergence(slow: SlowRank | SlowJob) -> Divergence | None:
    """Return the line at which a rank spends more of its time; None if no line does."""
    frame = find_reason(slow).frame
    if frame is None:
        return None
    ranks = (slow.profiles[0].rank,)
    return Divergence(SourceLine(frame.file, frame.line, frame.function, frame.source, ranks=ranks), None)
