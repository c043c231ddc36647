"""Runs one command of the user with the probe in its ranks and an agent beside it, for ``hangwatch run``."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from pathlib import Path

from hangwatch.agent.host.events import SCHEMA, EventFile
from hangwatch.agent.host.supervisor import Supervisor
from hangwatch.agent.service import Service
from hangwatch.config.directories import probe_environment, restart_environment
from hangwatch.config.settings import Settings
from hangwatch.model.capture import RankIdentity
from hangwatch.outputs.terminal.console import Console
from hangwatch.outputs.web.access import TOKEN_VARIABLES
from hangwatch.sources.stacks.readers import find_program
from hangwatch.sources.stacks.samples import READER

_ADDRESS = "127.0.0.1:0"


class WatchedCommand:
    """One watched command, from start to exit.

    ``environ``: the environment of ``hangwatch run``. ``secrets``: variables of it that the command must not inherit,
    besides the token of the page. ``verbose``: print verdicts with all their evidence.
    """

    def __init__(
        self,
        command: list[str],
        settings: Settings,
        state_dir: Path,
        run_dir: Path,
        console: Console,
        environ: Mapping[str, str],
        secrets: Collection[str],
        events: EventFile | None = None,
        *,
        verbose: bool = False,
    ) -> None:
        inherited = {name: value for name, value in environ.items() if name not in {*secrets, *TOKEN_VARIABLES}}
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
            verbose=verbose,
        )

    def _known_ranks(self) -> list[RankIdentity]:
        return self.service.known_ranks()

    def _say(self, text: str) -> None:
        self.service.voice.say(text)

    async def _ready(self) -> None:
        await self.service.actor.commands_ended()

    async def run(self) -> int:
        """Run the agent and the command until the command ends; return its exit status."""
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
