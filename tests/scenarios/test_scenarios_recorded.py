"""The catalogue's hangs as they were captured: what the diagnosis makes of every one, and the bar over all."""

from __future__ import annotations

import pytest

from hangwatch.analysis.patience import fixed_patience
from hangwatch.causes.diagnosis import diagnose
from scenarios.catalogue import Entry, load_catalogue
from scenarios.judging import Judgement, judge_verdict
from scenarios.recording import load, path
from scenarios.tables import BAR, meets_bar, summarize

CATALOGUE = load_catalogue()
RECORDED = [entry for entry in CATALOGUE if path(entry).exists()]


def _judge(entry: Entry) -> Judgement:
    truth = entry.scenario.truth
    assert truth is not None
    # The agent had seen the job for as long as its patience when it took the capture.
    patience = fixed_patience(entry.scenario.patience_s)
    return judge_verdict(entry, truth, diagnose(load(entry), patience=patience, min_wait_s=0.5).verdict)


def test_the_catalogue_is_as_large_as_it_is_meant_to_be() -> None:
    """At least 60 hangs and 20 controls, and a capture of every hang that can run without a GPU."""
    hangs = [entry for entry in CATALOGUE if entry.scenario.truth is not None]
    assert len(hangs) >= 60
    assert len(CATALOGUE) - len(hangs) >= 20
    assert [e.scenario.name for e in hangs if not e.scenario.gpu and not path(e).exists()] == []


@pytest.mark.parametrize("entry", RECORDED, ids=lambda entry: entry.scenario.name)
def test_no_recorded_hang_is_blamed_on_the_wrong_rank(entry: Entry) -> None:
    """A wrong culprit is worse than an unknown one, and a wrong proof is worse still."""
    row = _judge(entry)
    assert row.culprits_right, row.wrong
    assert not row.wrong_proof, row.wrong


def test_the_bar_is_met_on_all_recorded_hangs() -> None:
    """The shares that the project asks of itself."""
    rows = [_judge(entry) for entry in RECORDED]
    figures = summarize(RECORDED, rows, [], {}).figures
    assert meets_bar(figures), (BAR, figures, [(row.name, row.wrong) for row in rows if not row.good])
