"""Controls: jobs that stand still for longer than the patience, or look like a fault, and are well.

That no hang is found where one rank works and the others wait is seen of the demos (``test_e2e_scenarios.py``).
"""

from __future__ import annotations

import pytest
from watched_runs import Outcome, find_bundles, lines_of


def _assert_nothing_is_said(outcome: Outcome) -> None:
    assert outcome.status == 0, outcome.stderr
    assert outcome.incidents == ()
    assert len(lines_of(outcome.stderr)) == 1
    assert "metrics at http://127.0.0.1:" in lines_of(outcome.stderr)[0]


@pytest.mark.soak  # the demo below runs the same job
@pytest.mark.parametrize("outcome", ["slow"], indirect=True)
def test_where_nothing_is_wrong_nothing_is_said(outcome: Outcome) -> None:
    """1.5 s a step against nothing: no rank is at fault, and there is no incident at all, not even a warning."""
    _assert_nothing_is_said(outcome)


@pytest.mark.usefixtures("long")
@pytest.mark.parametrize("outcome", ["all-save"], indirect=True)
def test_of_work_of_all_nothing_is_said(outcome: Outcome) -> None:
    """All ranks save for 20 s."""
    _assert_nothing_is_said(outcome)


@pytest.mark.soak  # CI replays its like: eval-list-of-dicts-alike of the recorded controls
@pytest.mark.parametrize("outcome", ["even-tuple-labels"], indirect=True)
def test_labels_of_the_same_structure_are_never_blamed(outcome: Outcome) -> None:
    """Labels that are a tuple of as many tensors on every rank are gathered without a word."""
    assert outcome.status == 0, outcome.stderr
    assert outcome.incidents == ()
    assert outcome.stdout.count("evaluated") == 4


@pytest.mark.parametrize("outcome", ["demo-slow"], indirect=True)
def test_the_demo_of_a_slow_job_shows_that_it_is_left_alone(outcome: Outcome) -> None:
    """``hangwatch demo slow`` ends well and says why."""
    assert outcome.status == 0, outcome.stderr
    assert "PASS: the job finished in " in outcome.stdout
    (state,) = (outcome.folder / "tmp").glob("hangwatch-demo-*")
    assert find_bundles(state) == (), "not even a warning"
    assert outcome.stdout.count("[rank 1] step 10\n") == 1
    assert outcome.left == ()
