"""The kind of a case: a deadlock, a stall, a lost rank, a straggler, or no hang at all. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from hangwatch.analysis.case import Case
from hangwatch.analysis.patience import STALL_FLOOR_S, STEP_S, Patience
from hangwatch.analysis.ranks.file_locks import find_lock_file
from hangwatch.analysis.ranks.requests import awaits_from_afar, find_awaiting
from hangwatch.analysis.ranks.views import RankView
from hangwatch.analysis.stuck import (
    are_stopped,
    goes_on_beside,
    have_called,
    stand_still,
    wake_soon,
)
from hangwatch.analysis.waiting.blame import Shape
from hangwatch.hardware.analysis import find_faults
from hangwatch.model.incident import Kind
from hangwatch.model.numbers import is_guest, world_of

#: A wait of so many seconds is long enough for a lost node, however long the node has been silent.
_SILENT_WAIT_S = 30.0


@dataclass(frozen=True)
class _Wait:
    """What is judged: a case, the ``patience`` with it, and how long its oldest wait has lasted (None: not known).

    ``patience`` is None if a person asks about a job that hangs.
    """

    case: Case
    patience: Patience | None
    waited_s: float | None

    @property
    def shape(self) -> Shape:
        """How the ranks of the case wait for each other."""
        return self.case.blame.shape

    def has_lasted(self, limit_s: float) -> bool:
        """True if the wait is known to have lasted for ``limit_s`` seconds."""
        return self.waited_s is not None and self.waited_s >= limit_s


def _is_lost(wait: _Wait) -> bool:
    """True if a culprit's process, or its node, is gone. One that may be started anew gets the patience to come back."""
    case, patience = wait.case, wait.patience
    gone = {r for r in case.blame.culprits if r in case.views and case.views[r].gone}
    returning = {r for e in case.graph.edges if e.reason == "returning" for r in e.awaited}
    late = patience is None or wait.has_lasted(patience.stall_s)
    return bool(gone if late else gone - returning) or _is_node_lost(wait)


def _is_node_lost(wait: _Wait) -> bool:
    """True if a culprit's node is silent, and others have waited about as long: a short wait is of a job that goes on."""
    culprits = wait.case.blame.culprits
    silent_s = [n.silent_s for n in wait.case.capture.silent if not set(n.ranks).isdisjoint(culprits)]
    return bool(silent_s) and wait.has_lasted(min(min(silent_s) / 2, _SILENT_WAIT_S))


def _is_too_short(wait: _Wait) -> bool:
    """True if the wait is not known to have lasted as long as anything unproven must."""
    return wait.patience is not None and not wait.has_lasted(wait.patience.stall_s)


def _may_just_run(wait: _Wait) -> bool:
    """True if a person asks, and all have joined the operation in flight and nothing tells that this was long ago.

    Gloo's recorder learns a moment later that an operation is done. A record without the time at which it was taken does
    not tell how old its last entry is.
    """
    joined = wait.case.operation is not None and not wait.case.graph.edges
    return wait.patience is None and joined and not wait.has_lasted(STEP_S)


def _is_answered_from_afar(wait: _Wait) -> bool:
    """True if every culprit awaits an answer of Ray or of another machine, or is the actor that is to answer.

    Rollouts, judges and tools take as long as they take.
    """
    case = wait.case
    asking = {r for r, view in case.views.items() if awaits_from_afar(view)}
    asked = {
        r for e in case.graph.edges if e.reason == "answer" and not asking.isdisjoint(e.waiters) for r in e.awaited
    }
    return bool(case.blame.culprits) and asking | asked >= set(case.blame.culprits)


def _is_of_another_world(case: Case) -> bool:
    """True if ranks wait for another world, which has work of its own: an engine may answer, or load, for long.

    Its work does not show in its Python stack, so that it does not move tells little. A rank may wait for it in the
    group of both, or for the answer to a request, in a read from a socket. A worker with nothing to do, which may be in
    such a read too, waits for no answer. A rank's own children, such as a manager of multiprocessing, are no other world.
    """
    blame = case.blame
    worlds = {world_of(r) for r in blame.waiting or blame.culprits}
    elsewhere = [r for r in blame.culprits if world_of(r) not in worlds]
    views = [case.views.get(r) for r in blame.culprits if any(map(is_guest, case.views))]
    asking = [v for v in views if v is not None and _reads_socket(v) and find_awaiting(v) is None]
    return bool(blame.culprits) and (bool(elsewhere) or len(asking) == len(blame.culprits))


def _reads_socket(view: RankView) -> bool:
    if view.wait is not None or not view.capture.processes:
        return False
    last = view.capture.processes[-1]
    own = bool(last.other_ends) and {child.pid for child in last.children}.issuperset(last.other_ends)
    return (last.blocked_on or "").startswith("socket:[") and not own


def _awaits_lock_beside(wait: _Wait) -> bool:
    """True if all culprits wait for lock files that living processes beside the job have: those work, or will have ended.

    Of one that a rank or its child has, the rank is who it depends on.
    """
    case = wait.case
    culprits = [case.views.get(rank) for rank in case.blame.culprits]
    samples = [view.sample for view in case.views.values() if view.sample is not None]
    own = {sample.pid for sample in samples} | {child.pid for sample in samples for child in sample.children}

    def awaits(view: RankView | None) -> bool:
        owner = view.sample.lock_owner if view is not None and view.sample is not None else None
        return view is not None and owner is not None and owner not in own and find_lock_file(view.frames) is not None

    return bool(culprits) and case.blame.proof is None and all(map(awaits, culprits))


