"""A rank that awaits its next command: nobody called it, or it was called and left an operation of that call out."""

from __future__ import annotations

import pytest

from scenarios.catalogue import load_catalogue
from scenarios.recording import load, verdict_of


@pytest.mark.parametrize(
    ("name", "first", "beside"),
    [
        ("shard-that-ties-its-head", "skipped-collective", "waits-for-request"),
        ("server-worker-lacks-a-tensor", "waits-for-request", "skipped-collective"),  # a call for each tensor
        ("trainer-keeps-a-frozen-tensor", "thread-stall", "skipped-collective"),
        ("controller-forgets-a-worker", "waits-for-request", "skipped-collective"),
        ("prompt-posted-to-one-worker", "waits-for-request", "skipped-collective"),
        ("worker-taken-for-asleep", "waits-for-request", "skipped-collective"),
    ],
)
def test_whether_a_worker_was_called_is_told_by_what_it_did_last(name: str, first: str, beside: str) -> None:
    """It was, where its last operation is of the call in which the others wait; where that cannot be told, both are shown."""
    (entry,) = load_catalogue([name])
    found = verdict_of(entry)
    assert found.cause is not None
    assert (found.cause.id, beside in {cause.id for cause in found.alternatives}) == (first, True)
    assert ("was called" in found.cause.explanation) is (first == "skipped-collective")


def test_who_reads_through_a_thread_of_zeromq_is_blocked_on_the_other_end() -> None:
    """Its main thread polls an event descriptor, which says nothing; the server has lost the request and awaits others."""
    (entry,) = load_catalogue(["desk-router"])
    found = verdict_of(entry)
    assert found.cause is not None
    assert (found.culprit_ranks, found.cause.id) == ((0,), "blocked-io")
    (server,) = {sample.server for rank in load(entry).ranks if rank.rank == 0 for sample in rank.processes[-1:]}
    assert f"in poll() for process {server}, at the other end of its connection" in found.cause.explanation
