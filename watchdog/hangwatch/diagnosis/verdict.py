"""The one diagnosis: a capture in, a verdict out. Live, on a bundle and on dumps alike. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec

from hangwatch.analysis.case import Case, build_case
from hangwatch.analysis.divergence.call_sites import first_difference
from hangwatch.analysis.divergence.find import annotated
from hangwatch.analysis.divergence.relate import Difference
from hangwatch.analysis.operations.alignment import SequenceSide
from hangwatch.analysis.operations.signatures import describe
from hangwatch.analysis.patience import Patience
from hangwatch.analysis.places import call_path, call_site, source_lines
from hangwatch.analysis.ranks.views import view_rank
from hangwatch.causes.calibration import is_whole
from hangwatch.causes.match import Match
from hangwatch.diagnosis.causes import to_causes
from hangwatch.diagnosis.failure import judge_failure
from hangwatch.diagnosis.judged import SEVERITY, Judged, judge, window_of
from hangwatch.diagnosis.registry import explain
from hangwatch.diagnosis.slow import diagnose_slow
from hangwatch.diagnosis.summary import summarize, summarize_healthy
from hangwatch.diagnosis.training import describe_training, diagnose_training
from hangwatch.model.capture import Capture
from hangwatch.model.collectives import DEFAULT_GROUP
from hangwatch.model.incident import HANG_KINDS, Collective, Divergence, Kind, SourceLine, Verdict
from hangwatch.model.numbers import is_guest
from hangwatch.model.serving import EngineState
from hangwatch.model.transforms.names import names_of, with_names
from hangwatch.serving.analysis.stall import find_engine_stall
from hangwatch.serving.kind import judge_engine, mention_engine, summarize_engine


@dataclass(frozen=True)
class Diagnosis:
    """A verdict and the case it rests on. ``waited_s``: how long the oldest pending operation has been pending.

    ``onset_ns`` (wall clock) is when that began: the oldest pending operation, or the first bad step of a training. ``lasted_s``:
    how long the wait had to last to be called what the verdict calls it. ``first``: what the rule of the first cause has said;
    None if no rule was asked.
    """

    verdict: Verdict
    case: Case
    waited_s: float | None
    onset_ns: int | None
    lasted_s: float = 0.0
    first: Match | None = None


def diagnose(
    capture: Capture, *, patience: Patience | None = None, min_wait_s: float = 0.0, before: Case | None = None
) -> Diagnosis:
    """Return the diagnosis of a capture.

    ``patience``: how long what cannot be proven may last; None when a person asks about a job that hangs, and whatever
    has not moved counts. ``min_wait_s``: operations younger than this are no waits yet. ``before``: the case of the
    same capture, with the same patience, when some of its ranks showed less. Threads that await work, or are stuck
    beside a training that goes on, are left out: what else hangs shows without them. A serving engine's ranks are
    diagnosed by themselves first, and then with its other processes, its requests and its progress.
    """
    engine = capture.engine
    if capture.failed:
        ranks = _diagnose_ranks(capture, None, 0.0, None)
        return replace(ranks, verdict=judge_failure(ranks.case, ranks.verdict))
    if engine is None:
        return _diagnose_ranks(capture, patience, min_wait_s, before)
    own = msgspec.structs.replace(capture, ranks=tuple(r for r in capture.ranks if r.rank not in engine.beside))
    return _with_engine(_diagnose_ranks(own, patience, min_wait_s, before), capture, engine, patience)


def _diagnose_ranks(capture: Capture, patience: Patience | None, min_wait_s: float, before: Case | None) -> Diagnosis:
    found = _found_in_steps(capture)
    if found is None:
        return _explained(judge(capture, patience=patience, min_wait_s=min_wait_s, before=before))
    # The ranks were captured in the middle of their steps: judge no hang by it.
    case = build_case(capture, min_wait_s=min_wait_s, motion_window_s=window_of(patience), before=before)
    return Diagnosis(found[0], case, None, found[1])


def _found_in_steps(capture: Capture) -> tuple[Verdict, int] | None:
    """Return the verdict on a job that goes on, and its onset (wall clock, ns): it learns nothing, or something is slow."""
    silent = diagnose_training(capture.training, capture.job.world_size)
    if silent is not None or capture.slow is None:
        return silent
    return diagnose_slow(capture.slow, capture.at_ns)


def _explained(judged: Judged) -> Diagnosis:
    case, kind = judged.case, judged.kind
    found = explain(case) if kind != "healthy" else ()
    verdict = _verdict(case, kind, found) if found else _healthy(case)
    if judged.judgement.hang_s is not None:
        later = f"It counts as a hang once the wait has lasted {judged.judgement.hang_s:.0f} s."
        verdict = msgspec.structs.replace(verdict, summary=f"{verdict.summary} {later}")
    verdict = _named(verdict, names_of(case.capture))
    first = found[0] if found else None
    return Diagnosis(verdict, case, judged.waited_s, case.onset_ns, judged.judgement.lasted_s, first)


def _with_engine(ranks: Diagnosis, capture: Capture, engine: EngineState, patience: Patience | None) -> Diagnosis:
    """Return the diagnosis of an engine's ranks, with its other processes and the fact that nothing comes out of it."""
    since_ns = int(capture.at_ns - patience.motion_window_s * 1e9) if patience is not None else 0
    beside = {r.rank: view_rank(r, since_ns) for r in capture.ranks if r.rank in engine.beside}
    views = {**ranks.case.views, **beside}
    # If no rank of an engine is seen, its world is its other processes.
    case = replace(ranks.case, capture=capture, views=views, world=ranks.case.world or tuple(sorted(views)))
    names = names_of(capture)
    stall = find_engine_stall(engine, case.views, ranks.case)
    blamed = replace(case, blame=stall.blame)
    found = explain(blamed)
    kind = judge_engine(engine, stall, ranks.case, ranks.verdict.kind, found, patience)
    if kind is None or kind == ranks.verdict.kind == "straggler":
        verdict = ranks.verdict
        if verdict.kind != "healthy" and engine.demanded:
            verdict = msgspec.structs.replace(verdict, summary=mention_engine(engine, verdict.summary))
        return replace(ranks, verdict=_named(verdict, names), case=case)
    verdict = _verdict(blamed, kind, found)
    verdict = msgspec.structs.replace(
        verdict,
        summary=summarize_engine(engine, stall, kind, verdict.cause) if verdict.cause is not None else verdict.summary,
        collective=None,
        waits=(f"{engine.name}: {engine.says}", *ranks.verdict.waits),
    )
    onset_ns = capture.at_ns - int(engine.still_s * 1e9)
    return Diagnosis(_named(verdict, names), blamed, engine.still_s, onset_ns, engine.patience_s, found[0])


