"""The other commands on real jobs and this machine: env and agent, status, doctor, demo."""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path

import msgspec
from nodes import WITH_VARIABLES, Node, send
from watched_runs import find_bundles, read_incident

from hangwatch.cli.commands.status import StatusRow
from hangwatch.config.directories import probe_environment
from hangwatch.demos import SCENARIOS, find_scenario
from hangwatch.doctor.check import Check
from support import SOURCE_ROOT, Job, JobRunner, wait_for

_HANGWATCH = f"{sys.executable} -m hangwatch"


def _start_hanging_job(node: Node) -> Job:
    """A plain launch with the environment that ``hangwatch env`` prints."""
    scenario = find_scenario("group-order")
    assert scenario is not None
    return node.start(*WITH_VARIABLES, *scenario.command(), env=scenario.full_environment())


def test_the_agent_finds_the_hang_of_a_plain_launch(node: Node, tmp_path: Path) -> None:
    """``eval "$(hangwatch env)"``, torchrun and an agent: the hang is proven, ``status`` shows it, the job is left alone."""
    agent = node.hangwatch("agent", "--state-dir", tmp_path / "state", "--listen", "127.0.0.1:0")
    agent.wait_for_output("watching this node, metrics at http://127.0.0.1:")
    job = _start_hanging_job(node)
    (bundle,) = wait_for(lambda: find_bundles(tmp_path / "state"), 60.0, "its incident", poll_s=0.2)
    pids = node.ranks(job)
    incident = read_incident(bundle)
    assert {entry.rank: entry.pid for entry in incident.ranks} == pids
    assert incident.verdict.cause is not None
    assert (incident.verdict.kind, incident.verdict.proven) == ("deadlock", True)
    assert (incident.verdict.cause.id, incident.verdict.culprit_ranks) == ("group-order-inversion", (0, 1))
    assert incident.job.launcher == "torchrun"
    wait_for(lambda: read_incident(bundle).captured["call_sites"], 60.0, "the call sites of all ranks in the bundle")

    status = node.hangwatch("status", "--json", "--state-dir", tmp_path / "state")
    assert status.wait() == 0, status.stderr()
    rows = msgspec.json.decode(status.stdout(), type=list[StatusRow])
    assert {(row.rank, row.pid, row.group) for row in rows} == {
        (rank, pid, group) for rank, pid in pids.items() for group in ("default_pg", "policy", "value")
    }
    assert all(row.enqueued is not None and row.completed is not None for row in rows)
    flying = {row.rank: row.group for row in rows if row.in_flight_s is not None and row.in_flight_s > 0}
    assert set(flying) == {0, 1}
    assert set(flying.values()) == {"policy", "value"}
    # The words of the verdict, as on the page: both wait, and both are culprits.
    assert {row.state for row in rows} == {"waiting"}
    assert {(row.incident, row.culprit) for row in rows} == {(incident.id, True)}
    assert all("torch/distributed/distributed_c10d.py" in (row.frame or "") for row in rows)

    table = node.hangwatch("status", "--once", "--state-dir", tmp_path / "state")
    assert table.wait() == 0, table.stderr()
    assert f"DEADLOCK, proven: {incident.verdict.summary}" in " ".join(table.stdout().split())
    lines = [line.split() for line in table.stdout().splitlines()]
    assert ["RANK", "PID", "STATE", "GROUP", "SEQ"] in [line[:5] for line in lines]
    for rank, pid in pids.items():
        mine = [line for line in lines if line[1:2] == [str(pid)]]
        assert {line[0] for line in mine} == {str(rank)}
        assert all(line[2:4] == ["waiting,", "culprit"] for line in mine)
        assert {"policy", "value"} <= {word for line in mine for word in line}

    assert job.process.poll() is None
    send(agent, signal.SIGTERM)
    assert agent.wait() == 0
    assert "group-order-inversion" in agent.stderr()
    assert "Traceback" not in agent.stderr()
    assert job.process.poll() is None


def test_env_prints_what_a_shell_can_read(node: Node) -> None:
    """The variables come as exports and as JSON, name a private directory, and keep the user's own paths."""
    own = f"{SOURCE_ROOT}:/opt/own path"
    as_json = node.hangwatch("env", "--json", env={"PYTHONPATH": own})
    assert as_json.wait() == 0, as_json.stderr()
    variables = msgspec.json.decode(as_json.stdout(), type=dict[str, str])
    run_dir = Path(variables["HANGWATCH_RUN_DIR"])
    assert run_dir.stat().st_mode & 0o077 == 0
    assert variables["PYTHONPATH"].split(":")[-2:] == own.split(":")[-2:]
    assert variables["SPT_NOENV"] == "1"
    assert "SPT_NOENV" not in probe_environment(run_dir, {"SPT_NOENV": ""})  # the user's own stands
    shell = f'eval "$({_HANGWATCH} env)"; printf "%s|%s" "$HANGWATCH_RUN_DIR" "$PYTHONPATH"'
    in_shell = node.start("sh", "-c", shell, env={"PYTHONPATH": own})
    assert in_shell.wait() == 0, in_shell.stderr()
    assert in_shell.stdout().partition("|")[0] == str(run_dir)
    assert in_shell.stdout().endswith(":/opt/own path")


def test_status_without_a_job_says_so(node: Node) -> None:
    """Nothing to show is no error; JSON stays JSON."""
    table = node.hangwatch("status", "--once")
    assert table.wait() == 0
    assert table.stdout().startswith("No ranks of a distributed job found on this node.")
    as_json = node.hangwatch("status", "--json")
    assert as_json.wait() == 0
    assert msgspec.json.decode(as_json.stdout(), type=list[StatusRow]) == []


