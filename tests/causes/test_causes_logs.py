"""Logs in the form of real libraries, well and failing: what ``hangwatch diagnose`` makes of each, read as a user has it.

Those under ``logs/failing`` are called ``CAUSE.what-it-is``. Their forms, and how the numbers go, are those of public reports
(each named in its cause's page) and of the libraries' sources; the numbers are made up, but for those called ``real``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.errors import UserError
from hangwatch.model.incident import Verdict
from hangwatch.postmortem.artifacts import read_artifacts

LOGS = Path(__file__).with_name("logs")
#: Training that tells no loss of its own leaves nothing to judge.
_NOTHING_REPORTED = frozenset({"gan-of-its-own.log", "trainer-evaluation-only.log"})


def _judge(path: Path) -> Verdict:
    return diagnose(read_artifacts(path, lambda *_: None).capture).verdict


@pytest.mark.parametrize("name", sorted(path.name for path in (LOGS / "well").iterdir()))
def test_a_training_that_is_well_is_left_alone(name: str) -> None:
    """Whatever looks alike: rewards, warm-up, a loss scale that is searched for, parts of a loss, stages without one."""
    if name in _NOTHING_REPORTED:
        with pytest.raises(UserError, match="holds nothing to diagnose"):
            _judge(LOGS / "well" / name)
        return
    verdict = _judge(LOGS / "well" / name)
    assert (verdict.kind, verdict.cause) == ("healthy", None), verdict.summary
    assert "No silent failure found in" in verdict.summary


@pytest.mark.parametrize(
    "name",
    sorted(p.name for p in (LOGS / "well").iterdir() if p.name not in _NOTHING_REPORTED and "two-runs" not in p.name),
)
def test_a_training_is_well_at_every_line(name: str, tmp_path: Path) -> None:
    """While it runs, only the first part of the log is there; no part of it looks like a failure."""
    lines = (LOGS / "well" / name).read_bytes().splitlines(keepends=True)
    for count in range(1, len(lines) + 1):
        (tmp_path / name).write_bytes(b"".join(lines[:count]))
        try:
            assert _judge(tmp_path / name).kind == "healthy", count
        except UserError:
            assert count < len(lines)


@pytest.mark.parametrize("name", sorted(path.name for path in (LOGS / "failing").iterdir()))
def test_a_training_that_fails_gets_its_cause(name: str) -> None:
    """From the log alone, with what DeepSpeed says of itself in it."""
    verdict = _judge(LOGS / "failing" / name)
    assert verdict.kind == "silent_failure"
    assert verdict.cause is not None
    assert verdict.cause.id == name.partition(".")[0], verdict.summary
    assert verdict.culprit_ranks == ((2,) if "one-rank-of-four" in name else ())


@pytest.mark.parametrize("name", sorted(path.name for path in (LOGS / "failing").iterdir()))
def test_nothing_is_found_before_it_began(name: str, tmp_path: Path) -> None:
    """However much of a log is there: a training is not blamed while three bad lines are not written."""
    lines = (LOGS / "failing" / name).read_bytes().splitlines(keepends=True)
    found = None
    for count in range(1, len(lines) + 1):
        (tmp_path / "train.log").write_bytes(b"".join(lines[:count]))
        try:
            verdict = _judge(tmp_path / "train.log")
        except UserError:
            continue
        found = found or (verdict.summary if verdict.kind == "silent_failure" else None)
        assert found is None or verdict.kind == "silent_failure" or "two-runs" in name, (count, found, verdict.summary)
    assert found is not None
