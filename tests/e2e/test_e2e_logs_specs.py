"""``torchrun --logs-specs hangwatch``: watched without another command, and torchrun's own options as ever."""

from __future__ import annotations

import re
import sys
from importlib.metadata import entry_points
from pathlib import Path

import psutil
import pytest
from watched_runs import ACT_AFTER_S, STALL_AFTER_S, assert_has_the_verdict, find_bundles, read_incident

from hangwatch.demos import find_scenario
from hangwatch.outputs.push.audit import read_audit
from support import JOBS, SOURCE_ROOT, Job, JobRunner, is_alive, wait_for

#: Where each rank's output goes: rank 0's stdout to a file, all of rank 1 to files and to the terminal, of rank 1 alone.
LOGS = ("--redirects", "0:1", "--tee", "1:3", "--local-ranks-filter", "1")
#: Fails once the test has seen what it waits for.
FAIL = """
import os, sys, time
print(str('_hangwatch_probe' in sys.modules) + '\\n', end='', flush=True)
while not os.path.exists({seen!r}):
    time.sleep(0.05)
sys.exit(3)
"""
AGENT = [sys.executable, "-m", "hangwatch", "agent", "--pid"]


@pytest.fixture(autouse=True)
def _installed() -> None:
    """torchrun finds us by the metadata of an installed package."""
    found = entry_points(group="torchrun.logs_specs", name="hangwatch")
    assert found, "hangwatch was installed before it had this entry point: pip install -e . --no-deps"


def start(jobs: JobRunner, state: Path, *arguments: str | Path, env: dict[str, str] | None = None) -> Job:
    """Start torchrun with two ranks on this node."""
    launcher = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    own = {"HANGWATCH_STATE_DIR": str(state), "PYTHONPATH": str(SOURCE_ROOT), "TMPDIR": str(state.parent)}
    return jobs.start([*launcher, *arguments], env={**own, **(env or {})})


def settings_of(folder: Path, action: str) -> dict[str, str]:
    """The environment that names a settings file with this action."""
    file = folder / "hangwatch.toml"
    file.write_text(f'stall_after_s = {STALL_AFTER_S}\nact_after_s = {ACT_AFTER_S}\n[on_hang]\naction = "{action}"\n')
    return {"HANGWATCH_CONFIG": str(file)}


def agents_of(job: Job) -> list[psutil.Process]:
    """The agents that watch a torchrun."""
    everyone = psutil.process_iter(["cmdline"])
    return [process for process in everyone if (process.info["cmdline"] or [])[:6] == [*AGENT, str(job.pid)]]


def files_of(folder: Path) -> dict[str, str]:
    """The log files of a run, by rank and stream."""
    return {"/".join(path.parts[-3:]): path.read_text() for path in sorted(folder.glob("*/attempt_*/*/*.log"))}


def test_a_healthy_run_is_unchanged(jobs: JobRunner, tmp_path: Path) -> None:
    """The same status, the same output in the same places, and one line of ours more on torchrun's stderr."""
    script = (JOBS / "training.py", "--steps", "10", "--pause-s", "0")
    plain = start(jobs, tmp_path / "none", "--log-dir", tmp_path / "plain", *LOGS, *script)
    assert plain.wait(180.0) == 0
    watched = start(
        jobs, tmp_path / "state", "--logs-specs", "hangwatch", "--log-dir", tmp_path / "watched", *LOGS, *script
    )
    assert watched.wait(180.0) == 0
    assert watched.stdout() == plain.stdout()
    assert files_of(tmp_path / "watched") == files_of(tmp_path / "plain")
    assert "weights" in files_of(tmp_path / "watched")["attempt_0/0/stdout.log"]
    assert find_bundles(tmp_path / "state") == ()
    said = [line for line in watched.stderr().splitlines() if line not in plain.stderr().splitlines()]
    ours = [line for line in said if "torch/distributed/run.py" not in line]  # that one has the time
    assert [re.sub(r"\d+", "N", line) for line in ours] == [
        "hangwatch: watching process N, metrics at http://N.N.N.N:N/metrics, page at http://N.N.N.N:N/"
    ]
    wait_for(lambda: not agents_of(watched), 60.0, "the agent to end with torchrun")