def _named(verdict: Verdict, names: dict[int, str]) -> Verdict:
    """Return the verdict as people read it, with processes of other worlds by their names."""
    return msgspec.structs.replace(with_names(verdict, names), names=names) if names else verdict


def _healthy(case: Case) -> Verdict:
    training = case.capture.training
    if training is not None and not case.capture.ranks:
        return Verdict("healthy", False, "info", describe_training(training))
    waiting = case.blame.waiting
    return Verdict("healthy", False, "info", summarize_healthy(case), waiting_ranks=waiting, waits=case.waits())


def _verdict(judged: Case, kind: Kind, found: tuple[Match, ...]) -> Verdict:
    cause, others = to_causes(found, whole=is_whole(judged), hangs=kind in HANG_KINDS)
    case = name_side(judged, found[0])
    proof = case.blame.proof
    return Verdict(
        kind=kind,
        proven=proof is not None,
        severity=SEVERITY[kind],
        summary=summarize(case, kind, cause),
        collective=_collective(case),
        culprit_ranks=case.blame.culprits,
        waiting_ranks=case.blame.waiting,
        divergence=_divergence(case),
        cause=cause,
        alternatives=others,
        proof=proof,
        waits=case.waits(),
        culprits_from="waits" if case is judged else "cause",
    )


