"""``hangwatch agent`` as a service: its settings, its life, and that a restart neither forgets nor repeats anything."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from monitoring import webhook
from nodes import WITH_VARIABLES, Node, send
from watched_runs import captures_total, find_bundles, read_incident

from hangwatch.demos import find_scenario
from hangwatch.model.incident import Incident
from hangwatch.outputs.bundle.bundle import read_bundle
from hangwatch.outputs.push.audit import read_audit
from support import Job, JobRunner, wait_for


def _start_hanging_job(node: Node) -> Job:
    """A plain launch with the environment that ``hangwatch env`` prints."""
    scenario = find_scenario("group-order")
    assert scenario is not None
    return node.start(*WITH_VARIABLES, *scenario.command(), env=scenario.full_environment())


def _incidents(state: Path) -> list[tuple[Incident, Path]]:
    """Those in a state directory."""
    return [(read_incident(bundle), bundle) for bundle in find_bundles(state)]


def _start_agent(node: Node, file: Path) -> Job:
    agent = node.hangwatch("agent", "--config", file, env={"HANGWATCH_LOG": "info"})
    agent.wait_for_output("watching this node")
    return agent


def test_a_restart_neither_forgets_nor_repeats(node: Node, tmp_path: Path) -> None:
    """Killed and started again, the agent finds the open incident: no second alert, no second action, one end."""
    state, file = tmp_path / "state", tmp_path / "hangwatch.toml"
    ran = tmp_path / "ran"
    with webhook() as receiver:
        file.write_text(
            f'state_dir = "{state}"\nlisten = "127.0.0.1:0"\n'
            f'[receivers]\nwebhook = ["{receiver.url}/hook"]\n[on_hang]\naction = "exec:echo $HANGWATCH_JOB >> {ran}"\n'
        )

        def reported(job: str) -> list[tuple[str, str]]:
            bodies: list[Any] = [m.body for m in list(receiver.messages) if m.body["job_id"] == job]
            return [(body["incident_id"], body["status"]) for body in bodies]

        agent = _start_agent(node, file)
        job = _start_hanging_job(node)
        ((incident, bundle),) = wait_for(lambda: _incidents(state), 60.0, "its incident", poll_s=0.2)
        name = incident.job.id
        wait_for(lambda: reported(name) == [(incident.id, "firing")], 30.0, "the webhook to be notified")
        wait_for(lambda: (bundle / "audit.json").exists() and "notified" in (bundle / "audit.json").read_text(), 30.0)
        wait_for(lambda: ran.exists() and ran.read_text().splitlines().count(name) == 1, 30.0, "the command to run")
        status = node.hangwatch("status", "--json", "--state-dir", state)
        assert status.wait() == 0, status.stderr()
        told = {(row["job"], row["stall_after_s"], row["stall_why"]) for row in json.loads(status.stdout())}
        assert told == {(name, 30.0, "the minimum")}
        send(agent, signal.SIGKILL)
        agent.wait()

        second = _start_agent(node, file)
        second.wait_for_output(f"incident {incident.id} of job {name} is still open")
        _wait_for_looks(second, 3)
        send(second, signal.SIGTERM)
        assert second.wait() == 0, second.stderr()
        ((still, _),) = _incidents(state)
        assert (still.id, still.ended_at) == (incident.id, None), "an agent that is stopped says nothing of the job"

        third = _start_agent(node, file)
        third.wait_for_output(f"incident {incident.id} of job {name} is still open")
        job.end()
        wait_for(lambda: _incidents(state)[0][0].ended_at is not None, 60.0, "the incident to end")
        wait_for(lambda: len(reported(name)) == 2, 30.0, "the webhook to be notified of its end")
        send(third, signal.SIGTERM)
        assert third.wait() == 0, third.stderr()
        assert reported(name) == [(incident.id, "firing"), (incident.id, "resolved")]
        assert ran.read_text().splitlines().count(name) == 1
        assert len(_incidents(state)) == 1
        assert list((state / "agents").iterdir()) == []


def _wait_for_looks(agent: Job, looks: int) -> None:
    """Let the agent look closely that often."""
    url = next(word for word in agent.stderr().split() if word.endswith("/metrics,")).rstrip(",")
    wait_for(lambda: captures_total(url) >= looks, 60.0, f"{looks} looks", poll_s=0.2)


def test_systemd_hears_of_readiness_of_life_and_of_a_reload(node: Node, tmp_path: Path) -> None:
    """Ready, a sign of life a tick, none while it hangs; a new configuration is taken, a broken one is not."""
    file = tmp_path / "hangwatch.toml"
    good = f'state_dir = "{tmp_path / "state"}"\nlisten = ":0"\n[log]\nformat = "json"\nlevel = "info"\n'
    file.write_text(good)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(60.0)
        environ = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "60000000"}
        agent = node.hangwatch("agent", "--config", file, env=environ)

        def hear(wanted: str) -> str:
            while True:
                said = manager.recv(4096).decode()
                if said.startswith(wanted):
                    return said
                assert said == "WATCHDOG=1", said

        assert "watching this node, metrics at http://127.0.0.1:" in hear("READY=1")
        hear("WATCHDOG=1")
        send(agent, signal.SIGSTOP)
        _silence(manager)
        send(agent, signal.SIGCONT)
        hear("WATCHDOG=1")

        file.write_text(good + "[bundles]\nmax_count = 3\n[receivers]\nnotfy = []\n")
        send(agent, signal.SIGHUP)
        hear("RELOADING=1")
        hear("READY=1")
        file.write_text(good.replace(":0", ":1") + "[bundles]\nmax_count = 3\n")
        send(agent, signal.SIGHUP)
        hear("RELOADING=1")
        hear("READY=1")
        send(agent, signal.SIGTERM)
        hear("STOPPING=1")
        assert agent.wait() == 0
    lines = [json.loads(line) for line in agent.stderr().splitlines()]
    assert all({"time", "level", "message"} <= line.keys() for line in lines)
    (refused,) = [line for line in lines if line["level"] == "error"]
    assert refused["message"] == (
        f"settings not reloaded, the current ones stay: {file}: unknown key receivers.notfy; did you mean notify?"
    )
    assert "settings reloaded; restart required for listen" in [line["message"] for line in lines]


def _silence(manager: socket.socket) -> None:
    """Fails unless nothing is heard for three ticks."""
    manager.settimeout(3.0)
    quiet = 0
    while quiet < 1:
        try:
            manager.recv(4096)
        except TimeoutError:
            quiet += 1
    manager.settimeout(60.0)


def test_a_configuration_is_checked_before_it_is_used(jobs: JobRunner, tmp_path: Path) -> None:
    """``check-config`` says what is wrong where, and tells of a file too open."""
    file = tmp_path / "hangwatch.toml"
    file.write_text('listen = "nowhere"\n')
    wrong = jobs.hangwatch("check-config", file)
    assert (wrong.wait(), wrong.stderr()) == (2, wrong.stderr())
    assert wrong.stderr().startswith(f"hangwatch: {file}: listen: 'nowhere' is not HOST:PORT; ")
    file.write_text("stall_after = 3\n")
    unknown = jobs.hangwatch("check-config", file)
    assert unknown.wait() == 2
    assert unknown.stderr() == f"hangwatch: {file}: unknown key stall_after; did you mean stall_after_s?\n"
    file.write_text('exchange = "redish://:s3cret@h"\n')
    nowhere = jobs.hangwatch("check-config", file)
    assert nowhere.wait() == 2
    assert nowhere.stderr().startswith(f"hangwatch: {file}: exchange: redish://h is not valid; ")
    file.write_text('[receivers]\nalertmanager = ["http://h:1"]\nwebhook = ["alerts.example.org/s3cret"]\n')
    for command in (("check-config", file), ("run", "--config", file, "--", "touch", tmp_path / "started")):
        pathless = jobs.hangwatch(*command)
        assert pathless.wait() == 2
        assert pathless.stderr().startswith(f"hangwatch: {file}: receivers.webhook: not an http:// or https:// URL; ")
        assert "s3cret" not in pathless.stderr()
    assert not (tmp_path / "started").exists()
    file.write_text(f'token_file = "{tmp_path / "token"}"\n')
    (tmp_path / "token").write_text("short")
    weak = jobs.hangwatch("check-config", file)
    assert weak.wait() == 2
    assert "openssl rand -hex 16" in weak.stderr()
    file.write_text(
        'exchange = "rediss://:s3cret@h?password=s3cret"\n'
        '[receivers]\nwebhook = ["https://hooks.slack.com/services/T0/B0/s3cret"]\n'
    )
    file.chmod(0o644)
    good = jobs.hangwatch("check-config", file)
    assert good.wait() == 0, good.stderr()
    assert ": valid" in good.stdout()
    assert "the exchange password but is readable by other users" in good.stdout()


def test_the_agent_ends_a_job_that_hangs_once_its_stacks_are_saved(node: Node, tmp_path: Path) -> None:
    """``on_hang = stop``: torchrun and its ranks are gone, nothing else is, and the bundle has every stack from before that."""
    state, file = tmp_path / "state", tmp_path / "hangwatch.toml"
    file.write_text(
        f'state_dir = "{state}"\nlisten = ":0"\n[on_hang]\naction = "stop"\nonly_proven = true\nmin_severity = "critical"\n'
    )
    bystander = node.start(sys.executable, "-c", "input()", stdin=subprocess.PIPE)
    agent = _start_agent(node, file)
    job = _start_hanging_job(node)
    assert job.wait(120.0) != 0, "torchrun was ended"
    wait_for(lambda: not job.members(), 30.0, "all processes of the job to be gone")
    ((_, bundle),) = _incidents(state)
    audit = read_audit(bundle)
    wait_for(lambda: " ended" in read_audit(bundle).actions[0].outcome, 30.0, str(audit))
    wait_for(lambda: _incidents(state)[0][0].ended_at is not None, 30.0, "the incident to end")
    _, capture = read_bundle(bundle)
    assert all(rank.stacks and rank.stacks[-1].main is not None for rank in capture.ranks)
    assert bystander.process.poll() is None
    assert agent.process.poll() is None


def test_a_rehearsal_leaves_the_job_alone_and_its_end_is_told(node: Node, tmp_path: Path) -> None:
    """``dry_run``: it is said what would be done, and both ranks live on.

    Then the agent is killed, and the job: the next agent ends the incident, and says so to whoever was notified of it.
    """
    state, file = tmp_path / "state", tmp_path / "hangwatch.toml"
    with webhook() as receiver:
        file.write_text(
            f'state_dir = "{state}"\nlisten = ":0"\nreceivers.webhook = ["{receiver.url}/"]\n'
            'on_hang = { action = "stop", dry_run = true }\n[log]\nformat = "json"\n'
        )
        agent = node.hangwatch("agent", "--config", file)
        agent.wait_for_output("watching this node")
        job = _start_hanging_job(node)
        pids = wait_for(lambda: found if len(found := node.ranks(job)) == 2 else None, 60.0, "both ranks")
        ((incident, bundle),) = wait_for(lambda: _incidents(state), 60.0, "its incident", poll_s=0.2)
        wait_for(lambda: bool(read_audit(bundle).actions), 60.0, "the rehearsal")
        assert read_audit(bundle).actions[0].outcome == "would end the job (dry run)"
        assert node.ranks(job) == pids == {entry.rank: entry.pid for entry in incident.ranks}
        told = [json.loads(line) for line in agent.stderr().splitlines()]
        said, done = [line for line in told if line.get("incident") == incident.id]
        assert (said["event"], said["kind"]) == ("incident_confirmed", "deadlock")
        assert (done["event"], done["action"], done["dry_run"]) == ("action_taken", "stop", True)
        assert said["bundle"] == str(bundle)
        assert "on-hang stop: would end the job (dry run)" in [line["message"] for line in told]

        def statuses() -> list[str]:
            return [m.body["status"] for m in list(receiver.messages) if m.body["incident_id"] == incident.id]

        wait_for(lambda: statuses() == ["firing"], 30.0, "the webhook to be notified")
        send(agent, signal.SIGKILL)
        agent.wait()
        job.end()
        _start_agent(node, file)
        wait_for(lambda: _incidents(state)[0][0].ended_at is not None, 60.0, "the incident to end")
        wait_for(lambda: "resolved" in statuses(), 30.0, "the webhook to be notified of its end")