def test_a_failing_run_is_unchanged(jobs: JobRunner, tmp_path: Path) -> None:
    """Its status is torchrun's, its workers are started again as often as was asked for, under one agent."""
    script, seen = tmp_path / "fail.py", tmp_path / "seen"
    script.write_text(FAIL.format(seen=str(seen)))
    job = start(jobs, tmp_path / "state", "--logs-specs", "hangwatch", "--max-restarts", "1", script)
    job.wait_for_output("hangwatch: watching process", 120.0)
    seen.touch()
    assert job.wait(180.0) == 1
    assert job.stdout().split() == ["True"] * 4, "two ranks, twice, each with the probe"
    assert job.stderr().count("hangwatch: watching process") == 1
    wait_for(lambda: not agents_of(job), 60.0, "the agent to end with torchrun")


def test_a_hang_is_found_and_stopped(jobs: JobRunner, tmp_path: Path) -> None:
    """The verdict is torchrun's stderr, by the settings of a file; what is secret in the environment is not the ranks'."""
    scenario = find_scenario("group-order")
    assert scenario is not None
    env = {
        **scenario.full_environment(),
        **settings_of(tmp_path, "stop"),
        "HANGWATCH_WEBHOOK": "http://127.0.0.1:1/s3cret",
    }
    job = start(jobs, tmp_path / "state", "--logs-specs", "hangwatch", scenario.path, env=env)
    ranks = wait_for(lambda: job.ranks() if len(job.ranks()) == 2 else None, 120.0, "the ranks")
    assert ranks is not None
    assert not any(
        name in process.environ() for process in ranks.values() for name in ("HANGWATCH_WEBHOOK", "HANGWATCH_CONFIG")
    )
    (bundle,) = wait_for(lambda: find_bundles(tmp_path / "state"), 120.0, "the incident")
    incident = read_incident(bundle)
    assert (incident.verdict.kind, incident.verdict.proven) == ("deadlock", True)
    assert incident.captured["flight_recorder"]
    assert incident.captured["beats"]
    assert job.wait(120.0) != 0
    assert "DEADLOCK" in job.stderr()
    wait_for(lambda: not agents_of(job), 60.0, "the agent to end with torchrun")
    wait_for(lambda: not any(map(is_alive, ranks.values())), 60.0, "the ranks to be gone")


def test_a_hang_is_raised_in_the_ranks(jobs: JobRunner, tmp_path: Path) -> None:
    """The settings file alone is enough: the ranks are started so that they take it."""
    error_file = tmp_path / "error.json"
    env = {**settings_of(tmp_path, "raise"), "SCRATCH": str(tmp_path), "TORCHELASTIC_ERROR_FILE": str(error_file)}
    job = start(jobs, tmp_path / "state", "--logs-specs", "hangwatch", JOBS / "raising.py", "all_reduce", env=env)
    assert job.wait(150.0) == 1, job.stderr()
    (bundle,) = find_bundles(tmp_path / "state")
    assert [one.outcome for one in read_audit(bundle).actions] == ["raised in ranks 0-1"]
    assert_has_the_verdict(job, read_incident(bundle).verdict.summary, error_file)


@pytest.mark.usefixtures("long")
def test_a_hang_is_restarted_by_torchrun(jobs: JobRunner, tmp_path: Path) -> None:
    """Its second start goes on from the checkpoint, with a store of rank 0's own, as torchrun's rendezvous was told."""
    env = settings_of(tmp_path, "restart")
    program = (JOBS / "recovering.py", "--folder", tmp_path)
    job = start(jobs, tmp_path / "state", "--logs-specs", "hangwatch", "--max-restarts", "2", *program, env=env)
    ranks = wait_for(lambda: job.ranks() if len(job.ranks()) == 2 else None, 120.0, "the ranks")
    assert ranks is not None
    assert [one.environ()["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] for one in ranks.values()] == ["1", "1"]
    assert job.wait(150.0) == 0, job.stderr()
    assert (tmp_path / "starts-0").read_text().splitlines() == ["0 -", "1 -"]
    assert (tmp_path / "checkpoint").read_text() == "8"
    (bundle,) = find_bundles(tmp_path / "state")
    assert [one.action for one in read_audit(bundle).actions] == ["restart"]


def test_a_pid_that_is_none_is_one_line(jobs: JobRunner, tmp_path: Path) -> None:
    """Nothing is started: a launcher may also fail before its agent is there."""
    gone = jobs.start([sys.executable, "-c", ""])
    gone.wait()
    job = jobs.hangwatch("agent", "--state-dir", tmp_path / "state", "--pid", str(gone.pid))
    assert job.wait() == 2
    assert job.stderr().strip().endswith(f"process {gone.pid} has ended, or never was: there is nothing to watch")
    assert not (tmp_path / "state").exists()
