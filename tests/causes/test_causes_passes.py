"""Backward passes that are counted on NCCL: one side has had fewer, and the other waits for its device behind the same loop."""

from __future__ import annotations

import msgspec
import pytest

from hangwatch.analysis.case import build_case
from hangwatch.causes.rules.diverged.passes import had_fewer_passes, left_out_between_passes
from hangwatch.model.capture import Capture, RankCapture
from hangwatch.model.stacks import Block, Frame, ThreadStack
from scenarios.catalogue import load_catalogue
from scenarios.recording import load


def kept(name: str) -> Capture:
    """The capture of a scenario."""
    (entry,) = load_catalogue([name])
    return load(entry)


@pytest.fixture
def capture() -> Capture:
    """Ranks 0 and 2 have two backward passes more in flight, and synchronise at the end of the function that trains."""
    return kept("polar-haulout-flights")


def in_the_loop(rank: RankCapture) -> RankCapture:
    """The rank while it is still in the loop over its batches."""
    batches = Block("for", 38, "for images, counts in loader:")

    def frame(old: Frame) -> Frame:
        return msgspec.structs.replace(old, blocks=(batches,)) if old.function == "train" else old

    def thread(old: ThreadStack) -> ThreadStack:
        return msgspec.structs.replace(old, frames=tuple(map(frame, old.frames)))

    stacks = (msgspec.structs.replace(s, threads=tuple(map(thread, s.threads))) for s in rank.stacks)
    return msgspec.structs.replace(rank, stacks=tuple(stacks))


def test_passes_are_counted_up_to_those_that_are_still_queued(capture: Capture) -> None:
    """Neither of them has called what rank 1 has; both are on their way there."""
    match = had_fewer_passes(build_case(capture))
    assert match is not None
    assert match.signature.cause == "uneven-inputs"
    assert "2 backward passes earlier than ranks 0,2" in match.says


def test_a_rank_in_its_loop_has_not_been_counted_to_the_end(capture: Capture) -> None:
    """It may have more batches yet, and go elsewhere then."""
    ranks = tuple(in_the_loop(rank) if rank.rank == 0 else rank for rank in capture.ranks)
    assert had_fewer_passes(build_case(msgspec.structs.replace(capture, ranks=ranks))) is None


def without_passes_before(rank: RankCapture, since: int) -> RankCapture:
    """The rank with a record that begins with a number of its group."""
    assert rank.flight is not None
    operations = tuple(o for o in rank.flight.operations if o.seq >= since)
    return msgspec.structs.replace(rank, flight=msgspec.structs.replace(rank.flight, operations=operations))


def test_what_came_between_two_passes_and_does_not_now_was_left_out() -> None:
    """Rank 1 is in the next backward pass; rank 0 is in the optimizer's broadcast, to which both came in each step before."""
    match = left_out_between_passes(build_case(kept("birds-ringing-zero")))
    assert match is not None
    assert (match.signature.cause, match.evidence[0].rank) == ("skipped-collective", 1)
    assert "birds_ringing_zero.py:65" in match.says


def test_without_a_step_before_nothing_was_left_out() -> None:
    """A record that begins with the last backward pass tells of no habit."""
    capture = kept("birds-ringing-zero")
    diverged_at = build_case(capture).blame.diverged_at
    assert diverged_at is not None
    short = tuple(without_passes_before(rank, diverged_at.seq - 1) for rank in capture.ranks)
    assert left_out_between_passes(build_case(msgspec.structs.replace(capture, ranks=short))) is None
