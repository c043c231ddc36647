"""Controls: jobs that stand still for longer than the patience, or look like a fault, and are well."""

from __future__ import annotations

import pytest
from watched_runs import Outcome, lines_of


def _assert_no_hang(outcome: Outcome) -> None:
    """No deadlock, stall or lost rank."""
    assert outcome.status == 0, outcome.stderr
    assert {incident.verdict.kind for incident in outcome.incidents} <= {"straggler"}
    assert not any("about to end the job" in line for line in lines_of(outcome.stderr))


@pytest.mark.parametrize("outcome", ["slow"], indirect=True)
def test_slow_is_never_a_hang(outcome: Outcome) -> None:
    """1.5 s a step against nothing."""
    _assert_no_hang(outcome)


@pytest.mark.usefixtures("long")
@pytest.mark.parametrize("outcome", ["rank0-work", "all-save"], indirect=True)
def test_work_of_one_or_of_all_is_never_a_hang(outcome: Outcome) -> None:
    """A rank busy for 12 s, and all ranks saving for 20 s; of the second nothing is said at all."""
    _assert_no_hang(outcome)
    if outcome.name == "all-save":
        test_where_nothing_is_wrong_nothing_is_said(outcome)


@pytest.mark.parametrize("outcome", ["slow"], indirect=True)
def test_where_nothing_is_wrong_nothing_is_said(outcome: Outcome) -> None:
    """A job in which no rank is at fault gets no incident at all, not even a warning."""
    assert outcome.incidents == ()
    assert len(lines_of(outcome.stderr)) == 1
    assert "metrics at http://127.0.0.1:" in lines_of(outcome.stderr)[0]


@pytest.mark.usefixtures("long")
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
    assert outcome.stdout.count("[rank 1] step 10\n") == 1
    assert outcome.left == ()
