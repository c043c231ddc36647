"""Ranks that move and keep the others waiting: what the samples of a long look say together."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from corpus.catalogue import load_capture, load_catalogue
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.capture import Capture
from hangwatch.model.stacks import StackSample
from recorded import load


def cut_short(sample: StackSample) -> StackSample:
    """The sample as a process that runs on leaves it now and then: a path without its outer end."""
    return replace(sample, threads=tuple(replace(t, frames=t.frames[:1]) for t in sample.threads))


def with_samples(capture: Capture, rank: int, whole: int, cut: int) -> Capture:
    """The capture with so many stacks of a rank."""
    ranks = []
    for one in capture.ranks:
        stacks = one.stacks
        if one.rank == rank:
            stacks = (*[cut_short(stacks[-1])] * cut, *[stacks[-1]] * whole)
        ranks.append(replace(one, stacks=stacks))
    return replace(capture, ranks=tuple(ranks))


@pytest.mark.parametrize(
    ("whole", "cut", "seen"), [(8, 0, True), (8, 2, True), (3, 1, True), (3, 3, False), (1, 0, False)]
)
def test_a_path_cut_short_hides_no_loop(whole: int, cut: int, seen: bool) -> None:
    """A few samples of many that are cut short do not tell against the place where all others are; as many as those do."""
    (entry,) = load_catalogue(["busy-in-a-search-without-end"])
    truth = entry.scenario.truth
    assert truth is not None
    verdict = diagnose(with_samples(load_capture(entry), truth.culprits[0], whole, cut)).verdict
    causes = [cause for cause in (verdict.cause, *verdict.alternatives) if cause is not None]
    reported = [cause for cause in causes if cause.id == "busy-loop" and "in every sample" in cause.explanation]
    assert bool(reported) is seen


def test_what_a_rank_does_after_what_matches_nothing_is_no_cause() -> None:
    """It computes on, as its host runs ahead of the device, and its call sites have not come by then."""
    (entry,) = load_catalogue(["saltd-chess-club"])
    capture = load_capture(entry)
    ranks = []
    for one in capture.ranks:
        assert one.flight is not None
        operations = tuple(replace(operation, frames=()) for operation in one.flight.operations)
        ranks.append(replace(one, flight=replace(one.flight, operations=operations)))
    verdict = diagnose(replace(capture, ranks=tuple(ranks))).verdict
    assert (verdict.kind, verdict.culprit_ranks) == ("deadlock", (2,))
    assert verdict.cause is not None
    assert {cause.id for cause in (verdict.cause, *verdict.alternatives)}.isdisjoint({"straggler", "busy-loop"})


def test_a_rank_that_comes_late_to_a_new_group_has_not_skipped_it() -> None:
    """Only a rank that waits elsewhere, or creates another group, does not match."""
    work, creating = load("rank0_work"), load("group_creation").ranks[0].stacks
    ranks = tuple(
        replace(rank, stacks=creating, flight=None, progress=None) if rank.rank else rank for rank in work.ranks
    )
    verdict = diagnose(replace(work, ranks=ranks)).verdict
    assert verdict.culprit_ranks == (0,)
    assert verdict.cause is not None
    assert "group-creation-mismatch" not in {cause.id for cause in (verdict.cause, *verdict.alternatives)}
