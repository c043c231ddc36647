"""Hangs on a real GPU as they were captured there, and what is said of them now (``scenarios.on_gpu --all``, docs/status.md)."""

from __future__ import annotations

from functools import cache

import pytest

from corpus.archives import read
from corpus.catalogue import ON_CARD, decode_capture, load_catalogue
from hangwatch.analysis.patience import fixed_patience
from hangwatch.diagnosis.verdict import diagnose
from scenarios.judging import Judgement, judge_verdict

ENTRIES = {entry.scenario.name: entry for entry in load_catalogue()}
KEPT = {name.removesuffix(".json"): content for name, content in read(ON_CARD)}
HANGS = [name for name in KEPT if ENTRIES[name].scenario.truth is not None]
CONTROLS = sorted(set(KEPT) - set(HANGS))


@cache
def said_of(name: str) -> Judgement:
    """The row of a hang."""
    truth = ENTRIES[name].scenario.truth
    assert truth is not None
    return judge_verdict(ENTRIES[name], truth, diagnose(decode_capture(KEPT[name])).verdict)


@pytest.mark.parametrize("name", HANGS)
def test_the_culprits_of_a_hang_on_a_gpu_are_named(name: str) -> None:
    """And nothing is proven of others."""
    row = said_of(name)
    assert row.culprits_right
    assert not row.wrong_proof


@pytest.mark.parametrize(
    "name", ["nccl-plate-left-out", "nccl-plate-left-out-fsdp1", "nccl-error-of-the-last-stage", "polar-glacier-keep"]
)
def test_a_rank_that_spins_until_all_have_connected_is_stuck(name: str) -> None:
    """A communicator's first collective waits on the host, at the full speed of a core; it passed for work, and was a warning."""
    found = diagnose(decode_capture(KEPT[name]), patience=fixed_patience(6.0))
    assert found.verdict.kind in {"stall", "deadlock"}


def test_the_causes_of_hangs_on_a_gpu_meet_the_bar_of_the_simulated_device() -> None:
    """First 92 %, among three 97 %."""
    rows = [said_of(name) for name in HANGS]
    assert sum(bool(row.cause_first) for row in rows) / len(rows) >= 0.92
    assert sum(bool(row.cause_in_three) for row in rows) / len(rows) >= 0.97


@pytest.mark.parametrize("name", CONTROLS)
def test_no_hang_is_seen_in_a_job_that_went_on_on_a_gpu(name: str) -> None:
    """It was reported, and stopped, before what was wrong was mended."""
    patience = fixed_patience(ENTRIES[name].scenario.patience_s)
    assert diagnose(decode_capture(KEPT[name]), patience=patience).verdict.kind == "healthy"
