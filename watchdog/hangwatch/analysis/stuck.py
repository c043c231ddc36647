"""Do the culprits of a hang move, and does training go on beside them? For one rank ``motion`` answers it. Pure."""

from __future__ import annotations

from itertools import islice

from hangwatch.analysis.case import Case
from hangwatch.analysis.motion.samples import caller_works, child_wakes, children_work
from hangwatch.analysis.motion.sleeping import wakes_in_s
from hangwatch.analysis.patience import Patience
from hangwatch.analysis.ranks.requests import find_awaiting
from hangwatch.analysis.ranks.views import RankView
from hangwatch.analysis.waiting.answers import awaits_answer
from hangwatch.model.collectives import Operation
from hangwatch.model.processes import SLEEPS

#: How many of a rank's last operations are searched for a completed one beside those in flight.
_LAST = 64
#: Without a patience, a main thread goes on if it has completed a collective within so many seconds.
_GOING_ON_S = 3.0


def stand_still(case: Case, *, asked: bool) -> bool:
    """True if the ranks to blame do not move, as far as can be seen. ``asked``: a person asks about a job that hangs."""
    blame = case.blame
    seen = [case.views[r] for r in blame.culprits or blame.waiting if r in case.views]
    if not seen:
        return _are_missing(case, asked=asked)
    if all(find_awaiting(view) is not None and caller_works(view.capture) for view in seen):
        return False  # their callers compute
    if not blame.culprits and not all(view.settled for view in seen):
        return False  # one has called an operation during the capture: the next record shows which
    if any(v.motion.state in {"stuck", "stopped"} and not _waits_for_work(case, v) for v in seen):
        return True
    return not any(v.motion.state in {"stuck", "busy"} for v in seen)


def _are_missing(case: Case, *, asked: bool) -> bool:
    """True if ranks that were not seen are known to hold up the others: those of other nodes may well be at work."""
    if asked and case.blame.culprits and not any(v.capture.processes for v in case.views.values()):
        return True  # records alone show no motion, and a person keeps them of jobs that hang
    waits = (case.views[r].wait for r in case.blame.waiting)
    return any(w is not None and w.kind == "initialization" for w in waits)  # it never reached the rendezvous


def are_stopped(case: Case) -> bool:
    """True if all culprits are stopped: whatever they had to do, they do not."""
    views = _culprits(case)
    return bool(views) and all(view is not None and view.motion.state == "stopped" for view in views)


def have_called(case: Case, within_s: float) -> bool:
    """True if a culprit that is in no operation now has called one in the last ``within_s`` seconds.

    Other ranks may wait for something longer than a step: a trainer hands its weights to an engine one by one, and its
    peers await it in their next step all the while.
    """
    since_ns = case.capture.at_ns - int(within_s * 1e9)
    flights = [v.capture.flight for v in _culprits(case) if v is not None and v.frontier is None]
    return any(f is not None and len(f.operations) and f.operations[-1].created_ns > since_ns for f in flights)


def wake_soon(case: Case, waited_s: float, within_s: float) -> bool:
    """True if all culprits, or a child of each, have slept for most of the wait, and wake within ``within_s`` seconds.

    It has to be one sleep. A culprit that is stopped sleeps past its time.
    """
    since_ns = case.capture.at_ns - int(waited_s / 2 * 1e9)
    views = _culprits(case)
    ends = [wakes_in_s(v.capture, since_ns) if v is not None and v.motion.state != "stopped" else None for v in views]
    return bool(ends) and all(end is not None and end <= within_s for end in ends)


def goes_on_beside(case: Case, patience: Patience | None) -> bool:
    """True if training goes on beside what is stuck: a side thread saves or reports, and training does not wait for it.

    So it is if every rank concerned is stuck in a side thread, and its main thread has completed collectives lately. A
    rank whose recorder does not tell which thread called an operation counts as one that does not go on.
    """
    window_s = patience.motion_window_s if patience is not None else _GOING_ON_S
    operation = case.operation
    ranks = [r for r in case.blame.culprits or case.blame.waiting if r in case.views]
    if operation is None or not ranks:
        return False
    after_ns = max(case.capture.at_ns - int(window_s * 1e9), operation.created_ns)
    return all(_main_goes_on(case.views[r], operation, after_ns) for r in ranks)


def _main_goes_on(view: RankView, operation: Operation, after_ns: int) -> bool:
    main = view.taken.stacks[-1].main if view.taken.stacks else None
    if view.thread is None or main is None or not main.ident or view.taken.flight is None:
        return False
    recorded = view.taken.flight.operations
    last = (recorded[at] for at in range(len(recorded) - 1, -1, -1))
    by_main = (o for o in islice(last, _LAST) if o.thread == main.ident and o.group.key != operation.group.key)
    return any(o.completed and o.created_ns > after_ns for o in by_main)


def _culprits(case: Case) -> list[RankView | None]:
    return [case.views.get(r) for r in case.blame.culprits]


def _waits_for_work(case: Case, view: RankView) -> bool:
    """True if a rank waits for a process beside the job that moves: for its lock on a file, or at a connection to it.

    The process need not be a server: whoever holds a lock works under it. A rank that sleeps and looks again counts as
    well if a child of another rank on its node works: what the rank looks for may be that child's.
    """
    last = view.sample
    if last is None or view.wait is not None or view.motion.state != "stuck":
        return False
    node, ends = view.capture.identity.node, last.other_ends
    here = [other for other in case.views.values() if other is not view and other.capture.identity.node == node]
    if awaits_answer(view):
        beside = (other.capture.identity for other in here if other.motion.state == "busy")
        return any(one.worldless and one.pid in ends for one in beside)
    if last.syscall not in SLEEPS:
        return False
    owner, since_ns = last.lock_owner, last.at_ns - int(view.motion.window_s * 1e9)
    captures = [other.taken for other in here]
    return any(children_work(t, since_ns) or (owner is not None and child_wakes(t, owner, since_ns)) for t in captures)
