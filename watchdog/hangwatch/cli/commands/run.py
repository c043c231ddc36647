"""``hangwatch run -- CMD``: run a command with the probe in its ranks and an agent next to it."""

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
from hangwatch.cli.receivers import TARGET_VARIABLES, Alertmanager, Notify, Slack, Webhook
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
    command: Annotated[list[str], typer.Argument(metavar="-- CMD ...", help="Command that starts the training job.")],
    config: Config = None,
    state_dir: StateDir = None,
    listen: Annotated[
        Optional[str],  # noqa: UP045  # typer reads the annotation at run time, on Python 3.10 too
        typer.Option(
            "--listen",
            metavar="HOST:PORT",
            help="Address for /metrics and the web page (default: a free port on 127.0.0.1).",
        ),
    ] = None,
    on_hang: Annotated[
        Optional[str],  # noqa: UP045  # see above
        typer.Option(
            "--on-hang", metavar="report|stop|exec:CMD", help="Action when a hang is confirmed (default: report)."
        ),
    ] = None,
    on_silent_failure: Annotated[
        Optional[str],  # noqa: UP045  # see above
        typer.Option(
            "--on-silent-failure",
            metavar="report|stop|exec:CMD",
            help="Action when training runs but does not learn, e.g. loss stuck at 0 or NaN (default: report).",
        ),
    ] = None,
    stall_after: StallAfter = None,
    with_values: WithValues = False,
    alertmanager: Alertmanager = None,
    webhook: Webhook = None,
    slack: Slack = None,
    notify: Notify = None,
    exchange: ExchangeOption = None,
    job: JobOption = None,
    log: Annotated[
        Optional[list[str]],  # noqa: UP045  # see above
        typer.Option(
            "--log",
            metavar="GLOB",
            help="Training log files to read loss and learning rate from, if they are not detected automatically; repeatable.",
        ),
    ] = None,
) -> None:
    """Run a training command and watch it. Exits with the status of CMD, or 75 if hangwatch stopped it."""
    settings = combine(
        config,
        state_dir=state_dir,
        listen=listen,
        stall_after=stall_after,
        alertmanager=alertmanager,
        webhook=webhook,
        slack=slack,
        notify=notify,
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
    """One watched command, from start to exit."""

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
        """Start the agent and the command, wait for the command, stop the agent; returns the exit status."""
        service, stop = self.service, asyncio.Event()
        try:
            url = await service.open()
            # Receiver URLs and the page's token are secrets: the job must not inherit them.
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
                service.voice.say("py-spy is not installed, so stacks cannot be read; run: pip install py-spy")
            watching = asyncio.create_task(service.agent.run(stop))
            returncode = await wait_for_command(process)
            stop.set()
            await watching
            await service.close(over=True)
        finally:
            await service.release()
        return EXIT_STOPPED if self.stopped else exit_status(returncode)

    async def _stop(self, incident: Incident) -> str:
        """Stop the command and all its descendants, including ranks that have left its process tree."""
        del incident  # the command counts as one job, whatever it has started
        if self.pid is None:
            return "the job had not started"
        self.stopped = True
        ranks = [i.pid for w in self.service.agent.watches() for i in w.ranks.known.values()]
        return (await end_tree([self.pid, *ranks])).in_words()
