"""A rank that waits longer before each attempt: the real hang is named, and no other one is."""

from __future__ import annotations

import pytest

from hangwatch.diagnosis.verdict import diagnose
from recorded import NAMES, load, verdict_of, without

RETRIES = "retry_backoff"


def test_a_rank_between_two_attempts_is_named() -> None:
    """The cause comes first, with the line of the sleep."""
    verdict = verdict_of(RETRIES)
    assert verdict.culprit_ranks == (1,)
    assert verdict.cause is not None
    assert verdict.cause.id == "retry-backoff"
    assert any("time.sleep(delay_s)" in evidence.says for evidence in verdict.cause.evidence)


def test_without_its_source_the_rank_is_not_said_to_retry() -> None:
    """The loop and the ``except`` are known from the source alone."""
    capture = load(RETRIES)
    unread = without(capture, {rank.rank: frozenset({"sources"}) for rank in capture.ranks})
    cause = diagnose(unread).verdict.cause
    assert cause is None or cause.id != "retry-backoff"


@pytest.mark.parametrize("name", [name for name in NAMES if name != RETRIES])
def test_no_other_hang_is_taken_for_one(name: str) -> None:
    """Not even as an alternative."""
    verdict = verdict_of(name)
    causes = (*((verdict.cause,) if verdict.cause else ()), *verdict.alternatives)
    assert "retry-backoff" not in {cause.id for cause in causes}
