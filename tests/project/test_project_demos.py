"""The table of demo scenarios and the programs beside it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from hangwatch import demos
from hangwatch.demos import DEFAULT, SCENARIOS, Scenario, find_scenario


def test_every_scenario_has_a_name_of_its_own() -> None:
    """Names are what people type, so no two scenarios share one, and each is found by it."""
    assert [find_scenario(scenario.name) for scenario in SCENARIOS] == list(SCENARIOS)
    assert find_scenario("no-such-scenario") is None


def test_every_program_belongs_to_a_scenario() -> None:
    """No program lies in the folder that the table does not know, and none is missing."""
    folder = Path(demos.__file__).parent
    assert {path.name for path in folder.glob("*.py")} - {"__init__.py"} == {scenario.file for scenario in SCENARIOS}


def test_the_default_shows_what_the_project_is_about() -> None:
    """Without a name the demo shows the hung evaluation."""
    assert (DEFAULT.name, DEFAULT.cause, DEFAULT.kind) == ("tuple-labels", "tuple-labels-gather", "deadlock")


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_expectations_fit_together(scenario: Scenario) -> None:
    """Culprits are ranks of the job, a healthy job has neither cause nor culprit, and only a job that ends is healthy."""
    assert set(scenario.culprits) <= set(range(scenario.nproc))
    assert (scenario.cause is None) == (scenario.kind == "healthy")
    assert bool(scenario.culprits) == (scenario.kind != "healthy")
    assert scenario.ends_itself == (scenario.kind in {"healthy", "straggler"})


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_the_programs_do_nothing_when_imported(scenario: Scenario) -> None:
    """Spawned children and DataLoader workers import the program again, so all it does is behind the main guard."""
    body = ast.parse(scenario.path.read_text()).body
    assert isinstance(body[-1], ast.If)
    assert ast.unparse(body[-1].test) == "__name__ == '__main__'"
    allowed = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef, ast.Assign, ast.Expr)
    assert all(isinstance(statement, allowed) for statement in body[:-1])
