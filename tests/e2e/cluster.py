"""A job on several hosts of a test's own, an agent beside each of its nodes, and whoever they tell of incidents."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from hosts import Host, Network
from watched_runs import ACT_AFTER_S, find_bundles, read_incident

from hangwatch.config.directories import probe_environment
from hangwatch.model.incident import Incident
from support import JOBS, SOURCE_ROOT, Job, JobRunner, wait_for

sys.path.append(str(Path(__file__).resolve().parent.parent / "exchange"))
from servers import RedisServer

NODES = 3
#: A receiver of alerts: a line of JSON for each that it takes.
_RECEIVER = """
import http.server, sys
class Taker(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with open(sys.argv[1], "ab") as file:
            file.write(body.replace(b"\\n", b" ") + b"\\n")
        self.send_response(200)
        self.end_headers()
    def log_message(self, *args):
        pass
http.server.ThreadingHTTPServer(("10.77.0.4", 8080), Taker).serve_forever()
"""


#: What the agents have in common where they are to act.
SECRET = MappingProxyType({"HANGWATCH_SECRET": "a secret of these tests"})


@dataclass
class Cluster:
    """Three nodes with a rank each, agents beside them, and a fourth host for the server and the receiver of alerts.

    torchrun gives the first address the first rank, and so on: rank and node have the same number. ``settings``: those of
    the agents, as in their file; ``run_options``: more options for ``hangwatch run``; ``secret``: what lets the agents act.
    """

    network: Network
    runner: JobRunner
    folder: Path
    exchange: str | None = "redis://10.77.0.4:6379"
    patience_s: int = 6
    settings: str = ""
    run_options: tuple[str, ...] = ()
    secret: Mapping[str, str] = field(default_factory=dict)
    agents: dict[int, Job] = field(default_factory=dict)
    launchers: dict[int, Job] = field(default_factory=dict)

    @property
    def nodes(self) -> Sequence[Host]:
        """The nodes of the job."""
        return self.network.hosts[:NODES]

    @property
    def aside(self) -> Host:
        """The host that is no node of the job."""
        return self.network[NODES]

    def start_redis(self) -> RedisServer:
        """A Redis server on the fourth host."""
        server = RedisServer(self.runner, 6379, self.aside.address, self.aside.inside())
        server.start()
        return server

    def start_receiver(self) -> None:
        """Start whoever is alerted."""
        self.aside.start(sys.executable, "-c", _RECEIVER, str(self.folder / "alerts"))

    def start_agent(self, number: int) -> None:
        """Start the agent of a node, as a daemon."""
        host = self.network[number]
        (host.home / "hangwatch.toml").write_text(self.settings)
        options = (*self._options(), "--config", str(host.home / "hangwatch.toml"))
        self.agents[number] = host.hangwatch("agent", *options, env={"PYTHONPATH": str(SOURCE_ROOT), **self.secret})
        self.agents[number].wait_for_output("watching this node", 120.0)

    def _options(self) -> tuple[str, ...]:
        exchange = ("--exchange", self.exchange) if self.exchange is not None else ()
        return (
            *exchange,
            "--stall-after",
            str(self.patience_s),
            "--act-after",
            str(ACT_AFTER_S),
            "--webhook",
            "http://10.77.0.4:8080/",
        )

    def start_agents(self) -> None:
        """Start the agents of all nodes."""
        for number in range(NODES):
            self.start_agent(number)

    def start_job(self, *, static: bool = False) -> None:
        """Start the job on all nodes and wait until it trains; ``static``: see ``launch``."""
        for number in range(NODES):
            self.launch(number, static=static)
        self.wait_for_steps(20)

    def launch(
        self,
        number: int,
        *options: str,
        nodes: str = str(NODES),
        static: bool = False,
        run: bool = False,
        folder: Path | None = None,
        program: tuple[str, ...] = (),
        env: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Start a node's part of the job, as a user would with ``hangwatch env``, or with ``run`` under ``hangwatch run``.

        ``nodes`` and ``options`` are torchrun's. ``static``: without its rendezvous, which compares the clocks of nodes.
        ``folder``: the job's own, where there are several. ``program``: another one than ``nodes.py``, and its arguments.
        """
        host = self.network[number]
        run_dir = host.home / "tmp" / "hangwatch-0" / "node"
        given = ("--nnodes", nodes, "--nproc-per-node", "1", "--local-addr", host.address)
        elastic = ("--rdzv-id", "job", "--rdzv-backend", "c10d", "--rdzv-endpoint", "10.77.0.1:29500")
        fixed = ("--node-rank", str(number), "--master-addr", "10.77.0.1", "--master-port", "29500")
        # Of an option that is given twice the last one counts.
        launcher = (sys.executable, "-m", "torch.distributed.run", *given, *(fixed if static else elastic), *options)
        name, *arguments = program or ("nodes.py", str(folder or self.folder))
        launcher += (str(JOBS / name), *arguments)
        if run:
            command = ("run", *self._options(), *self.run_options, "--", *launcher)
            self.agents[number] = host.hangwatch(*command, env={"PYTHONPATH": str(SOURCE_ROOT), **self.secret, **env})
            return
        self.launchers[number] = host.start(*launcher, env={**probe_environment(run_dir, {}), **env})

    def steps(self, ranks: int = NODES) -> list[int]:
        """The step that each rank is at."""
        files = [self.folder / f"step-{rank}" for rank in range(ranks)]
        return [int(file.read_text() or 0) if file.exists() else 0 for file in files]

    def wait_for_steps(self, more: int, ranks: int = NODES) -> None:
        """Wait until every rank has done so many steps more."""
        before = self.steps(ranks)
        done = lambda: all(now >= then + more for now, then in zip(self.steps(ranks), before, strict=True))  # noqa: E731
        wait_for(done, 120.0, "all ranks to go on")

    def hang(self, rank: int) -> None:
        """Let a rank hang."""
        (self.folder / f"hang-{rank}").touch()

    def go_on(self, rank: int) -> None:
        """Give a rank that hangs what it waits for."""
        (self.folder / f"hang-{rank}").unlink()
        with (self.folder / f"pipe-{rank}").open("r+b", buffering=0) as pipe:
            pipe.write(b".")

    def incidents(self, number: int) -> list[Incident]:
        """The incidents on a node's disk."""
        return [read_incident(bundle) for bundle in find_bundles(self.network[number].state)]

    def wait_for_incidents(
        self, numbers: Sequence[int] = range(NODES), *, warning: bool = False, known: Collection[str] = ()
    ) -> list[Incident]:
        """The one incident of each of these nodes: that of a hang, which may be a warning at first, or a ``warning``.

        ``known``: ids of those that were there before.
        """

        def new(number: int) -> list[Incident]:
            return [one for one in self.incidents(number) if one.id not in known]

        def reported(number: int) -> bool:
            found = new(number)
            return bool(found) and (warning or all(one.verdict.kind != "straggler" for one in found))

        wait_for(lambda: all(map(reported, numbers)), 60.0, "every node to have the incident")
        found = [new(n) for n in numbers]
        assert [len(one) for one in found] == [1] * len(numbers)
        return [one[0] for one in found]

    def alerts(self) -> list[dict[str, Any]]:
        """What the receiver has been sent, in order."""
        file = self.folder / "alerts"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def hang_alerts(self) -> list[dict[str, Any]]:
        """Those of hangs: on a busy machine one is a warning at first, of which the receiver is told as well."""
        return [alert for alert in self.alerts() if alert["kind"] != "straggler"]

    def wait_for_alert(self) -> int:
        """Wait for the first alert of a hang; the number of the node that has reported it, which diagnoses for all."""
        alert = wait_for(self.hang_alerts, 60.0, "the alert")[0]
        return [host.name for host in self.nodes].index(alert["node"])


def assert_licence_is_awaited(incident: Incident, rank: int) -> None:
    """The verdict names the rank that hangs, and the line where it does."""
    verdict = incident.verdict
    assert verdict.culprit_ranks == (rank,)
    assert verdict.kind == "stall"
    assert verdict.cause is not None
    assert verdict.cause.id == "blocked-io"
    assert verdict.divergence is not None
    assert verdict.divergence.culprit is not None
    assert verdict.divergence.culprit.function == "read_licence"
