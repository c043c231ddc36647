"""The kind of a case: a deadlock, a stall, a lost rank, a straggler, or no hang at all. Pure."""

from __future__ import annotations

from hangwatch.analysis.case import Case
from hangwatch.analysis.going_on import goes_on
from hangwatch.analysis.hardware import find_faults
from hangwatch.analysis.patience import STALL_FLOOR_S, Patience
from hangwatch.analysis.ranks.requests import awaits_from_afar, find_awaiting, is_caller_at_work
from hangwatch.analysis.ranks.sleeping import wakes_in_s
from hangwatch.analysis.ranks.views import RankView
from hangwatch.analysis.waiting.answers import waits_for_work
from hangwatch.model.incident import Kind
from hangwatch.model.numbers import is_guest, world_of

#: A main thread that has completed a collective so long ago goes on, where there is no patience to go by.
_GOING_ON_S = 3.0
#: Waits this long are enough where a node is silent, however long it has been.
_SILENT_WAIT_S = 30.0


def judge_kind(case: Case, patience: Patience | None, waited_s: float | None) -> Kind:
    """What a case is, after what has not moved for so long.

    ``patience``: None when a person asks about a job that hangs. ``waited_s``: how long the oldest wait has lasted.
    """
    blame = case.blame
    if blame.shape == "nothing":
        return "healthy"
    if blame.shape in {"blocked", "lingering"}:
        long = patience is None or (waited_s is not None and waited_s >= patience.blocked_s)
        found: Kind = "stall" if blame.shape == "blocked" else "rank_lost"
        return found if long else "healthy"
    if blame.shape == "outside":
        if patience is not None and (waited_s is None or waited_s < patience.stall_s):
            return "healthy"
        return (
            "stall" if patience is not None and waited_s is not None and waited_s >= patience.outside_s else "straggler"
        )
    if _rank_lost(case, patience, waited_s) or _node_lost(case, waited_s):
        return "rank_lost"
    if blame.proof is not None:
        return "deadlock"
    if case.idleness is not None:
        # An engine without requests may be so for ever. In doubt it is reported late, and never as a hang.
        long = (
            case.idleness == "likely" and patience is not None and waited_s is not None and waited_s >= patience.busy_s
        )
        return "straggler" if long else "healthy"
    if goes_on_beside(case, patience):
        # What is stuck beside training may end by itself, and nothing is lost by waiting: it is no hang.
        return "straggler" if patience is None or (waited_s or 0.0) >= patience.busy_s else "healthy"
    afar = _is_answered_from_afar(case)
    here = patience is None or not (afar or _is_of_another_world(case)) or _is_stopped(case) or blame.shape == "cycle"
    stuck = here and _is_stuck(case) and (_is_transfer_stuck(case) or _long(waited_s, patience))
    if patience is None:
        if blame.culprits and not stuck and not any(v.capture.processes for v in case.views.values()):
            # Records alone show of no rank whether it moves, be it one that left none: they are kept of jobs that hang.
            stuck = case.views.keys().isdisjoint(blame.culprits)
        return "stall" if stuck else "straggler" if blame.culprits else "healthy"
    if waited_s is None or waited_s < patience.stall_s:
        return "healthy"
    stuck = stuck and not _has_called(case, int(case.capture.at_ns - patience.stall_s * 1e9))
    stuck = stuck and not _wakes_soon(case, patience, waited_s)
    if stuck or waited_s >= (patience.outside_s if afar else patience.busy_s):
        return "stall"
    return "straggler" if blame.culprits else "healthy"


def goes_on_beside(case: Case, patience: Patience | None) -> bool:
    """Whether training goes on beside what is stuck."""
    window_s = patience.motion_window_s if patience is not None else _GOING_ON_S
    return goes_on(case, int(case.capture.at_ns - window_s * 1e9))


def _is_of_another_world(case: Case) -> bool:
    """Whether ranks wait for another world, which has work of its own: an engine may answer, or load, for long.

    What it does there does not show in its Python stack, so that it does not move says little. A rank may wait for it in the
    group of both, or for the answer to a request, in a read from a socket; there too may be a worker with nothing to do, which
    waits for no answer.
    """
    blame = case.blame
    worlds = {world_of(r) for r in blame.waiting or blame.culprits}
    elsewhere = [r for r in blame.culprits if world_of(r) not in worlds]
    views = [case.views.get(r) for r in blame.culprits if any(map(is_guest, case.views))]
    asking = [v for v in views if v is not None and _reads_socket(v) and find_awaiting(v) is None]
    return bool(blame.culprits) and (bool(elsewhere) or len(asking) == len(blame.culprits))


