"""``hangwatch run -- CMD``: the command with the probe in its ranks and an agent beside it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from hangwatch.agent.actions import Action, parse_action, run_hook
from hangwatch.agent.directories import (
    default_state_dir,
    make_run_dir,
    prepare_state_dir,
    probe_environment,
    remove_run_dir,
)
from hangwatch.agent.errors import EXIT_STOPPED
from hangwatch.agent.launch import end_tree, exit_status, pass_signals, start_command, wait_for_command
from hangwatch.agent.log import log_to
from hangwatch.agent.watch import Agent
from hangwatch.cli.common import StateDir, check_patience, stderr_console
from hangwatch.cli.receivers import TARGET_VARIABLES, Alertmanager, Slack, Webhook, parse_targets
from hangwatch.model.incident import HANG_KINDS, Incident
from hangwatch.outputs.access import TOKEN_VARIABLES, read_token
from hangwatch.outputs.metrics import Metrics
from hangwatch.outputs.page import Page
from hangwatch.outputs.push import Push, Target
from hangwatch.outputs.server import parse_listen, start_server
from hangwatch.outputs.verdict import print_verdict
from hangwatch.sources.stacks import find_pyspy


def run(
    command: Annotated[list[str], typer.Argument(metavar="-- CMD ...", help="The command that starts the job.")],
    state_dir: StateDir = None,
    listen: Annotated[
        str,
        typer.Option(
            "--listen",
            metavar="HOST:PORT",
            help="Where /metrics and the page are served (default: a free loopback port).",
        ),
    ] = "127.0.0.1:0",
    on_hang: Annotated[
        str,
        typer.Option("--on-hang", metavar="report|stop|exec:CMD", help="What to do when a hang is confirmed."),
    ] = "report",
    on_silent_failure: Annotated[
        str,
        typer.Option(
            "--on-silent-failure",
            metavar="report|stop|exec:CMD",
            help="What to do when training runs and learns nothing (loss pinned at 0, NaN).",
        ),
    ] = "report",
    stall_after: Annotated[
        float,
        typer.Option(
            "--stall-after",
            metavar="SECONDS",
            help="Patience for what cannot be proven (default: learnt from the job, 30 s at least).",
        ),
    ] = 0.0,
    alertmanager: Alertmanager = None,
    webhook: Webhook = None,
    slack: Slack = None,
    log: Annotated[
        list[str] | None,
        typer.Option(
            "--log",
            metavar="GLOB",
            help="Files in which the job logs loss and learning rate, where it does not do so by itself; may be repeated.",
        ),
    ] = None,
) -> None:
    """Run CMD with hangwatch beside it; exits with CMD's own status, or 75 when it was told to stop and ended it."""
    patience_s = check_patience(stall_after)
    actions = {kind: parse_action(on_hang, "--on-hang") for kind in HANG_KINDS}
    actions["silent_failure"] = parse_action(on_silent_failure, "--on-silent-failure")
    address = parse_listen(listen)
    targets = parse_targets(alertmanager, webhook, slack)
    token = read_token()
    state = prepare_state_dir(state_dir or default_state_dir())
    run_dir = make_run_dir()
    console = stderr_console()
    try:
        session = _Session(
            command, state, run_dir, address, actions, patience_s, console, targets, token, tuple(log or ())
        )
        status = asyncio.run(session.run(os.environ))
    finally:
        remove_run_dir(run_dir)
    raise typer.Exit(status)


class _Session:
    """One command under watch, from its start to its end."""

    def __init__(
        self,
        command: list[str],
        state_dir: Path,
        run_dir: Path,
        address: tuple[str, int],
        actions: Mapping[str, Action],
        stall_after_s: float | None,
        console: Console,
        targets: tuple[Target, ...],
        token: str | None,
        logs: tuple[str, ...] = (),
    ) -> None:
        self.command = command
        self.token = token
        self.address = address
        self.actions = actions
        self.console = console
        self.pid: int | None = None
        self.stopped = False
        self.acted: set[str] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self.metrics = Metrics()
        self.push = Push(targets)
        self.agent = Agent(
            run_dir=run_dir,
            state_dir=state_dir,
            announce=self.announce,
            metrics=self.metrics,
            root=lambda: self.pid,
            stall_after_s=stall_after_s,
            receivers=self.push.metrics,
            logs=logs,
        )

    async def run(self, environ: Mapping[str, str]) -> int:
        """Start everything, wait for the command, end everything; returns the exit status."""
        log_to(self.console)
        page = Page(self.agent.state_dir, self.agent.live)
        server = await start_server(*self.address, self.metrics, self.agent.healthz, page, self.token)
        stop = asyncio.Event()
        try:
            # The addresses of receivers and the page's token are secrets, and no business of the job's.
            secrets = {*TARGET_VARIABLES.values(), *TOKEN_VARIABLES}
            inherited = {name: value for name, value in environ.items() if name not in secrets}
            process = start_command(self.command, {**inherited, **probe_environment(self.agent.run_dir, environ)})
            self.pid = process.pid
            pass_signals(process, asyncio.get_running_loop())
            self.say(
                f"watching {self.command[0]} (pid {process.pid}), metrics at {server.url}/metrics, page at {server.url}/"
            )
            if find_pyspy() is None:
                self.say("py-spy is not installed, so stacks cannot be read; pip install py-spy")
            watching = asyncio.create_task(self.agent.run(stop))
            returncode = await wait_for_command(process)
            stop.set()
            await watching
            await self.agent.close()
            if self.tasks:
                await asyncio.wait(self.tasks)
        finally:
            await self.push.close()
            await server.stop()
        return EXIT_STOPPED if self.stopped else exit_status(returncode)

    def say(self, text: str) -> None:
        """One line of ours among the job's output."""
        self.console.print(f"hangwatch: {text}", markup=False, highlight=False, soft_wrap=True)

    async def announce(self, incident: Incident, path: Path | None) -> None:
        """Print the verdict, tell the receivers, and act on it once."""
        self.push.tell(incident, path)
        verdict = incident.verdict
        if incident.ended_at is not None:
            if not self.stopped:
                how = "the loss is well again" if verdict.kind == "silent_failure" else "what was waited for has come"
                self.say(f"incident {incident.id} is over: {how}, or the job has ended")
            return
        print_verdict(incident, self.console, bundle=path)
        action = self.actions.get(verdict.kind)
        if action is None or incident.id in self.acted:
            return
        self.acted.add(incident.id)
        task = asyncio.create_task(self._act(action, incident, path))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _act(self, action: Action, incident: Incident, path: Path | None) -> None:
        option = "--on-silent-failure" if incident.verdict.kind == "silent_failure" else "--on-hang"
        for watch in self.agent.watches():
            if watch.told is not None and watch.told.incident.id == incident.id:
                await watch.completed()
        if action.kind == "stop" and self.pid is not None:
            self.stopped = True
            ranks = [i.pid for w in self.agent.watches() for i in w.ranks.values()]
            self.say(f"ending the job ({option} stop); the bundle is complete")
            await end_tree(self.pid, ranks)
        elif action.kind == "exec":
            status = await run_hook(action.command, incident, path)
            self.say(f"{option} command ended with status {status}")
