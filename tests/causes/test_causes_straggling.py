"""Ranks that move and keep the others waiting: what the samples of a long look say together."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.capture import Capture
from hangwatch.model.stacks import StackSample
from scenarios import recording
from scenarios.catalogue import load_catalogue


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
    verdict = diagnose(with_samples(recording.load(entry), truth.culprits[0], whole, cut)).verdict
    causes = [cause for cause in (verdict.cause, *verdict.alternatives) if cause is not None]
    reported = [cause for cause in causes if cause.id == "busy-loop" and "in every sample" in cause.explanation]
    assert bool(reported) is seen