def _is_answered_from_afar(case: Case) -> bool:
    """Whether all culprits await answers of actors and tasks of Ray, or of other machines, or are the actors that are to answer.

    Rollouts, judges and tools take as long as they take.
    """
    asking = {r for r, view in case.views.items() if awaits_from_afar(view)}
    asked = {
        r for e in case.graph.edges if e.reason == "answer" and not asking.isdisjoint(e.waiters) for r in e.awaited
    }
    return bool(case.blame.culprits) and asking | asked >= set(case.blame.culprits)


def _is_stopped(case: Case) -> bool:
    """Whether all culprits are stopped: whatever they had to do, they do not."""
    views = [case.views.get(r) for r in case.blame.culprits]
    return bool(views) and all(view is not None and view.motion.state == "stopped" for view in views)


def _reads_socket(view: RankView) -> bool:
    if view.wait is not None or not view.capture.processes:
        return False
    return (view.capture.processes[-1].blocked_on or "").startswith("socket:[")


def _rank_lost(case: Case, patience: Patience | None, waited_s: float | None) -> bool:
    """Whether a culprit's process is gone; of those that may be started anew, whether that has not come in time."""
    gone = {r for r in case.blame.culprits if r in case.views and case.views[r].gone}
    returning = {r for e in case.graph.edges if e.reason == "returning" for r in e.awaited}
    late = patience is None or (waited_s is not None and waited_s >= patience.stall_s)
    return bool(gone if late else gone - returning)


def _node_lost(case: Case, waited_s: float | None) -> bool:
    """Whether a culprit's node is silent, and others have waited about as long: a short wait is of a job that goes on."""
    silent = [n.silent_s for n in case.capture.silent if not set(n.ranks).isdisjoint(case.blame.culprits)]
    return bool(silent) and waited_s is not None and waited_s >= min(min(silent) / 2, _SILENT_WAIT_S)


def _is_transfer_stuck(case: Case) -> bool:
    """Whether it is known that a transfer all have joined does not move, and is not merely behind work on the GPU.

    On NCCL an operation is in flight from when it is enqueued, while its GPU may have a minute of computing before it.
    """
    operation = case.operation
    live = any(case.views[r].capture.processes for r in case.blame.waiting if r in case.views)
    if case.blame.shape != "together" or operation is None or operation.backend != "nccl" or not live:
        return True
    here = case.history.at(operation.group.key, operation.seq)
    begun = all(o.started for o in here.values())
    return begun or bool(find_faults(case.capture, here, operation.created_ns))


def _has_called(case: Case, since_ns: int) -> bool:
    """Whether a culprit that is in no operation now has called one since then: others may wait for what is longer than a step.

    A trainer hands its weights to an engine one by one, and its peers await it in their next step all the while.
    """
    seen = [v for r in case.blame.culprits if (v := case.views.get(r)) is not None and v.frontier is None]
    called = [v.capture.flight.operations for v in seen if v.capture.flight is not None]
    return any(len(recorded) and recorded[-1].created_ns > since_ns for recorded in called)


def _wakes_soon(case: Case, patience: Patience, waited_s: float) -> bool:
    """Whether all culprits are in one sleep each, or have a child that is, for most of the wait, which ends within another
    patience. One that is stopped sleeps past its time."""
    since_ns = case.capture.at_ns - int(waited_s / 2 * 1e9)
    views = [case.views.get(r) for r in case.blame.culprits]
    ends = [wakes_in_s(v.capture, since_ns) if v is not None and v.motion.state != "stopped" else None for v in views]
    return bool(ends) and all(end is not None and end <= patience.stall_s for end in ends)


def _long(waited_s: float | None, patience: Patience | None) -> bool:
    """Whether even work on the GPU would have ended by now."""
    return waited_s is not None and waited_s >= (patience.busy_s if patience is not None else STALL_FLOOR_S)


def _is_stuck(case: Case) -> bool:
    """Whether the ranks to blame do not move, as far as can be seen."""
    blame = case.blame
    seen = [case.views[r] for r in blame.culprits or blame.waiting if r in case.views]
    if not seen:
        # Ranks of other nodes may well be at work. Only one that never reached the rendezvous is known to be missing.
        waits = (case.views[r].wait for r in blame.waiting)
        return any(w is not None and w.kind == "initialization" for w in waits)
    if all(find_awaiting(view) is not None and is_caller_at_work(view) for view in seen):
        return False  # who is to call them computes
    if not blame.culprits and not all(view.settled for view in seen):
        return False  # one has called something while it was looked at: what it is, the next record shows
    moves = ["busy" if waits_for_work(view, case.views) else view.motion.state for view in seen]
    return any(m in {"stuck", "stopped"} for m in moves) or "busy" not in moves
