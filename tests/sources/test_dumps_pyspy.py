"""What people get from ``py-spy dump``, of a real job in which rank 1 reads from a FIFO while rank 0 is in all_reduce."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangwatch.diagnosis.verdict import diagnose
from hangwatch.postmortem.artifacts import read_artifacts

CAPTURES = Path(__file__).resolve().parents[1] / "fixtures" / "pyspy"


@pytest.mark.parametrize("form", ["plain", "locals", "native", "json"])
def test_by_hand(form: str) -> None:
    """As text, with locals, with native frames and as JSON: the same rank, and the lines of the program on both sides."""
    found = read_artifacts(CAPTURES / f"fifo-{form}", lambda _done, _total: None)
    verdict = diagnose(found.capture).verdict
    assert (verdict.kind, verdict.culprit_ranks, verdict.waiting_ranks) == ("stall", (1,), (0,))
    assert verdict.divergence is not None
    assert verdict.divergence.culprit is not None
    assert verdict.divergence.others is not None
    assert verdict.divergence.culprit.function == "read_shard"
    assert verdict.divergence.others.function == "wait_in_all_reduce"