def _on(case: Case, line: SourceLine | None, rank: int | None, side: SequenceSide | None) -> SourceLine | None:
    """Return the line with the ranks on its side.

    If the sides are not known, these are all ranks at the line that are to blame, if ``rank`` is, or else that wait.
    """
    if line is None or rank is None:
        return line
    if side is not None:
        return msgspec.structs.replace(line, ranks=side.ranks)
    alike = case.blame.culprits if rank in case.blame.culprits else case.blame.waiting
    seen = (case.views[r] for r in alike if r in case.views)
    at_it = (v.rank for v in seen if any((f.file, f.line) == (line.file, line.line) for f in v.frames))
    return msgspec.structs.replace(line, ranks=tuple(sorted({rank, *at_it})))


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
    members = tuple(r for r in case.world if not is_guest(r)) if everyone else ()
    return Collective(waits[0].op, DEFAULT_GROUP if everyone else "unknown", members, None, (), ())


def _divergence(case: Case) -> Divergence | None:
    one, other = case.representatives
    difference = first_difference(case, one, other) if one is not None and other is not None else None
    if difference is not None and one is not None and other is not None:
        return _silent_divergence(case, difference, one, other)
    culprit, others = case.lines()
    last = case.last_call(one) if one is not None and culprit is None else None
    if last is not None:
        culprit, _ = source_lines(annotated(case, last.frames or ()), ())
    if culprit is None and others is None:
        return None
    since = f"no operation since {describe(last)}" if last is not None else None
    diverged_at = case.blame.diverged_at
    if diverged_at is None:
        return Divergence(
            culprit=_on(case, culprit, one, None), others=_on(case, others, other, None), culprit_op=since
        )
    culprit_side = diverged_at.side_of(one) if one is not None else None
    other_side = diverged_at.side_of(other) if other is not None else None
    return Divergence(
        culprit=_on(case, culprit, one, culprit_side),
        others=_on(case, others, other, other_side),
        group=diverged_at.group.label,
        seq=diverged_at.seq,
        culprit_op=describe(culprit_side.operation) if culprit_side and culprit_side.operation else since,
        others_op=describe(other_side.operation) if other_side and other_side.operation else None,
    )


def _silent_divergence(case: Case, difference: Difference, one: int, other: int) -> Divergence:
    """Return the divergence of ranks whose operations look alike and went through as a pair: only their lines differ."""
    here = case.history.at(difference.key, difference.seq)
    sides = {
        r: tuple(sorted(x for x, o in here.items() if call_path(o.frames or ()) == call_path(here[r].frames or ())))
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


def name_side(case: Case, first: Match) -> Case:
    """Return the case with one side of a tie as its culprits: the one that did what the ``first`` cause says.

    Return it unchanged if the waits already name culprits, the cause leaves it open, or there are more than two sides.
    """
    blame = case.blame
    if blame.shape != "cycle" or blame.waiting or first.side not in blame.culprits:
        return case
    places = {rank: _place_of_side(case, rank) for rank in blame.culprits}
    culprits = tuple(rank for rank, place in places.items() if place == places[first.side])
    others = tuple(rank for rank in places if rank not in culprits)
    if len({places[rank] for rank in others}) != 1:
        return case
    return replace(case, blame=replace(blame, culprits=culprits, waiting=others))


def _place_of_side(case: Case, rank: int) -> object:
    """Return what the ranks of one side share: what they called where the ranks diverged, else the line they are in."""
    diverged_at = case.blame.diverged_at
    side = diverged_at.side_of(rank) if diverged_at is not None else None
    return side.ranks if side is not None else call_site(case.side_frames(rank)) or rank
