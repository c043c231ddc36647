"""The one diagnosis: a capture in, a verdict out. Live, on a bundle and on dumps alike. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from hangwatch.analysis.case import Case, build_case
from hangwatch.analysis.divergence.call_sites import Difference, first_difference
from hangwatch.analysis.divergence.find import annotated
from hangwatch.analysis.divergence.frames import call_site
from hangwatch.analysis.hardware import find_faults
from hangwatch.analysis.idle import find_idleness
from hangwatch.analysis.operations.alignment import Side
from hangwatch.analysis.operations.signatures import describe
from hangwatch.analysis.patience import STALL_FLOOR_S, Patience
from hangwatch.analysis.places import source_lines
from hangwatch.analysis.ranks.requests import find_awaiting, is_caller_at_work
from hangwatch.causes.calibration import is_whole
from hangwatch.causes.registry import explain
from hangwatch.causes.signature import Match
from hangwatch.diagnosis.causes import to_causes
from hangwatch.diagnosis.training import describe_training, diagnose_training
from hangwatch.model.capture import Capture
from hangwatch.model.collectives import DEFAULT_GROUP
from hangwatch.model.incident import Cause, Collective, Divergence, Kind, Severity, SourceLine, Verdict
from hangwatch.model.text import format_ranks

_SEVERITY: Mapping[str, Severity] = {
    "deadlock": "critical",
    "stall": "critical",
    "rank_lost": "critical",
    "straggler": "warning",
    "silent_failure": "warning",
    "healthy": "info",
}
#: Waits this long are enough where a node is silent, however long it has been.
_SILENT_WAIT_S = 30.0


@dataclass(frozen=True)
class Diagnosis:
    """A verdict and the case it rests on. ``waited_s``: how long the oldest pending operation has been pending.

    ``onset_ns`` (wall clock) is when that began: the oldest pending operation, or the first bad step of a training.
    """

    verdict: Verdict
    case: Case
    waited_s: float | None
    onset_ns: int | None


def diagnose(
    capture: Capture, *, patience: Patience | None = None, min_wait_s: float = 0.0, before: Case | None = None
) -> Diagnosis:
    """Diagnose a capture.

    ``patience``: how long what cannot be proven may last; None when a person asks about a job that hangs, and whatever
    has not moved counts. ``min_wait_s``: operations younger than this are no waits yet.
    ``before``: the case of the same capture, with the same patience, when some of its ranks showed less.
    """
    window_s = patience.motion_window_s if patience is not None else None
    case = build_case(capture, min_wait_s=min_wait_s, motion_window_s=window_s, before=before)
    silent = diagnose_training(capture.training, capture.job.world_size)
    if silent is not None:  # the capture was made for that, at ranks in the middle of their steps
        return Diagnosis(silent.verdict, case, None, silent.onset_ns)
    since = min((ns for ns in (case.onset_ns, case.still_since_ns) if ns is not None), default=None)
    waited = (capture.at_ns - since) / 1e9 if since is not None else None
    kind = _kind(case, patience, waited)
    if kind == "healthy":
        return Diagnosis(_healthy(case), case, waited, case.onset_ns)
    return Diagnosis(_verdict(case, kind, explain(case)), case, waited, case.onset_ns)


def _kind(case: Case, patience: Patience | None, waited_s: float | None) -> Kind:
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
    idleness = find_idleness(case)
    if idleness is not None:
        # An engine without requests may be so for ever. In doubt it is reported late, and never as a hang.
        long = idleness == "likely" and patience is not None and waited_s is not None and waited_s >= patience.busy_s
        return "straggler" if long else "healthy"
    still = _stands_still(case) and (_transfer_stands(case) or _long(waited_s, patience))
    if patience is None:
        if blame.culprits and not still and not any(v.capture.processes for v in case.views.values()):
            # Records alone show of no rank whether it moves, be it one that left none: they are kept of jobs that hang.
            still = case.views.keys().isdisjoint(blame.culprits)
        return "stall" if still else "straggler" if blame.culprits else "healthy"
    if waited_s is None or waited_s < patience.stall_s:
        return "healthy"
    if still or waited_s >= patience.busy_s:
        return "stall"
    return "straggler" if blame.culprits else "healthy"


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


def _transfer_stands(case: Case) -> bool:
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


def _long(waited_s: float | None, patience: Patience | None) -> bool:
    """Whether even work on the GPU would have ended by now."""
    return waited_s is not None and waited_s >= (patience.busy_s if patience is not None else STALL_FLOOR_S)


def _stands_still(case: Case) -> bool:
    """Whether the ranks to blame do not move, as far as can be seen."""
    blame = case.blame
    seen = [case.views[r] for r in blame.culprits or blame.waiting if r in case.views]
    if not seen:
        # Ranks of other nodes may well be at work. Only one that never reached the rendezvous is known to be missing.
        waits = (case.views[r].wait for r in blame.waiting)
        return any(w is not None and w.kind == "initialization" for w in waits)
    if all(find_awaiting(view) is not None and is_caller_at_work(view) for view in seen):
        return False  # who is to call them computes
    moves = [view.motion.state for view in seen]
    return any(m in {"stuck", "stopped"} for m in moves) or "busy" not in moves


def _healthy(case: Case) -> Verdict:
    waiting = case.blame.waiting
    training = case.capture.training
    if training is not None and not case.capture.ranks:
        return Verdict("healthy", False, "info", describe_training(training))
    if waiting and (idleness := find_idleness(case)) is not None:
        seems = "seems to await" if idleness == "likely" else "awaits"
        summary = (
            f"No hang found: {_who(case.blame.culprits)} {seems} work from outside, and the others their next command."
        )
        return Verdict("healthy", False, "info", summary, waiting_ranks=waiting, waits=case.waits())
    summary = "No hang found: every rank moves or waits for no longer than is ordinary."
    return Verdict("healthy", False, "info", summary, waiting_ranks=waiting, waits=case.waits())


def _verdict(case: Case, kind: Kind, found: tuple[Match, ...]) -> Verdict:
    cause, others = to_causes(found, whole=is_whole(case))
    proof = case.blame.proof
    return Verdict(
        kind=kind,
        proven=proof is not None,
        severity=_SEVERITY[kind],
        summary=_summary(case, kind, cause),
        collective=_collective(case),
        culprit_ranks=case.blame.culprits,
        waiting_ranks=case.blame.waiting,
        divergence=_divergence(case),
        cause=cause,
        alternatives=others,
        proof=proof,
        waits=case.waits(),
    )


def _who(ranks: tuple[int, ...]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {format_ranks(ranks)}"


def _summary(case: Case, kind: Kind, cause: Cause) -> str:
    blame = case.blame
    where = _where(case)
    title = cause.title[0].lower() + cause.title[1:]
    if blame.shape == "outside":
        return f"{_who(blame.waiting).capitalize()} wait in {where}, in the end {_whom_outside(case)}."
    if not blame.culprits and case.operation is None:
        return (
            f"{_who(blame.waiting).capitalize()} wait in {where} and nothing moves; in which groups could not be seen."
        )
    if not blame.culprits:
        return f"All of {_who(blame.waiting)} joined {where} and nothing completes: {title}."
    holders = _who(blame.culprits)
    if blame.shape == "blocked":
        return f"All of {holders} are stuck, in no collective: {title}."
    if blame.shape == "lingering":
        return f"The job does not end: all but {holders} stay at the end of their program, waiting for none: {title}."
    if not blame.waiting:
        return f"{holders[0].upper()}{holders[1:]} wait for each other in {where}: {title}."
    verb = {"deadlock": "can never get past", "straggler": "are waiting in"}.get(kind, "are blocked in")
    waiting = _who(blame.waiting)
    if len(blame.waiting) == 1:
        verb = verb.replace("are", "is", 1)
    return f"{waiting[0].upper()}{waiting[1:]} {verb} {where} because of {holders}: {title}."


def _whom_outside(case: Case) -> str:
    """Whom the waiting leads to, of a group that has members which no rank of the job says it is."""
    edges = [e for e in case.graph.edges if e.reason == "outside"]
    ranks = tuple(sorted({r for e in edges for r in e.waiters}))
    labels = dict.fromkeys(e.operation.group.label for e in edges if e.operation is not None)
    groups = f" of {' and '.join(labels)}" if labels else ""
    return f"for a member{groups} that no rank of this job says it is: {_who(ranks)} cannot go on, and it is not visible here"


def _on(line: SourceLine | None, rank: int | None, side: Side | None) -> SourceLine | None:
    """The line with the ranks that are on its side."""
    if line is None or rank is None:
        return line
    return msgspec.structs.replace(line, ranks=side.ranks if side is not None else (rank,))


def _where(case: Case) -> str:
    """The operations that the ranks concerned are in, the first two of them."""
    ranks = [r for r in case.blame.waiting or case.blame.culprits if r in case.views]
    names = []
    for view in (case.views[r] for r in ranks):
        if view.frontier is not None:
            names.append(f"{view.frontier.op} of {view.frontier.group.label}")
        elif view.wait is not None:
            names.append(view.wait.op)
    return " and ".join(list(dict.fromkeys(names))[:2]) or "a wait for other ranks"


def _collective(case: Case) -> Collective | None:
    operation = case.operation
    if operation is not None:
        return Collective(
            op=operation.op,
            group=operation.group.label,
            group_ranks=operation.group.ranks,
            seq=operation.seq,
            sizes=operation.input_sizes,
            dtypes=operation.input_dtypes,
        )
    waits = [w for r in case.blame.waiting if (w := case.views[r].wait) is not None]
    if not waits:
        return None
    everyone = waits[0].default_group or waits[0].kind in {"initialization", "group_creation"}
    return Collective(
        waits[0].op, DEFAULT_GROUP if everyone else "unknown", case.world if everyone else (), None, (), ()
    )


def _divergence(case: Case) -> Divergence | None:
    one, other = case.representatives
    difference = first_difference(case, one, other) if one is not None and other is not None else None
    if difference is not None and one is not None and other is not None:
        return _silent_divergence(case, difference, one, other)
    culprit, others = case.lines()
    if culprit is None and others is None:
        return None
    diverged_at = case.blame.diverged_at
    if diverged_at is None:
        return Divergence(culprit=_on(culprit, one, None), others=_on(others, other, None))
    mine = diverged_at.side_of(one) if one is not None else None
    theirs = diverged_at.side_of(other) if other is not None else None
    return Divergence(
        culprit=_on(culprit, one, mine),
        others=_on(others, other, theirs),
        group=diverged_at.group.label,
        seq=diverged_at.seq,
        culprit_op=describe(mine.operation) if mine and mine.operation else None,
        others_op=describe(theirs.operation) if theirs and theirs.operation else None,
    )


def _silent_divergence(case: Case, difference: Difference, one: int, other: int) -> Divergence:
    """The ranks diverged at operations that look alike and went through as a pair; only their lines differ."""
    here = case.history.at(difference.key, difference.seq)
    sides = {
        r: tuple(sorted(x for x, o in here.items() if call_site(o.frames or ()) == call_site(here[r].frames or ())))
        for r in (one, other)
    }
    culprit, others = source_lines(annotated(case, difference.ours), annotated(case, difference.theirs))
    return Divergence(
        culprit=msgspec.structs.replace(culprit, ranks=sides[one]) if culprit is not None else None,
        others=msgspec.structs.replace(others, ranks=sides[other]) if others is not None else None,
        group=here[one].group.label,
        seq=difference.seq,
        culprit_op=describe(here[one]),
        others_op=describe(here[other]),
    )
