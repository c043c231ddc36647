"""What hangs in a capture, and who is blamed for it, before any cause is looked for. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hangwatch.analysis.case import Case, build_case
from hangwatch.analysis.patience import Patience
from hangwatch.analysis.ranks.device import assume_device_waits
from hangwatch.analysis.ranks.joining import Aside
from hangwatch.diagnosis.kind import goes_on_beside, judge_kind
from hangwatch.model.capture import Capture
from hangwatch.model.incident import Kind, Severity

SEVERITY: Mapping[str, Severity] = {
    "deadlock": "critical",
    "stall": "critical",
    "rank_lost": "critical",
    "straggler": "warning",
    "silent_failure": "warning",
    "healthy": "info",
}
#: A program has a few threads that communicate beside its main one.
_ASIDE_ROUNDS = 3


@dataclass(frozen=True)
class Judged:
    """A case and what it is.

    ``waited_s``: how long the oldest pending operation has been pending; where all have joined it, since the last one did.
    """

    case: Case
    kind: Kind
    waited_s: float | None


def judge(
    capture: Capture, *, patience: Patience | None = None, min_wait_s: float = 0.0, before: Case | None = None
) -> Judged:
    """What hangs among the ranks of a capture (``verdict.diagnose`` has the arguments), by the case that shows it.

    A rank that seems well is taken for one that waits for its device, where that explains what others wait for. Threads that
    await work, or are stuck beside a training that goes on, are put aside: what else hangs is seen without them.
    """
    window_s = window_of(patience)
    first = found = _judge(
        build_case(capture, min_wait_s=min_wait_s, motion_window_s=window_s, before=before), patience
    )
    if first.kind == "healthy" and (assumed := assume_device_waits(capture)) is not capture:
        late = _judge(build_case(assumed, min_wait_s=min_wait_s, motion_window_s=window_s), patience)
        if patience is None or (late.waited_s is not None and late.waited_s >= patience.busy_s):
            return late
    for _ in range(_ASIDE_ROUNDS):
        aside = _beside(found.case, patience)
        if aside is None:
            break
        case = build_case(capture, min_wait_s=min_wait_s, motion_window_s=window_s, before=before, aside=aside)
        found = _judge(case, patience)
    return found if SEVERITY[found.kind] == "critical" else first


def window_of(patience: Patience | None) -> float | None:
    """Within how many seconds what moves counts as moving; None for the whole capture."""
    return patience.motion_window_s if patience is not None else None


def _judge(case: Case, patience: Patience | None) -> Judged:
    since = min((ns for ns in (case.onset_ns, case.still_since_ns) if ns is not None), default=None)
    if since is not None and case.blame.shape == "together" and case.operation is not None:
        # A transfer begins when the last has come, however long those before it have waited: it may well be about to end.
        joined = case.history.at(case.operation.group.key, case.operation.seq).values()
        since = max([since, *(operation.created_ns for operation in joined)])
    waited_s = (case.capture.at_ns - since) / 1e9 if since is not None else None
    return Judged(case, judge_kind(case, patience, waited_s), waited_s)


def _beside(case: Case, patience: Patience | None) -> Aside | None:
    """The threads to be put aside, with those that are so already; None where all that waits may well hold up the job."""
    waiting = [case.views[r] for r in case.blame.waiting if r in case.views]
    threads = {v.rank: v.thread.ident for v in waiting if v.thread is not None and v.thread.ident}
    if not threads or len(threads) < len(waiting) or not (case.idleness or goes_on_beside(case, patience)):
        return None
    ranks = case.aside.keys() | threads.keys()
    return {r: case.aside.get(r, frozenset()) | ({threads[r]} if r in threads else frozenset()) for r in ranks}
