"""A rank that awaits its next command: nobody called it, or it left an operation of its last call out."""

from __future__ import annotations

import pytest

from corpus.catalogue import load_capture, load_catalogue
from scenarios.recording import verdict_of


@pytest.mark.parametrize(
    ("name", "first", "beside"),
    [
        ("server-worker-lacks-a-tensor", "waits-for-request", "ranks-diverged"),  # a call for each tensor
        ("trainer-keeps-a-frozen-tensor", "thread-stall", "ranks-diverged"),
    ],
)
def test_a_worker_that_awaits_its_next_command_may_have_left_out_an_operation(
    name: str, first: str, beside: str
) -> None:
    """Where nothing tells whether it was called, both are shown."""
    (entry,) = load_catalogue([name])
    found = verdict_of(entry)
    assert found.cause is not None
    assert (found.cause.id, beside in {cause.id for cause in found.alternatives}) == (first, True)


def test_who_reads_through_a_thread_of_zeromq_is_blocked_on_the_other_end() -> None:
    """Its main thread polls an event descriptor, which says nothing; the server has lost the request and awaits others."""
    (entry,) = load_catalogue(["desk-router"])
    found = verdict_of(entry)
    assert found.cause is not None
    assert (found.culprit_ranks, found.cause.id) == ((0,), "blocked-io")
    (server,) = {
        sample.server for rank in load_capture(entry).ranks if rank.rank == 0 for sample in rank.processes[-1:]
    }
    assert f"in poll() waiting for process {server} at the other end of its connection" in found.cause.explanation
