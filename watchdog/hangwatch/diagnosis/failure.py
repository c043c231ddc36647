"""A job that has failed: whether its ranks' calls did not match, by what they have left. Pure.

Most jobs fail for another reason, and then this says nothing: a rank with an error of its own tells more.
"""

from __future__ import annotations

import msgspec

from hangwatch.analysis.case import Case
from hangwatch.analysis.operations.signatures import describe
from hangwatch.analysis.places import user_frame
from hangwatch.analysis.ranks.failing import does_not_fit, failed_by_itself, is_lost_peer, left_in_order
from hangwatch.analysis.ranks.views import RankView
from hangwatch.causes.rules.diverged.operations import message
from hangwatch.diagnosis.causes import to_causes
from hangwatch.diagnosis.judged import SEVERITY
from hangwatch.diagnosis.summary import in_a_sentence, list_ranks
from hangwatch.model.capture import RankCapture
from hangwatch.model.incident import Verdict
from hangwatch.model.text import short_place


def judge_failure(case: Case, found: Verdict) -> Verdict:
    """Return the verdict on a failed job. ``found``: the verdict if its ranks still stood where they failed."""
    ranks = case.capture.ranks
    seen = {rank.rank for rank in ranks if rank.flight is not None or rank.ended}
    own = next(filter(failed_by_itself, ranks), None)
    if own is not None:
        what = f": {own.log_error[-1]}" if own.log_error else ""
        return _nothing(f"rank {own.rank} failed with an error of its own{what}")
    explained = found.kind != "healthy" and bool(found.culprit_ranks) and seen.issuperset(found.culprit_ranks)
    if not (explained and (_records_differ(case) or _one_has_left(case))):
        if any(map(does_not_fit, ranks)):
            return _of_message(case, found)
        lost = next((v for v in case.views.values() if is_lost_peer(v.taken.log_error) and v.frames), None)
        if lost is None:
            return _nothing("the records of the ranks do not show that their calls differ")
        return _nothing(
            f"rank {lost.rank} lost its connection in {_called(lost)}, and nothing shows why the other side ended"
        )
    summary = _summarize(case, found)
    return msgspec.structs.replace(
        found, kind="failed", severity=SEVERITY["failed"], summary=summary, proven=False, proof=None, waits=()
    )


def _nothing(why: str) -> Verdict:
    return Verdict("healthy", False, "info", f"No mismatch found: {why}.")


def _of_message(case: Case, found: Verdict) -> Verdict:
    """Return the verdict by Gloo's own message: it is certain that calls did not match, but not what each rank had called."""
    ended = next(rank.rank for rank in case.capture.ranks if does_not_fit(rank))
    called = {v.rank: _called(v) for v in case.views.values() if v.frontier is not None or v.wait is not None}
    said = [f"rank {ended} got a message that did not fit {called.pop(ended, 'the collective that it had called')}"]
    said += [f"rank {rank} had called {what}" for rank, what in sorted(called.items())[:1]]
    ranks = tuple(sorted(rank.rank for rank in case.capture.ranks))
    summary = f"The job failed because {'; '.join(said)}."
    # The rank without a record may have called anything.
    cause, others = to_causes([m for m in (message(case),) if m is not None], whole=False)
    return msgspec.structs.replace(
        found, kind="failed", severity=SEVERITY["failed"], summary=summary, culprit_ranks=ranks, waiting_ranks=(),
        cause=cause, alternatives=others, proven=False, proof=None, waits=(),
    )  # fmt: skip


def _records_differ(case: Case) -> bool:
    """True if two ranks called different operations at one number, and the failure is one that follows from that."""
    diverged_at = case.blame.diverged_at
    if diverged_at is None or not diverged_at.mismatch:
        return False
    everyone = {rank.rank for rank in case.capture.ranks if _is_accounted(rank)} >= set(case.world)
    return everyone or any(map(does_not_fit, case.capture.ranks))


def _is_accounted(rank: RankCapture) -> bool:
    """True if it is known how a rank ended, or where it was when its launcher ended it."""
    return rank.terminated or rank.ended or is_lost_peer(rank.log_error) or bool(rank.stacks)


def _one_has_left(case: Case) -> bool:
    """True if the culprits have left the program in order while others were in a collective, and failed for want of them."""
    culprits = set(case.blame.culprits)
    left = {rank.rank for rank in case.capture.ranks if left_in_order(rank)}
    failed = {
        r.rank for r in case.capture.ranks if is_lost_peer(r.log_error) and case.views[r.rank].frontier is not None
    }
    return culprits <= left and bool(failed & set(case.blame.waiting))


def _summarize(case: Case, found: Verdict) -> str:
    """Return who called what, and why, in one sentence."""
    title = in_a_sentence(found.cause.title) if found.cause is not None else "calls did not match"
    diverged_at = case.blame.diverged_at
    sides = [s for s in diverged_at.sides if s.operation is not None] if diverged_at is not None else []
    if len(sides) > 1:
        called = [f"{list_ranks(side.ranks)} called {describe(side.operation)}" for side in sides[:2] if side.operation]
        return f"The job failed because {called[0]} where {called[1]}: {title}."
    left, waiting = list_ranks(case.blame.culprits), list_ranks(case.blame.waiting)
    op = f" in {case.operation.op}" if case.operation is not None else ""
    verb = "was" if len(case.blame.waiting) == 1 else "were"
    return f"The job failed because {left} left while {waiting} {verb}{op}: {title}."


def _called(view: RankView) -> str:
    """Return what a rank was in, with the program's line: ``all_reduce of Float[4] (train.py:20)``."""
    operation, wait = view.frontier, view.wait
    what = describe(operation) if operation is not None else wait.op if wait is not None else "a collective"
    at = user_frame(view.frames)
    return f"{what} ({short_place(at.file, at.line)})" if at is not None else what
