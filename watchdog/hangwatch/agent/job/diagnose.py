"""Makes a diagnosis of a capture, and captures more where that may change the verdict.

May import the analysis, the diagnosis and the capturing room. Knows nothing of a job but its captures.
"""

from __future__ import annotations

import asyncio

from hangwatch.agent.capturing.hardware import OF_THE_LOST
from hangwatch.agent.capturing.scope import CaptureScope
from hangwatch.agent.job.second_look import look_at
from hangwatch.analysis.patience import Patience
from hangwatch.analysis.ranks.requests import find_awaiting
from hangwatch.causes.precedence import goes_before
from hangwatch.diagnosis.verdict import Diagnosis, diagnose
from hangwatch.model.capture import Capture, RankCapture
from hangwatch.model.incident import Verdict

#: Operations younger than this when captured are no waits yet.
MIN_WAIT_S = 0.5
#: Of how many ranks, at the most, call sites are fetched before a verdict is reported.
CALL_SITES_LIMIT = 8


async def judge(capture: Capture, patience: Patience, before: Diagnosis | None = None) -> Diagnosis:
    """Return the diagnosis. It may take seconds for thousands of ranks, so it runs in a thread.

    ``before``: the diagnosis of the same capture, of which some ranks tell more now.
    """
    case = before.case if before is not None else None
    return await asyncio.to_thread(diagnose, capture, patience=patience, min_wait_s=MIN_WAIT_S, before=case)


async def with_hardware(scope: CaptureScope, diagnosis: Diagnosis, patience: Patience) -> Diagnosis:
    """Return the diagnosis with the state of the nodes' GPUs and fabric, where that may change the verdict.

    A proof does not need it and does not wait for it; the bundle gets it later.
    """
    kind, case = diagnosis.verdict.kind, diagnosis.case
    together = case.blame.shape == "together" and (diagnosis.waited_s or 0.0) >= patience.stall_s
    if kind == "deadlock" or (kind in {"healthy", "straggler"} and not together):
        return diagnosis
    capture = await scope.hardware(case.capture, OF_THE_LOST if kind == "rank_lost" else None)
    if capture is case.capture:
        return diagnosis
    return await judge(capture, patience, before=diagnosis)


async def with_order(scope: CaptureScope, diagnosis: Diagnosis, patience: Patience) -> Diagnosis:
    """Return the diagnosis with the call sites of unfinished transfers, where every rank has called what it waits in.

    The call site (``dist.send``, a batch) tells whether a send holds up what is queued behind it on a device.
    """
    case = diagnosis.case
    if case.blame.shape != "together" or (diagnosis.waited_s or 0.0) < patience.stall_s:
        return diagnosis
    views = [case.views[r] for r in case.blame.waiting if r in case.views]
    transfers = [v.rank for v in views if v.frontier is not None and v.frontier.p2p and not v.frontier.frames]
    if not transfers:
        return diagnosis
    return await judge(await scope.call_sites(case.capture, sorted(transfers)), patience, before=diagnosis)


async def with_call_sites(scope: CaptureScope, diagnosis: Diagnosis, patience: Patience) -> Diagnosis:
    """Return the diagnosis with the call sites of both sides, where ranks diverged: their history tells why.

    Otherwise with those of the ranks shown, if their stacks no longer have the call: on NCCL the host goes on.
    """
    blame = diagnosis.case.blame
    shown = {r for r in diagnosis.case.representatives if r is not None}
    if blame.shape == "cycle" or (blame.diverged_at is not None and blame.diverged_at.mismatch):
        wanted = shown | set(blame.component[:CALL_SITES_LIMIT])
    elif any(r in diagnosis.case.views and find_awaiting(diagnosis.case.views[r]) for r in blame.culprits):
        wanted = shown  # whether it was called, what it did last tells
    else:
        wanted = {r for r in shown if diagnosis.case.ran_ahead(r)}
    wanted -= {r for r in wanted if (v := diagnosis.case.views.get(r)) is not None and _has_call_sites(v.taken)}
    if not wanted:
        return diagnosis
    capture = await scope.call_sites(diagnosis.case.capture, sorted(wanted))
    again = await judge(capture, patience, before=diagnosis)
    return again if again.verdict.kind == diagnosis.verdict.kind else diagnosis


def _has_call_sites(rank: RankCapture) -> bool:
    return rank.flight is not None and rank.flight.source == "pickle"


def supersedes(diagnosis: Diagnosis, reported: Verdict) -> bool:
    """Return whether the diagnosis replaces the reported verdict.

    It does if a straggler has become another kind, or if the node of a stall's culprits is now known to be lost.
    """
    verdict = diagnosis.verdict
    if verdict.kind == reported.kind:
        return False
    silent = {rank for node in diagnosis.case.capture.silent for rank in node.ranks}
    lost = verdict.kind == "rank_lost" and silent.issuperset({*verdict.culprit_ranks, *reported.culprit_ranks})
    return reported.kind == "straggler" or (reported.kind == "stall" and lost)


def explains_better(diagnosis: Diagnosis, reported: Diagnosis) -> bool:
    """Return whether a later look at the same wait names another cause that speaks for itself and takes precedence.

    Precedence is an order, so a report is renewed once or twice and never goes back and forth.
    """
    now, before = diagnosis.first, reported.first
    if now is None or before is None or now.cause == before.cause or now.level not in {"certain", "strong"}:
        return False
    look, known = look_at(diagnosis), look_at(reported)
    return goes_before(now, before) and look.is_like(known) and not look.moved_since(known)


def names_unseen(diagnosis: Diagnosis) -> bool:
    """Return whether an unproven verdict names ranks of which there are neither samples nor stacks."""
    named = set(diagnosis.verdict.culprit_ranks)
    unseen = {r.rank for r in diagnosis.case.capture.ranks if not (r.processes or r.stacks)}
    sure = diagnosis.verdict.proven or diagnosis.verdict.kind == "rank_lost"
    return not sure and not named.isdisjoint(unseen)