def test_doctor_finds_this_machine_well(node: Node, tmp_path: Path) -> None:
    """Every check passes where the suite can run, for people and for programs."""
    for_people = node.hangwatch("doctor", "--state-dir", tmp_path / "state")
    assert for_people.wait() == 0, for_people.stdout()
    assert [line for line in for_people.stdout().splitlines() if line.startswith("no ")] == []
    for_programs = node.hangwatch("doctor", "--json", "--state-dir", tmp_path / "state")
    assert for_programs.wait() == 0
    checks = {check.name: check for check in msgspec.json.decode(for_programs.stdout(), type=list[Check])}
    # What of it there is, and which jobs run here, differs between machines, and nothing fails for it.
    hardware = {"kernel log", "nvml", "fabric ports", "running code"}
    hardware |= {"clock", "jobs", "probe in ranks", "flight recorder", "torch in ranks"} & checks.keys()
    assert {checks[name].state for name in hardware} <= {"ok", "warning"}
    assert {name: check.state for name, check in checks.items() if name not in hardware} == {
        "platform": "ok", "ptrace": "ok", "/proc": "ok", "stacks (py-spy)": "ok",
        "torch": "ok", "probe": "ok", "state directory": "ok",
        "run directory": "ok", "metrics address": "ok", "peer discovery": "ok",
    }  # fmt: skip
    assert all(check.says for check in checks.values())


def test_doctor_names_what_is_broken(node: Node, tmp_path: Path) -> None:
    """A state directory that cannot be made is a failed check with its repair, and status 1."""
    (tmp_path / "file").write_text("")
    job = node.hangwatch("doctor", "--json", "--state-dir", tmp_path / "file" / "state")
    assert job.wait() == 1
    failed = [c for c in msgspec.json.decode(job.stdout(), type=list[Check]) if c.state == "failed"]
    assert [c.name for c in failed] == ["state directory"]
    assert "--state-dir" in failed[0].repair


def test_doctor_tries_what_the_agent_is_set_to_use(node: Node, tmp_path: Path, free_port: int) -> None:
    """With the agent's settings: a port that a stranger has and an exchange that is not there are named, with their repairs."""
    file = tmp_path / "hangwatch.toml"
    settings = (f'state_dir = "{tmp_path / "state"}"', f'listen = ":{free_port}"')
    file.write_text("\n".join((*settings, f'exchange = "redis://:s3cret@127.0.0.1:{free_port}"')))
    with socket.create_server(("127.0.0.1", free_port)):
        job = node.hangwatch("doctor", "--config", file, "--json")
        assert job.wait() == 1, job.stderr()
    failed = {c.name: c for c in msgspec.json.decode(job.stdout(), type=list[Check]) if c.state == "failed"}
    assert failed.keys() == {"metrics address", "peer discovery"}
    assert f"port {free_port} on 127.0.0.1 is in use" in failed["metrics address"].says
    assert failed["metrics address"].repair == "choose another address with --listen 127.0.0.1:0"
    assert f"redis://127.0.0.1:{free_port} does not work" in failed["peer discovery"].says
    assert failed["peer discovery"].repair
    assert "s3cret" not in job.stdout()


def test_doctor_knows_an_agent_by_its_port(node: Node, tmp_path: Path) -> None:
    """Where our own agent listens already nothing is wrong."""
    agent = node.hangwatch("agent", "--state-dir", tmp_path / "state", "--listen", ":0")
    said = agent.wait_for_output("watching this node")
    port = said.partition("http://127.0.0.1:")[2].partition("/")[0]
    job = node.hangwatch("doctor", "--json", "--state-dir", tmp_path / "state", "--listen", f":{port}")
    assert job.wait() == 0, job.stdout()
    assert f"an agent is already listening on :{port}" in job.stdout()


def test_the_demo_names_its_scenarios(jobs: JobRunner) -> None:
    """One line a scenario, its name first."""
    job = jobs.hangwatch("demo", "--list")
    assert job.wait() == 0
    assert [line.split()[0] for line in job.stdout().splitlines()] == [scenario.name for scenario in SCENARIOS]


def test_a_demo_nobody_knows(jobs: JobRunner) -> None:
    """One line that says where the names are, and status 2."""
    job = jobs.hangwatch("demo", "no-such-scenario")
    assert job.wait() == 2
    assert job.stdout() == ""
    assert job.stderr() == "hangwatch: no demo named 'no-such-scenario'; list them with: hangwatch demo --list\n"


def test_the_demo_shows_a_hang(jobs: JobRunner, tmp_path: Path) -> None:
    """``hangwatch demo SCENARIO`` runs the job, prints the verdict, and ends well because it was the right one."""
    job = jobs.hangwatch("demo", "group-order", env={"TMPDIR": str(tmp_path), "HANGWATCH_STATE_DIR": os.devnull})
    assert job.wait(90.0) == 0, job.stdout() + job.stderr()
    assert "[rank 1] step 1\n" in job.stdout()
    lines = job.stdout().splitlines()
    assert lines[-1].startswith("PASS: hang found, diagnosed and job stopped in ")
    (bundle,) = [Path(line.split(maxsplit=1)[1]) for line in lines if line.startswith("Bundle ")]
    assert (bundle / "incident.json").is_file()
    (verdict,) = [number for number, line in enumerate(lines) if line.startswith("DEADLOCK, proven: ")]
    assert len(lines) - verdict <= 18
    assert "More      hangwatch explain group-order-inversion" in lines[verdict:]
    # What torchrun says when it is stopped is in a file: the screen ends on the verdict.
    assert job.stderr() == ""
    assert not any("Traceback" in line or "SignalException" in line for line in lines)
    assert "SignalException" in (bundle.parents[1] / "stderr.log").read_text()
    wait_for(lambda: not job.members(), 60.0, "all processes of the job to be gone")
