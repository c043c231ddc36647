"""``hangwatch run -- CMD``: the command with the probe in its ranks and an agent beside it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Optional

import typer
from rich.console import Console

from hangwatch.agent.host.launch import end_tree, exit_status, pass_signals, start_command, wait_for_command
from hangwatch.agent.service import Service
from hangwatch.cli.common import StateDir, stderr_console
from hangwatch.cli.receivers import TARGET_VARIABLES, Alertmanager, Slack, Webhook
from hangwatch.cli.settings import EXCHANGE_VARIABLE, Config, ExchangeOption, JobOption, StallAfter, WithValues, combine
from hangwatch.config.directories import (
    default_state_dir,
    make_run_dir,
    prepare_state_dir,
    probe_environment,
    remove_run_dir,
)
from hangwatch.config.errors import EXIT_STOPPED
from hangwatch.config.settings import Settings
from hangwatch.model.incident import Incident
from hangwatch.outputs.web.access import TOKEN_VARIABLES
from hangwatch.sources.stacks.samples import find_pyspy

_ADDRESS = "127.0.0.1:0"


def run(
    command: Annotated[list[str], typer.Argument(metavar="-- CMD ...", help="The command that starts the job.")],
    config: Config = None,
    state_dir: StateDir = None,
    listen: Annotated[
        Optional[str],  # noqa: UP045  # typer reads the annotation at run time, on Python 3.10 too
        typer.Option(
            "--listen",
            metavar="HOST:PORT",
            help="Where /metrics and the page are served (default: a free loopback port).",
        ),
    ] = None,
    on_hang: Annotated[
        Optional[str],  # noqa: UP045  # see above
        typer.Option("--on-hang", metavar="report|stop|exec:CMD", help="What to do when a hang is confirmed."),
    ] = None,
    on_silent_failure: Annotated[
        Optional[str],  # noqa: UP045  # see above
        typer.Option(
            "--on-silent-failure",
            metavar="report|stop|exec:CMD",
            help="What to do when training runs and learns nothing (loss pinned at 0, NaN).",
        ),
    ] = None,
    stall_after: StallAfter = None,
    with_values: WithValues = False,
    alertmanager: Alertmanager = None,
    webhook: Webhook = None,
    slack: Slack = None,
    exchange: ExchangeOption = None,
    job: JobOption = None,
    log: Annotated[
        Optional[list[str]],  # noqa: UP045  # see above
        typer.Option(
            "--log",
            metavar="GLOB",
            help="Files in which the job logs loss and learning rate, where it does not do so by itself; may be repeated.",
        ),
    ] = None,
) -> None:
    """Run CMD with hangwatch beside it; exits with CMD's own status, or 75 when it was told to stop and ended it."""
    settings = combine(
        config,
        state_dir=state_dir,
        listen=listen,
        stall_after=stall_after,
        alertmanager=alertmanager,
        webhook=webhook,
        slack=slack,
        exchange=exchange,
        job=job,
        on_hang=on_hang,
        on_silent_failure=on_silent_failure,
        log=log,
        with_values=with_values,
    )
    state = prepare_state_dir(Path(settings.state_dir) if settings.state_dir else default_state_dir())
    run_dir = make_run_dir()
    try:
        status = asyncio.run(_Run(command, settings, state, run_dir, stderr_console()).run(os.environ))
    finally:
        remove_run_dir(run_dir)
    raise typer.Exit(status)


class _Run:
    """One command under watch, from its start to its end."""

    def __init__(
        self, command: list[str], settings: Settings, state_dir: Path, run_dir: Path, console: Console
    ) -> None:
        self.command = command
        self.pid: int | None = None
        self.stopped = False
        self.service = Service(
            settings, state_dir, run_dir, console, address=_ADDRESS, root=lambda: self.pid, stop=self._stop
        )

    async def run(self, environ: Mapping[str, str]) -> int:
        """Start everything, wait for the command, end everything; returns the exit status."""
        service, stop = self.service, asyncio.Event()
        try:
            url = await service.open()
            # The addresses of receivers and the page's token are secrets, and no business of the job's.
            secrets = {*TARGET_VARIABLES.values(), *TOKEN_VARIABLES, EXCHANGE_VARIABLE}
            inherited = {name: value for name, value in environ.items() if name not in secrets}
            named = {"HANGWATCH_JOB": service.settings.job} if service.settings.job else {}
            process = start_command(
                self.command, {**inherited, **named, **probe_environment(service.agent.run_dir, environ)}
            )
            self.pid = process.pid
            pass_signals(process, asyncio.get_running_loop())
            service.voice.say(
                f"watching {self.command[0]} (pid {process.pid}), metrics at {url}/metrics, page at {url}/", url=url
            )
            if find_pyspy() is None:
                service.voice.say("py-spy is not installed, so stacks cannot be read; pip install py-spy")
            watching = asyncio.create_task(service.agent.run(stop))
            returncode = await wait_for_command(process)
            stop.set()
            await watching
            await service.close(over=True)
        finally:
            await service.release()
        return EXIT_STOPPED if self.stopped else exit_status(returncode)

    async def _stop(self, incident: Incident) -> str:
        """End the command and everything that came of it, also ranks that have left its tree."""
        del incident  # a command is one job to us, whatever it has started
        if self.pid is None:
            return "the job had not begun"
        self.stopped = True
        ranks = [i.pid for w in self.service.agent.watches() for i in w.ranks.known.values()]
        return (await end_tree([self.pid, *ranks])).in_words()
