"""Processes by the thousand, and a pid that comes back as somebody else's: the agent takes nobody for what he is not."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from nodes import Node
from watched_runs import find_bundles, read_incident, read_url, torchrun

from hangwatch.outputs.push.audit import read_audit
from hangwatch.sources.proc.files import START_TIME_TOLERANCE_S
from support import JOBS, LONG_S, Job, is_alive, wait_for

_LAST_PID = Path("/proc/sys/kernel/ns_last_pid")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="makes a PID namespace, which takes root")


@dataclass(frozen=True)
class Apart:
    """A node of the test's own, with an agent that watches all of it."""

    node: Node
    environment: dict[str, str]

    @property
    def state(self) -> Path:
        """The state directory of the agent."""
        return self.node.folder / "state"

    def start(self, *command: str | Path) -> Job:
        """Start something in there, with the environment of ``hangwatch env``."""
        return self.node.start(*command, env=self.environment)

    def start_agent(self, settings: str = "") -> Job:
        """An agent for all that runs in there."""
        file = self.node.folder / "hangwatch.toml"
        file.write_text(f'state_dir = "{self.state}"\nlisten = ":0"\n{settings}')
        agent = self.node.hangwatch("agent", "--config", file)
        agent.wait_for_output("watching this node")
        return agent


@pytest.fixture
def apart(long: None, node: Node) -> Apart:
    """The node, and what ``hangwatch env`` prints there."""
    told = node.hangwatch("env", "--json")
    assert told.wait() == 0, told.stderr()
    return Apart(node, json.loads(told.stdout()))


@pytest.mark.soak
@needs_root
def test_ten_thousand_short_lived_processes(apart: Apart, tmp_path: Path, undisturbed: str) -> None:
    """Python processes with a rank's environment come and go beside a training: no incident, no memory, and it is what it was."""
    agent = apart.start_agent()
    (process,) = psutil.Process(agent.pid).children()
    status = tmp_path / "status"
    job = apart.start("sh", "-c", '"$@"; echo $? > "$0"', status, *torchrun(JOBS / "training.py", "--step-s", "0.75"))
    wait_for(lambda: "step 2:" in job.stdout(), 60.0, "the job to train")
    before_bytes = process.memory_info().rss
    swarm = apart.start(sys.executable, JOBS / "swarm.py", "1000")
    assert swarm.wait(LONG_S) == 0, swarm.stderr()
    assert swarm.stdout() == "10000\n"
    wait_for(lambda: status.exists() and status.read_text(), LONG_S, "the job to come to its end")
    assert (status.read_text(), job.stdout()) == ("0\n", undisturbed)
    assert is_alive(process)
    assert process.memory_info().rss - before_bytes < 16 << 20
    assert find_bundles(apart.state) == ()
    assert "Traceback" not in agent.stderr()


@needs_root
@pytest.mark.skipif(
    not _LAST_PID.exists(), reason="this kernel cannot be told which pid is next (CONFIG_CHECKPOINT_RESTORE)"
)
@pytest.mark.parametrize("newcomer", ["rank", pytest.param("stranger", marks=pytest.mark.soak)])
def test_a_pid_that_is_given_away_again(apart: Apart, tmp_path: Path, newcomer: str) -> None:
    """A rank dies and somebody else has its pid at once: the rank is lost, the other is not looked at, and it is not ended."""
    agent = apart.start_agent('[on_hang]\naction = "stop"\n')
    go = tmp_path / "go"
    job = apart.start(sys.executable, JOBS / "recycled.py", go, newcomer)
    wait_for(lambda: job.stdout().count("trained") == 2, LONG_S, "both ranks to train")
    first = job.ranks()[0]
    url = next(word for word in agent.stderr().split() if word.endswith("/metrics,")).rstrip(",")
    wait_for(lambda: read_url(url).count("hangwatch_rank_info{") >= 2, 60.0, "the agent to know both", poll_s=0.2)
    # Two that began a whole second apart may be one, read by two agents.
    wait_for(
        lambda: time.time() - first.create_time() > 2 * START_TIME_TOLERANCE_S,
        60.0,
        "rank 1 to be older",
    )
    go.touch()
    pid = int(job.wait_for_output("is another's").partition("pid ")[2].split()[0])
    (bundle,) = wait_for(lambda: find_bundles(apart.state), 60.0, "the incident", poll_s=0.1)
    wait_for(lambda: "ended" in "".join(a.outcome for a in read_audit(bundle).actions), 60.0, "the job to be ended")
    incident = read_incident(bundle)
    assert (incident.verdict.kind, incident.verdict.culprit_ranks) == ("rank_lost", (1,))
    assert {entry.rank: entry.pid for entry in incident.ranks}[1] == pid
    assert not is_alive(first), "rank 0 was ended"
    (other,) = [one for one in job.members() if "newcomer_at_work" in " ".join(one.cmdline())]
    assert is_alive(other), "who has the pid now was not"
    assert b"newcomer_at_work" not in b"".join(file.read_bytes() for file in bundle.rglob("*") if file.is_file())
    assert find_bundles(apart.state) == (bundle,)
