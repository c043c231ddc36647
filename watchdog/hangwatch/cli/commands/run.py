"""``hangwatch run -- CMD``: run a command with the probe in its ranks and an agent next to it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Optional

import typer
from rich.console import Console

from hangwatch.agent.host.events import SCHEMA, EventFile
from hangwatch.agent.host.supervisor import Supervisor
from hangwatch.agent.service import Service
from hangwatch.cli.common import StateDir, stderr_console
from hangwatch.cli.receivers import TARGET_VARIABLES, Alertmanager, Notify, Otlp, Webhook
from hangwatch.cli.settings import (
    EXCHANGE_VARIABLE,
    ConditionValues,
    Config,
    EngineOption,
    ExchangeOption,
    JobOption,
    NativeStacks,
    StallAfter,
    WithValues,
    combine,
)
from hangwatch.config.directories import (
    default_state_dir,
    make_run_dir,
    prepare_state_dir,
    probe_environment,
    remove_run_dir,
    restart_environment,
)
from hangwatch.config.settings import Settings
from hangwatch.model.capture import RankIdentity
from hangwatch.outputs.web.access import TOKEN_VARIABLES
from hangwatch.sources.stacks.readers import find_program
from hangwatch.sources.stacks.samples import READER

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
            "--on-hang",
            metavar="report|stop|restart|raise|exec:CMD",
            help="Action when a hang is confirmed (default: report). stop: end the job, with exit status 75; restart: end the "
            "ranks and start the job anew; raise: an exception in every rank; restart,exec:CMD: run a command as well.",
        ),
    ] = None,
    max_restarts: Annotated[
        Optional[int],  # noqa: UP045  # see above
        typer.Option(
            "--max-restarts",
            metavar="N",
            help="With --on-hang restart, run CMD again up to N times if its launcher does not restart it (default: 3).",
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
    condition_values: ConditionValues = True,
    native_stacks: NativeStacks = False,
    alertmanager: Alertmanager = None,
    webhook: Webhook = None,
    notify: Notify = None,
    otlp: Otlp = None,
    exchange: ExchangeOption = None,
    job: JobOption = None,
    engine: EngineOption = None,
    log: Annotated[
        Optional[list[str]],  # noqa: UP045  # see above
        typer.Option(
            "--log",
            metavar="GLOB",
            help="Training log files to read loss and learning rate from, if they are not detected automatically; repeatable.",
        ),
    ] = None,
    json: Annotated[
        Optional[str],  # noqa: UP045  # see above
        typer.Option(
            "--json",
            metavar="FD|PATH",
            help="Write events as JSON lines to an open descriptor or to the end of a file (see docs/events.md).",
        ),
    ] = None,
) -> None:
    """Run a training command and watch it. Exits with the status of CMD, or 75 if hangwatch stopped it and did not restart it."""
    settings = combine(
        config,
        state_dir=state_dir,
        listen=listen,
        stall_after=stall_after,
        alertmanager=alertmanager,
        webhook=webhook,
        notify=notify,
        otlp=otlp,
        exchange=exchange,
        job=job,
        engine=engine,
        on_hang=on_hang,
        max_restarts=max_restarts,
        on_silent_failure=on_silent_failure,
        log=log,
        with_values=with_values,
        condition_values=condition_values,
        native_stacks=native_stacks,
    )
    events = EventFile(json) if json is not None else None
    state = prepare_state_dir(Path(settings.state_dir) if settings.state_dir else default_state_dir())
    run_dir = make_run_dir()
    try:
        status = asyncio.run(_Run(command, settings, state, run_dir, stderr_console(), os.environ, events).run())
    finally:
        remove_run_dir(run_dir)
    raise typer.Exit(status)


class _Run:
    """One watched command, from start to exit."""

    def __init__(
        self,
        command: list[str],
        settings: Settings,
        state_dir: Path,
        run_dir: Path,
        console: Console,
        environ: Mapping[str, str],
        events: EventFile | None = None,
    ) -> None:
        # Receiver URLs and the page's token are secrets: the job must not inherit them.
        secrets = {*TARGET_VARIABLES.values(), *TOKEN_VARIABLES, EXCHANGE_VARIABLE}
        inherited = {name: value for name, value in environ.items() if name not in secrets}
        named = {"HANGWATCH_JOB": settings.job} if settings.job else {}
        raises = settings.on_hang.kind == "raise"
        environment = {**inherited, **named, **probe_environment(run_dir, environ, raises=raises)}
        if settings.on_hang.kind in ("restart", "raise"):
            environment = restart_environment(environment)
        self.supervisor = Supervisor(
            command,
            environment,
            settings.max_restarts,
            self._known_ranks,
            self._say,
            self._ready,
        )
        self.service = Service(
            settings,
            state_dir,
            run_dir,
            console,
            address=_ADDRESS,
            root=lambda: self.supervisor.pid,
            control=self.supervisor,
            events=events,
        )

    def _known_ranks(self) -> list[RankIdentity]:
        return self.service.known_ranks()

    def _say(self, text: str) -> None:
        self.service.voice.say(text)

    async def _ready(self) -> None:
        await self.service.actor.commands_ended()

    async def run(self) -> int:
        """Start the agent and the command, wait for the command, stop the agent; returns the exit status."""
        service, stop = self.service, asyncio.Event()
        try:
            url = await service.open()
            pid = self.supervisor.start()
            service.voice.say(
                f"watching {self.supervisor.command[0]} (pid {pid}), metrics at {url}/metrics, page at {url}/",
                event="started",
                url=url,
                pid=pid,
                schema=SCHEMA,
            )
            if find_program(READER) is None:
                service.voice.say("py-spy is not installed, so stacks cannot be read; run: pip install py-spy")
            watching = asyncio.create_task(service.agent.run(stop))
            status = await self.supervisor.run()
            stop.set()
            await watching
            await service.close(over=True)
        finally:
            await service.release()
        service.voice.note(f"the command has ended; exit status {status}", event="ended", status=status)
        return status
