"""``hangwatch dump`` on jobs that were started without us: no probe, no recorder, only what can be seen from outside."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import psutil
import pytest
from watched_runs import ACT_AFTER_S, STALL_AFTER_S, find_bundles, read_incident

from corpus.catalogue import unpack
from hangwatch.demos import SCENARIOS, Scenario, find_scenario
from hangwatch.model.incident import Incident
from hangwatch.outputs.bundle.bundle import read_bundle
from support import JOBS, PROGRAMS, Job, JobRunner, wait_for


def _is_stuck(job: Job, nproc: int) -> Callable[[], bool]:
    """A condition: all ranks exist, have trained, and used no CPU time and written nothing between the last ten looks."""
    seen: list[tuple[float, int]] = []

    def condition() -> bool:
        ranks = job.ranks()
        written = job.stdout()
        if len(ranks) < nproc or not all(f"[rank {rank}] step " in written for rank in ranks):
            return False
        try:
            times = [process.cpu_times() for process in ranks.values()]
        except psutil.Error:
            return False
        seen.append((sum(t.user + t.system for t in times), len(written)))
        return len(seen) >= 10 and len(set(seen[-10:])) == 1

    return condition


_PLAIN = {
    **{scenario.name: scenario for scenario in SCENARIOS if scenario.name in {"blocked-io", "stopped-rank"}},
    "gil-held": Scenario("gil-held", "", str(PROGRAMS / "gil_held.py"), 2, "stall", "gil-held", (1,)),
    "debugger": Scenario("debugger", "", str(PROGRAMS / "debugger.py"), 2, "stall", "debugger", (1,)),
}


@pytest.mark.parametrize(
    "name",
    [
        "blocked-io",
        *(pytest.param(name, marks=pytest.mark.soak) for name in ("gil-held", "debugger", "stopped-rank")),
    ],
)
def test_culprit_and_cause_are_named_without_a_probe(jobs: JobRunner, tmp_path: Path, name: str) -> None:
    """A plain torchrun job that hangs is diagnosed from outside, and what could not be seen is said with its repair."""
    scenario = _PLAIN[name]
    job = jobs.start(scenario.command(), env=scenario.full_environment())
    wait_for(_is_stuck(job, scenario.nproc), 60.0, f"{name} to hang", poll_s=0.1)
    ranks = {rank: process.pid for rank, process in job.ranks().items()}

    dump = jobs.hangwatch("dump", "--pid", str(job.pid), "--json", "--state-dir", tmp_path / "state")
    assert dump.wait() == 1, dump.stderr()
    assert dump.stderr() == ""
    incident = msgspec.json.decode(dump.stdout(), type=Incident)
    verdict = incident.verdict
    assert verdict.cause is not None
    assert (verdict.kind, verdict.cause.id, verdict.culprit_ranks) == (scenario.kind, scenario.cause, scenario.culprits)
    assert {entry.rank: entry.pid for entry in incident.ranks} == ranks

    for rank in ranks:
        (line,) = [line for line in incident.missing if line.startswith(f"probe of rank {rank}: not loaded")]
        assert "hangwatch run -- CMD" in line
        assert 'eval "$(hangwatch env)"' in line
    assert (incident.captured["stacks"], incident.captured["flight_recorder"]) == (True, False)
    (bundle,) = find_bundles(tmp_path / "state")
    assert read_incident(bundle) == incident
    assert job.process.poll() is None
    assert {rank: process.pid for rank, process in job.ranks().items()} == ranks


@pytest.mark.usefixtures("long")
def test_native_stacks_are_read_where_the_user_asks_for_them(jobs: JobRunner, tmp_path: Path) -> None:
    """Of all threads, before the job is ended; they are in the bundle, merged, and in the report."""
    scenario = find_scenario("blocked-io")
    assert scenario is not None
    state = tmp_path / "state"
    patience = ("--stall-after", str(STALL_AFTER_S), "--act-after", str(ACT_AFTER_S))
    options = ["--native-stacks", "--on-hang", "stop", *patience, "--state-dir", state]
    run = jobs.hangwatch("run", *options, "--", *scenario.command(), env=scenario.full_environment())
    assert run.wait(120) == 75, run.stderr()
    (bundle,) = find_bundles(state)
    incident, capture = read_bundle(bundle)
    assert incident is not None
    assert incident.captured["native_stacks"], incident.missing
    assert incident.verdict.cause is not None
    assert (incident.verdict.cause.id, incident.verdict.culprit_ranks) == (scenario.cause, scenario.culprits)
    assert all(rank.native is not None and len(rank.native.threads) > 1 for rank in capture.ranks)
    shown = (bundle / "native_stacks.txt").read_text()
    assert "main thread\n" in shown
    assert "gloo::" in shown
    assert "Native stacks" in (bundle / "report.html").read_text()


def test_workers_without_an_environment_are_found_by_their_titles(jobs: JobRunner, tmp_path: Path) -> None:
    """An engine's workers have their ranks as arguments, and a title where their environment was: one was not called."""
    pytest.importorskip("setproctitle", reason="setproctitle is no part of this environment: make test installs it")
    job = jobs.python(unpack("serving", tmp_path / "train") / "executor_pipes.py", "--asleep", "1")
    job.wait_for_output("request 3")

    def finds_hang() -> Incident | None:
        dump = jobs.hangwatch("dump", "--pid", str(job.pid), "--json", "--state-dir", tmp_path / "state")
        return msgspec.json.decode(dump.stdout(), type=Incident) if dump.wait() == 1 else None

    incident = wait_for(finds_hang, 60.0, "the dump to find the hang")
    verdict = incident.verdict
    assert (verdict.kind, verdict.culprit_ranks, verdict.waiting_ranks) == ("stall", (1,), (0,))
    assert verdict.cause is not None
    assert verdict.cause.id == "waits-for-request"
    assert "Rank 1 (VLLM::Worker_TP1)" in verdict.cause.explanation
    assert any("in the order of their titles" in line for line in incident.missing), incident.missing


