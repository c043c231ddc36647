"""The GitHub Action: valid by its schema, and its shell steps do what they say on real commands. GitHub itself was not here."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from hangwatch import __version__
from hangwatch.demos import find_scenario
from hangwatch.diagnosis.document import make_incident
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.outputs.bundle.bundle import write_bundle
from recorded import load
from support import SOURCE_ROOT, Job, JobRunner

pytestmark = pytest.mark.usefixtures("real")

ACTION = Path(__file__).resolve().parents[2] / "deploy" / "github"
DEFINED = yaml.safe_load((ACTION / "action.yml").read_text())
SCRIPTS = sorted(path.name for path in ACTION.glob("*.sh"))
STEPS = {step["name"]: step for step in DEFINED["runs"]["steps"]}


def validate(schema: str, file: Path) -> int:
    """The exit status of check-jsonschema with a schema that it brings along (SchemaStore's), without the network."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", file]
    return subprocess.run(command, capture_output=True, check=False).returncode


def test_action_and_example_are_valid_by_their_schemas(tmp_path: Path) -> None:
    """And an action with a step that is none is not."""
    assert validate("github-actions", ACTION / "action.yml") == 0
    assert validate("github-workflows", ACTION / "workflow.yml") == 0
    wrong = tmp_path / "action.yml"
    wrong.write_text((ACTION / "action.yml").read_text().replace("using: composite", "using: composed"))
    assert validate("github-actions", wrong) != 0


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_scripts_are_sound(name: str) -> None:
    """``bash -n`` and shellcheck (as strict as it is by default) find nothing."""
    for command in (["bash", "-n"], ["shellcheck", "--shell=bash"]):
        found = subprocess.run([*command, ACTION / name], capture_output=True, text=True, check=False)
        assert (found.returncode, found.stdout, found.stderr) == (0, "", "")


def test_zizmor_finds_what_the_page_says() -> None:
    """Offline, in the action and the example: actions named by tags, as docs/operations.md says, and nothing else."""
    command = [
        "zizmor",
        "--offline",
        "--no-exit-codes",
        "--format",
        "json",
        ACTION / "action.yml",
        ACTION / "workflow.yml",
    ]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert {one["ident"] for one in msgspec.json.decode(found.stdout)} == {"unpinned-uses"}


def test_no_input_becomes_a_part_of_a_script() -> None:
    """What a caller gives comes as a variable; every input is used, and every output is set by a step."""
    for step in STEPS.values():
        assert "${{" not in step.get("run", "")
    text = (ACTION / "action.yml").read_text()
    assert set(re.findall(r"inputs\.([a-z-]+)", text)) == set(DEFINED["inputs"])
    example = yaml.safe_load((ACTION / "workflow.yml").read_text())
    (step,) = [one for one in example["jobs"]["test"]["steps"] if "hangwatch" in one.get("uses", "")]
    assert set(step["with"]) <= set(DEFINED["inputs"])
    assert step["uses"].endswith(f"@v{__version__}")


@dataclass(frozen=True)
class Runner:
    """What GitHub gives a step: folders and files of its own. ``given``: the inputs of the caller."""

    jobs: JobRunner
    folder: Path
    given: Mapping[str, str]

    def step(self, name: str, **more: str) -> Job:
        """Run the script of a step as GitHub does, with its variables filled in, to its end."""
        step: dict[str, Any] = STEPS[name]
        files = {file: str(self.folder / file.lower()) for file in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
        environment = {**files, "RUNNER_TEMP": str(self.folder), "PYTHONPATH": str(SOURCE_ROOT), **more}
        environment |= {variable: self.fill(text) for variable, text in step["env"].items()}
        job = self.jobs.start(["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]], env=environment)
        job.wait(300.0)
        return job

    def fill(self, text: str) -> str:
        """The text with the expressions that the action uses in variables."""

        def value(found: re.Match[str]) -> str:
            kind, _, name = found[1].partition(".")
            if kind == "inputs":
                return self.given.get(name, self.fill(str(DEFINED["inputs"][name].get("default", ""))))
            assert found[1] == "github.action_path"
            return str(ACTION)

        return re.sub(r"\$\{\{ ([a-z._-]+) \}\}", value, text)

    def written(self, file: str) -> str:
        """What the steps have written to one of GitHub's files."""
        path = self.folder / file
        return path.read_text() if path.exists() else ""


def test_a_hang_is_ended_and_reported(jobs: JobRunner, tmp_path: Path) -> None:
    """A real torchrun job that hangs: status 75, the verdict in the summary, its bundle where the artifact is taken from."""
    scenario = find_scenario("rank-conditional")
    assert scenario is not None
    command = f"echo begun\n{' '.join(scenario.command())}\necho never"
    runner = Runner(jobs, tmp_path, {"run": command, "python": sys.executable, "package": ""})
    assert runner.step("Install hangwatch").process.returncode == 0
    ran = runner.step("Run under hangwatch")
    assert ran.process.returncode == 75, ran.stderr()
    assert "begun" in ran.stdout()
    assert "never" not in ran.stdout()
    reported = runner.step("Report")
    assert reported.process.returncode == 0, reported.stderr()
    assert runner.written("github_output") == "incidents=1\n"
    summary = runner.written("github_step_summary")
    assert summary.startswith("## Deadlock, proven\n")
    assert "`dist.all_reduce(mean)`" in summary
    kept = STEPS["Keep the bundles"]["with"]["path"].replace("${{ runner.temp }}", str(tmp_path))
    assert len(list(Path(kept).glob("*/report.html"))) == 1


@pytest.mark.parametrize(("command", "status"), [("true\necho fine", 0), ("false\necho not reached", 1), ("exit 7", 7)])
def test_without_a_hang_the_status_is_the_commands_own(
    jobs: JobRunner, tmp_path: Path, command: str, status: int
) -> None:
    """As of a step with ``shell: bash``; then there is nothing to report or to keep."""
    runner = Runner(jobs, tmp_path, {"run": command, "python": sys.executable, "package": "", "stall-after": "60"})
    ran = runner.step("Run under hangwatch")
    assert ran.process.returncode == status, ran.stderr()
    assert "not reached" not in ran.stdout()
    assert runner.step("Report").process.returncode == 0
    assert runner.written("github_output") == "incidents=0\n"
    assert runner.written("github_step_summary") == ""


def test_it_installs_this_repository_and_allows_stacks(jobs: JobRunner, tmp_path: Path) -> None:
    """pip gets the folder above the action, and sudo what a runner's kernel needs; without sudo there is a warning."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, script in (
        ("python", 'echo "python $*"'), ("id", "echo 1001"), ("sudo", '[ -z "$REFUSED" ] && echo "sudo $*"'),
    ):  # fmt: skip
        (tools / name).write_text(f"#!/bin/sh\n{script}\n")
        (tools / name).chmod(0o755)
    scope = tmp_path / "ptrace_scope"
    scope.write_text("1\n")
    found = {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}", "HANGWATCH_PTRACE_SCOPE": str(scope)}
    runner = Runner(jobs, tmp_path, {})
    said = runner.step("Install hangwatch", REFUSED="", **found).stdout().splitlines()
    assert said[0].startswith("python -m pip install ")
    assert Path(said[0].split()[-1]).resolve() == ACTION.parents[1]
    assert said[1:] == ["sudo -n sysctl --quiet kernel.yama.ptrace_scope=0"]
    refused = runner.step("Install hangwatch", REFUSED="1", **found)
    assert refused.process.returncode == 0
    assert refused.stdout().splitlines()[1].startswith("::warning title=hangwatch::stacks cannot be read here")
    scope.write_text("0\n")
    assert len(runner.step("Install hangwatch", **found).stdout().splitlines()) == 1


def test_of_many_incidents_the_latest_are_whole_and_the_others_counted(jobs: JobRunner, tmp_path: Path) -> None:
    """A summary may have 1 MiB: five incidents, the latest first, and how many more the artifact holds."""
    capture = load("rank_conditional")
    found = make_incident(diagnose(capture), detected_ns=capture.at_ns, confirmed_ns=capture.at_ns)
    for number in range(7):
        write_bundle(tmp_path / "hangwatch", msgspec.structs.replace(found, id=f"20261123-{number}"), capture)
    runner = Runner(jobs, tmp_path, {"python": sys.executable})
    reported = runner.step("Report")
    assert reported.process.returncode == 0, reported.stderr()
    assert runner.written("github_output") == "incidents=7\n"
    summary = runner.written("github_step_summary")
    assert re.findall(r"20261123-(\d)", summary) == list("65432")
    assert summary.endswith("\nand 2 more incidents in the artifact\n")


@pytest.mark.usefixtures("long")
def test_installed_by_pip_it_finds_a_hang_and_lets_it_go_on_if_told_so(jobs: JobRunner, tmp_path: Path) -> None:
    """Every step in its order with a Python that has no hangwatch yet; with ``on-hang: report`` the command ends by itself."""
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", python.parents[1]], check=True)
    scenario = find_scenario("rank-conditional")
    assert scenario is not None
    # It is killed once the hang is known, and not by us.
    known = "ls $RUNNER_TEMP/hangwatch/incidents/*/incident.json >/dev/null 2>&1"
    command = (
        f"{' '.join(scenario.command())} & until {known}; do sleep 0.2; done\n"
        "kill -KILL $!; wait $! || echo ended by itself"
    )
    runner = Runner(jobs, tmp_path, {"run": command, "python": str(python), "on-hang": "report", "stall-after": "60"})
    nothing = {"PYTHONPATH": "", "HANGWATCH_PTRACE_SCOPE": os.devnull, "PIP_NO_COMPILE": "1"}  # most is never imported
    installed = runner.step("Install hangwatch", **nothing)
    assert installed.process.returncode == 0, installed.stderr()
    ran = runner.step("Run under hangwatch", **nothing)
    assert ran.process.returncode == 0, ran.stderr()
    assert "ended by itself" in ran.stdout()
    assert runner.step("Report", **nothing).process.returncode == 0
    assert runner.written("github_output") == "incidents=1\n"
    assert runner.written("github_step_summary").startswith("## Deadlock, proven\n")
