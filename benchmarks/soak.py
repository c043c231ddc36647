"""What becomes of an agent over hours: memory, threads, descriptors and files while jobs come and go.

Run: ``python benchmarks/soak.py [MINUTES] [PERIOD_S]`` (default 60 and 30). Starts ``hangwatch agent`` on a node of its own
(another run and state directory) and every ``PERIOD_S`` the next of: a healthy job of two ranks that ends, two hundred
short-lived Python processes with the environment of a rank, a job that hangs and is killed after it was told, one whose rank is
killed. Metrics, page and event stream are asked all the while. Every 5 s the agent's RSS, CPU time, threads, descriptors and
files are noted. Prints one JSON object: the medians of the second and the last third of the time (the first is warm-up), and
by how much they differ; exits with 1 where something has grown.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import psutil

from hangwatch.demos import find_scenario

_ROOT = Path(__file__).resolve().parents[1]
_SAMPLE_S = 5.0
_BUNDLES = 5
#: What may differ without anything having grown: the allocator's own moods, a look that is under way just then.
_ALLOWED = {"rss_mb": 2.0, "threads": 1.0, "descriptors": 3.0, "files": 12.0}
_SHORT_LIVED = 'for i in $(seq 200); do RANK=$((i % 8)) WORLD_SIZE=8 LOCAL_RANK=$((i % 8)) "$0" -c pass; done'


class Node:
    """A node of its own: its environment, and what was started on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = folder / "state"
        self.environment = {**os.environ, "TMPDIR": str(folder), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        told = subprocess.check_output([sys.executable, "-m", "hangwatch", "env", "--json"], env=self.environment)
        self.probed = {**self.environment, **json.loads(told)}
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, *command: str, env: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Start a command in a session of its own, silently."""
        log = (self.folder / "log").open("ab")
        process = subprocess.Popen(
            command,
            env=env or self.environment,
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        log.close()
        self.started.append(process)
        return process

    def torchrun(self, *program: str) -> subprocess.Popen[bytes]:
        """A job of two ranks with the probe."""
        launch = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
        return self.start(sys.executable, *launch, *program, env=self.probed)

    def end(self) -> None:
        """Kill what was started and all that came of it, also ranks, which torchrun gives sessions of their own."""
        roots = [psutil.Process(process.pid) for process in self.started if process.poll() is None]
        tree = [one for root in roots for one in (root, *root.children(recursive=True))]
        for one in tree:
            with contextlib.suppress(psutil.Error):
                one.kill()
        for process in self.started:
            process.wait()
        psutil.wait_procs(tree, timeout=10.0)
        self.started.clear()

    def incidents(self) -> set[str]:
        """The ids on disk."""
        return {file.parent.name for file in self.state.glob("incidents/*/incident.json")}


def _await(condition: Callable[[], bool], limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.2)


def _healthy(node: Node) -> None:
    job = node.torchrun(str(_ROOT / "tests/jobs/steady.py"), "--steps", "100", "--step-s", "0.05")
    _await(lambda: job.poll() is not None, 90.0)


def _hanging(node: Node) -> None:
    scenario = find_scenario("group-order")
    assert scenario is not None  # noqa: S101  # it is in the table
    known = node.incidents()
    node.torchrun(str(scenario.path))
    _await(lambda: bool(node.incidents() - known), 90.0)


def _rank_killed(node: Node) -> None:
    job = node.torchrun(str(_ROOT / "tests/jobs/steady.py"))
    time.sleep(8)
    with contextlib.suppress(psutil.Error):
        ranks = [child for child in psutil.Process(job.pid).children() if "RANK" in child.environ()]
        ranks[-1].kill()
    _await(lambda: job.poll() is not None, 60.0)


def _short_lived(node: Node) -> None:
    shell = node.start("sh", "-c", _SHORT_LIVED, sys.executable, env=node.probed)
    _await(lambda: shell.poll() is not None, 120.0)


def _ask(url: str) -> None:
    for path in ("/metrics", "/", "/healthz"):
        with contextlib.suppress(OSError), urllib.request.urlopen(url + path, timeout=5.0) as answer:  # noqa: S310
            answer.read()
    host, port = url.removeprefix("http://").split(":")
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=5.0) as stream:
        stream.sendall(f"GET /events HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
        stream.recv(4096)


def _sample(agent: psutil.Process, folder: Path) -> dict[str, float]:
    with agent.oneshot():
        times = agent.cpu_times()
        return {
            "at_s": time.monotonic(),
            "rss_mb": agent.memory_info().rss / 2**20,
            "cpu_s": times.user + times.system + times.children_user + times.children_system,
            "threads": agent.num_threads(),
            "descriptors": agent.num_fds(),
            "files": sum(len(files) for _, _, files in os.walk(folder)),
        }


def _soak(node: Node, url: str, agent: psutil.Process, minutes: float, period_s: float) -> list[dict[str, float]]:
    samples = []
    kinds: Iterator[Callable[[Node], None]] = itertools.cycle((_healthy, _short_lived, _hanging, _rank_killed))
    child: int | None = None
    end_s, next_job_s = time.monotonic() + 60 * minutes, 0.0
    while time.monotonic() < end_s:
        if child is not None and os.waitpid(child, os.WNOHANG)[0]:
            child = None
        if child is None and time.monotonic() >= next_job_s:
            next_job_s, kind = time.monotonic() + period_s, next(kinds)
            child = os.fork()  # what it starts is its own to end
            if child == 0:
                node.started.clear()
                try:
                    kind(node)
                finally:
                    node.end()
                    os._exit(0)
        _ask(url)
        samples.append(_sample(agent, node.folder))
        time.sleep(_SAMPLE_S)
    if child is not None:
        os.waitpid(child, 0)
    return samples


def main() -> None:
    """Soak, and say what has grown."""
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    period_s = float(sys.argv[2]) if len(sys.argv) > 2 else 30.0
    with tempfile.TemporaryDirectory(prefix="soak-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        node = Node(folder)
        config = folder / "hangwatch.toml"
        config.write_text(f'state_dir = "{node.state}"\nlisten = ":0"\n[bundles]\nmax_count = {_BUNDLES}\n')
        with (folder / "agent.log").open("wb") as log:
            command = [sys.executable, "-m", "hangwatch", "agent", "--config", str(config)]
            started = subprocess.Popen(command, env=node.environment, stderr=log, start_new_session=True)
        try:
            _await(lambda: b"/metrics" in (folder / "agent.log").read_bytes(), 60.0)
            said = (folder / "agent.log").read_text()
            url = next(word for word in said.split() if word.endswith("/metrics,")).removesuffix("/metrics,")
            samples = _soak(node, url, psutil.Process(started.pid), minutes, period_s)
        finally:
            started.terminate()
            status = started.wait(timeout=60)
            node.end()
    third = len(samples) // 3
    middle, last = samples[third : 2 * third], samples[2 * third :]
    medians = {name: [round(median(s[name] for s in part), 2) for part in (middle, last)] for name in _ALLOWED}
    grown = {name: round(after - before, 2) for name, (before, after) in medians.items()}
    seconds = samples[-1]["at_s"] - samples[0]["at_s"]
    print(
        json.dumps(
            {
                "minutes": round(seconds / 60, 1),
                "samples": len(samples),
                "medians_of_second_and_last_third": medians,
                "growth": grown,
                "rss_mb_highest": round(max(s["rss_mb"] for s in samples), 1),
                "cpu_share_of_one_core": round((samples[-1]["cpu_s"] - samples[0]["cpu_s"]) / seconds, 4),
                "agent_status": status,
            }
        )
    )
    sys.exit(status != 0 or any(grown[name] > most for name, most in _ALLOWED.items()))


if __name__ == "__main__":
    main()