@pytest.mark.usefixtures("long")
@pytest.mark.parametrize("step_s", [pytest.param("0.01", marks=pytest.mark.soak), "1.5"])
def test_a_job_that_trains_is_left_alone(jobs: JobRunner, tmp_path: Path, step_s: str) -> None:
    """``dump`` on a job that trains finds nothing and touches nothing: both ranks go on, and their streams stay theirs."""
    job = jobs.torchrun(JOBS / "steady.py", "--step-s", step_s)
    job.wait_for_output("[rank 1] step 3\n")
    ranks = {rank: process.pid for rank, process in job.ranks().items()}
    dump = jobs.hangwatch("dump", "--pid", str(job.pid), "--json", "--state-dir", tmp_path / "state")
    assert dump.wait() == 0, dump.stdout()
    incident = msgspec.json.decode(dump.stdout(), type=Incident)
    assert {entry.rank: entry.pid for entry in incident.ranks} == ranks
    assert incident.verdict.kind == "healthy"
    for rank in ranks:
        before = job.stdout().count(f"[rank {rank}] step ")
        wait_for(lambda: job.stdout().count(f"[rank {rank}] step ") > before, what="another step after the dump")  # noqa: B023
    assert all(line.startswith("[rank ") for line in job.stdout().splitlines())
    assert {rank: process.pid for rank, process in job.ranks().items()} == ranks


def test_without_a_job_dump_says_so(jobs: JobRunner, tmp_path: Path) -> None:
    """A process that belongs to no job gives a line with what to check, and status 2."""
    other = jobs.start(["sleep", "60"])
    dump = jobs.hangwatch("dump", "--pid", str(other.pid), "--state-dir", tmp_path / "state")
    assert dump.wait() == 2
    assert dump.stdout() == ""
    # What cannot be read of others on this node, whose jobs may end meanwhile, is said before.
    said = dump.stderr().splitlines()[-1]
    assert said.startswith(
        f"hangwatch: no ranks of a distributed job found for process {other.pid}; is the job running"
    )