def _is_stuck(wait: _Wait) -> bool:
    """True if the culprits do not move, and what they do has no other reason to take so long.

    Culprits of another world count only if they can do nothing: stopped, or in a cycle.
    """
    case, patience, waited_s = wait.case, wait.patience, wait.waited_s
    elsewhere = patience is not None and (_is_answered_from_afar(wait) or _is_of_another_world(case))
    if elsewhere and not are_stopped(case) and wait.shape != "cycle":
        return False
    # Even work on the GPU would have ended by then.
    long = wait.has_lasted(patience.busy_s if patience is not None else STALL_FLOOR_S)
    if not stand_still(case, asked=patience is None) or not (long or _is_transfer_stuck(case)):
        return False
    if patience is None or waited_s is None:
        return True
    return not have_called(case, patience.stall_s) and not wake_soon(case, waited_s, patience.stall_s)


#: How long a wait has to last, by the field of ``Patience``; ``at_once``: however short.
_Limit = Literal["at_once", "stall", "blocked", "busy", "outside"]
#: A test of the wait, the kind if a person asks, and the kind once the wait has reached a limit (ascending).
_Row = tuple[Callable[[_Wait], bool], Kind, Mapping[_Limit, Kind]]

#: The first row that fits decides. Before its first limit a wait is no hang.
_ROWS: tuple[_Row, ...] = (
    (lambda wait: wait.shape == "nothing", "healthy", {}),
    (_awaits_lock_beside, "straggler", {"stall": "straggler", "outside": "stall"}),
    (lambda wait: wait.shape == "blocked", "stall", {"blocked": "stall"}),
    (lambda wait: wait.shape == "lingering", "rank_lost", {"blocked": "rank_lost"}),
    (lambda wait: wait.shape == "outside", "straggler", {"stall": "straggler", "outside": "stall"}),
    (_is_lost, "rank_lost", {"at_once": "rank_lost"}),
    (lambda wait: wait.case.blame.proof is not None, "deadlock", {"at_once": "deadlock"}),
    (_may_just_run, "healthy", {}),
    # An engine may have no requests for ever. If that is in doubt it is reported late, and never as a hang.
    (lambda wait: wait.case.idleness == "idle", "healthy", {}),
    (lambda wait: wait.case.idleness == "likely", "healthy", {"busy": "straggler"}),
    # What is stuck beside training may end by itself, and nothing is lost by waiting: it is no hang.
    (lambda wait: goes_on_beside(wait.case, wait.patience), "straggler", {"busy": "straggler"}),
    (_is_too_short, "healthy", {}),
    (_is_stuck, "stall", {"stall": "stall"}),
    (_is_answered_from_afar, "straggler", {"stall": "straggler", "outside": "stall"}),
    (lambda wait: bool(wait.case.blame.culprits), "straggler", {"stall": "straggler", "busy": "stall"}),
    (lambda _: True, "healthy", {"busy": "stall"}),
)


@dataclass(frozen=True)
class Judgement:
    """The kind of a case. ``lasted_s``: for how many seconds the wait had to last to be called so.

    ``hang_s``: after how many it is called a stall at the latest, if the kind is a warning; None if never, or not known.
    """

    kind: Kind
    lasted_s: float = 0.0
    hang_s: float | None = None


def judge_kind(case: Case, patience: Patience | None, waited_s: float | None) -> Judgement:
    """Return the kind of a case.

    ``patience``: None if a person asks about a job that hangs. ``waited_s``: how long the oldest wait has lasted.
    """
    wait = _Wait(case, patience, waited_s)
    asked, in_time = next((asked, in_time) for fits, asked, in_time in _ROWS if fits(wait))
    if patience is None:
        return Judgement(asked)
    limits: Mapping[_Limit, float] = {
        "at_once": 0.0,
        "stall": patience.stall_s,
        "blocked": patience.blocked_s,
        "busy": patience.busy_s,
        "outside": patience.outside_s,
    }
    reached = [
        (kind, limits[limit]) for limit, kind in in_time.items() if limit == "at_once" or wait.has_lasted(limits[limit])
    ]
    kind, lasted_s = reached[-1] if reached else ("healthy", 0.0)
    hang_s = next((limits[limit] for limit, later in in_time.items() if later == "stall"), None)
    return Judgement(kind, lasted_s, hang_s if kind == "straggler" else None)


def _is_transfer_stuck(case: Case) -> bool:
    """True unless all have joined an NCCL operation that may still be behind work on the GPU.

    On NCCL an operation is in flight from when it is enqueued, while its GPU may have a minute of computing before it.
    """
    operation = case.operation
    live = any(case.views[r].capture.processes for r in case.blame.waiting if r in case.views)
    if case.blame.shape != "together" or operation is None or operation.backend != "nccl" or not live:
        return True
    here = case.history.at(operation.group.key, operation.seq)
    begun = all(o.started for o in here.values())
    return begun or bool(find_faults(case.capture, here, operation.created_ns))
