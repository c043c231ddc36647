"""Every demo scenario, a real job each: found, named rightly, ended whole, its bundle complete and diagnosable again.

One of each kind is in `make test`, the others in `make soak`: their captures are diagnosed after each change."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import msgspec
import pytest
from watched_runs import NO_PATIENCE_S, Outcome, is_provable, lines_of

from hangwatch.demos import SCENARIOS, Scenario, find_scenario
from hangwatch.model.incident import Incident
from support import JobRunner

#: One of a gathering, a dead rank, one that is stopped, and a worker that is stuck. That of a condition (rank-conditional) is run
#: by the pages' commands (``test_e2e_pages.py``) and in pods (``deploy/test_deploy_image.py``).
_FIRST = ("tuple-labels", "rank-killed", "stopped-rank", "dataloader")
_HANGING = [scenario for scenario in SCENARIOS if scenario.name in _FIRST]
_OTHERS = [scenario for scenario in SCENARIOS if scenario.name not in _FIRST and not scenario.ends_itself]
_ENDING = [scenario for scenario in SCENARIOS if scenario.ends_itself]

each_hanging = pytest.mark.parametrize("outcome", [scenario.name for scenario in _HANGING], indirect=True)
each_provable = pytest.mark.parametrize("outcome", [one.name for one in _HANGING if is_provable(one)], indirect=True)


def _scenario(name: str) -> Scenario:
    found = find_scenario(name)
    assert found is not None
    return found


def _told(incident: Incident) -> tuple[str, str | None, tuple[int, ...]]:
    verdict = incident.verdict
    return verdict.kind, verdict.cause.id if verdict.cause else None, verdict.culprit_ranks


def _at(moment: str | None) -> datetime:
    assert moment is not None
    return datetime.fromisoformat(moment.replace("Z", "+00:00"))


@each_hanging
def test_a_hang_is_named_as_promised(outcome: Outcome) -> None:
    """One incident, with the kind, cause and culprits that the table of scenarios promises."""
    scenario = _scenario(outcome.name)
    told = [_told(incident) for incident in outcome.incidents]
    assert told == [(scenario.kind, scenario.cause, scenario.culprits)], outcome.stderr


@pytest.mark.parametrize("outcome", ["dataloader"], indirect=True)
def test_the_line_of_the_worker_is_named(outcome: Outcome) -> None:
    """What the worker is stuck at, in the program's own words: not only that it delivers nothing."""
    cause = outcome.incidents[0].verdict.cause
    assert cause is not None
    assert "read_image (demos/dataloader.py:44): return torch.tensor(list(file.read(16)" in cause.explanation


@each_hanging
def test_a_confirmed_hang_is_stopped_whole(outcome: Outcome) -> None:
    """The job is ended with status 75 and no process of it is left, stopped ones and orphans included."""
    assert outcome.status == 75, outcome.stderr
    assert outcome.left == ()
    assert "Traceback" not in "\n".join(lines_of(outcome.stderr))


@each_hanging
def test_the_bundle_is_complete(outcome: Outcome) -> None:
    """The document fits the model, every rank has its files, stacks are there, and nobody else can read them."""
    (bundle,), (incident,) = outcome.bundles, outcome.incidents
    assert incident.schema == "hangwatch.incident/3"
    assert incident.id == bundle.name
    assert _at(incident.onset_at) <= _at(incident.confirmed_at) <= _at(incident.ended_at)
    assert incident.captured["stacks"]
    assert incident.captured["beats"]
    # On a busy machine a recorder may not answer in time; then it is said.
    recorded = incident.captured["flight_recorder"] or any("flight recorder" in what for what in incident.missing)
    assert recorded == any(entry.groups for entry in incident.ranks), incident.missing
    ranks = range(_scenario(outcome.name).nproc)
    assert [entry.rank for entry in incident.ranks] == list(ranks)
    assert incident.job.world_size == len(ranks)
    stacks = (bundle / "stacks.txt").read_text()
    assert Path(_scenario(outcome.name).file).name in stacks
    lines = [json.loads(line) for line in (bundle / "ranks.jsonl").read_text().splitlines()]
    assert [line["rank"] for line in lines] == list(ranks)
    everything = [bundle, *bundle.rglob("*")]
    assert {path.stat().st_mode & 0o777 for path in everything if path.is_dir()} == {0o700}
    assert {path.stat().st_mode & 0o777 for path in everything if path.is_file()} == {0o600}


@each_hanging
def test_the_verdict_is_printed_once(outcome: Outcome) -> None:
    """The terminal shows cause and bundle on standard error, and the job's own standard output is left alone."""
    (incident,) = outcome.incidents
    assert incident.verdict.cause is not None
    assert outcome.stderr.count(incident.verdict.cause.id) >= 1
    assert "".join(outcome.stderr.split()).count("".join(str(outcome.bundles[0]).split())) == 1
    assert "hangwatch:" not in outcome.stdout
    assert incident.id not in outcome.stdout


@each_hanging
def test_diagnose_says_the_same_of_the_bundle(outcome: Outcome, jobs: JobRunner) -> None:
    """``hangwatch diagnose BUNDLE`` comes to the same kind, cause and culprits, and says so by its status."""
    (incident,) = outcome.incidents
    again = jobs.hangwatch("diagnose", outcome.bundles[0], "--json")
    assert again.wait() == 1, again.stderr()
    assert again.stderr() == ""
    document = msgspec.json.decode(again.stdout(), type=Incident)
    assert _told(document) == _told(incident)
    assert (document.id, document.onset_at, document.confirmed_at) == (
        incident.id,
        incident.onset_at,
        incident.confirmed_at,
    )


@pytest.mark.soak  # `slow` is run by test_e2e_healthy.py; a straggler on NCCL, by test_device_verdicts.py
@pytest.mark.parametrize("outcome", [one.name for one in _ENDING], indirect=True)
def test_what_ends_by_itself_is_no_hang(outcome: Outcome) -> None:
    """A job that is only slow comes to its own end, and at most the promised warning is given."""
    scenario = _scenario(outcome.name)
    assert outcome.status == 0, outcome.stderr
    assert outcome.left == ()
    told = [_told(incident) for incident in outcome.incidents]
    allowed = [(scenario.kind, scenario.cause, scenario.culprits)] if scenario.kind == "straggler" else []
    assert told in ([], allowed)


@each_provable
def test_a_proof_takes_no_patience(outcome: Outcome) -> None:
    """With an hour's patience a hang that can be proven is confirmed as soon as it is proven; how soon is printed."""
    (incident,) = outcome.incidents
    assert incident.verdict.proven
    assert incident.verdict.proof
    took_s = (_at(incident.confirmed_at) - _at(incident.onset_at)).total_seconds()
    print(f"{outcome.name}: proven {took_s:.1f} s after its onset")
    assert 0 < took_s < NO_PATIENCE_S


@pytest.mark.soak
@pytest.mark.parametrize("outcome", [scenario.name for scenario in _OTHERS], indirect=True)
def test_every_other_demo_is_all_that(outcome: Outcome, jobs: JobRunner) -> None:
    """Named, stopped, kept, printed, diagnosed again, and without patience where it can be proven."""
    test_a_hang_is_named_as_promised(outcome)
    test_a_confirmed_hang_is_stopped_whole(outcome)
    test_the_bundle_is_complete(outcome)
    test_the_verdict_is_printed_once(outcome)
    test_diagnose_says_the_same_of_the_bundle(outcome, jobs)
    if is_provable(_scenario(outcome.name)):
        test_a_proof_takes_no_patience(outcome)
