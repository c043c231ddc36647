"""What hangs in a capture, and who is blamed for it, before any cause is looked for. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hangwatch.analysis.case import Case, build_case
from hangwatch.analysis.patience import Patience
from hangwatch.analysis.ranks.device import assume_device_waits
from hangwatch.analysis.ranks.joining import ExcludedThreads
from hangwatch.analysis.stuck import goes_on_beside
from hangwatch.diagnosis.kind import Judgement, judge_kind
from hangwatch.model.capture import Capture
from hangwatch.model.incident import Kind, Severity

SEVERITY: Mapping[str, Severity] = {
    "deadlock": "critical",
    "stall": "critical",
    "rank_lost": "critical",
    "straggler": "warning",
    "slow": "warning",
    "failed": "warning",
    "silent_failure": "warning",
    "healthy": "info",
}
#: How often threads are left out and the rest is judged again: a program has few threads that communicate.
_EXCLUSION_ROUNDS = 3


@dataclass(frozen=True)
class Judged:
    """A case and its kind.

    ``waited_s``: how long the oldest pending operation has been pending; if all have joined it, since the last one did.
    """

    case: Case
    judgement: Judgement
    waited_s: float | None

    @property
    def kind(self) -> Kind:
        """The kind of the case."""
        return self.judgement.kind


def judge(
    capture: Capture, *, patience: Patience | None = None, min_wait_s: float = 0.0, before: Case | None = None
) -> Judged:
    """Return what hangs among the ranks of a capture. ``verdict.diagnose`` explains the arguments.

    A rank that seems well is taken to wait for its device if that explains what others wait for. Threads that await
    work, or are stuck beside a training that goes on, are left out: what else hangs shows without them.
    """
    window_s = window_of(patience)
    first = found = _judge(
        build_case(capture, min_wait_s=min_wait_s, motion_window_s=window_s, before=before), patience
    )
    if first.kind == "healthy" and (assumed := assume_device_waits(capture)) is not capture:
        late = _judge(build_case(assumed, min_wait_s=min_wait_s, motion_window_s=window_s), patience)
        if patience is None or (late.waited_s is not None and late.waited_s >= patience.busy_s):
            return late
    for _ in range(_EXCLUSION_ROUNDS):
        excluded = _exclude_more(found.case, patience)
        if excluded is None:
            break
        case = build_case(capture, min_wait_s=min_wait_s, motion_window_s=window_s, before=before, excluded=excluded)
        found = _judge(case, patience)
    return found if SEVERITY[found.kind] == "critical" else first


def window_of(patience: Patience | None) -> float | None:
    """Return how many of the last seconds count for motion; None for the whole capture."""
    return patience.motion_window_s if patience is not None else None


def _judge(case: Case, patience: Patience | None) -> Judged:
    since = min((ns for ns in (case.onset_ns, case.still_since_ns) if ns is not None), default=None)
    if since is not None and not case.graph.edges and case.operation is not None:
        # A transfer begins when the last rank has come, however long the others have waited.
        joined = case.history.at(case.operation.group.key, case.operation.seq).values()
        since = max([since, *(operation.created_ns for operation in joined)])
    waited_s = (case.capture.at_ns - since) / 1e9 if since is not None else None
    return Judged(case, judge_kind(case, patience, waited_s), waited_s)


def _exclude_more(case: Case, patience: Patience | None) -> ExcludedThreads | None:
    """Return the threads to leave out next, with those that are already; None if all that waits may hold up the job."""
    waiting = [case.views[r] for r in case.blame.waiting if r in case.views]
    threads = {v.rank: v.thread.ident for v in waiting if v.thread is not None and v.thread.ident}
    if not threads or len(threads) < len(waiting) or not (case.idleness or goes_on_beside(case, patience)):
        return None
    ranks = case.excluded.keys() | threads.keys()
    return {r: case.excluded.get(r, frozenset()) | ({threads[r]} if r in threads else frozenset()) for r in ranks}
