"""``hangwatch agent``: the per-node daemon, or the agent of one job that runs already."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Optional

import psutil
import typer
from rich.console import Console

from hangwatch.agent.host.launch import wait_for_process
from hangwatch.agent.host.systemd import ServiceManager, take_service_manager
from hangwatch.agent.service import Service
from hangwatch.cli.common import StateDir, stderr_console
from hangwatch.cli.receivers import Alertmanager, Notify, Otlp, Webhook
from hangwatch.cli.settings import Config, EngineOption, ExchangeOption, JobOption, StallAfter, combine
from hangwatch.config.directories import default_state_dir, prepare_state_dir, shared_run_dir
from hangwatch.config.errors import UserError
from hangwatch.config.settings import Settings
from hangwatch.outputs.push.senders import PushError

log = logging.getLogger("hangwatch")

_ADDRESS = "127.0.0.1:9753"
#: Of an agent that is one of many on its node.
_ANY_ADDRESS = "127.0.0.1:0"


def agent(
    config: Config = None,
    state_dir: StateDir = None,
    listen: Annotated[
        Optional[str],  # noqa: UP045  # typer reads the annotation at run time, on Python 3.10 too
        typer.Option(
            "--listen",
            metavar="HOST:PORT",
            help=f"Address for /metrics and the web page (default: {_ADDRESS}; with --pid a free port).",
        ),
    ] = None,
    stall_after: StallAfter = None,
    alertmanager: Alertmanager = None,
    webhook: Webhook = None,
    notify: Notify = None,
    otlp: Otlp = None,
    exchange: ExchangeOption = None,
    job: JobOption = None,
    pid: Annotated[
        Optional[int],  # noqa: UP045  # see above
        typer.Option(
            "--pid", metavar="PID", help="Watch the jobs below this process alone (a launcher), and end with it."
        ),
    ] = None,
    engine: EngineOption = None,
) -> None:
    """Watch every job on this node. SIGHUP reloads the settings file; SIGTERM stops the agent, jobs keep running."""

    def load_settings() -> Settings:
        return combine(
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
        )

    manager = take_service_manager()
    settings = load_settings()
    launcher = _find_launcher(pid) if pid is not None else None
    state = prepare_state_dir(Path(settings.state_dir) if settings.state_dir else default_state_dir())
    asyncio.run(_serve(load_settings, settings, state, stderr_console(), manager, launcher))


def _find_launcher(pid: int) -> psutil.Process:
    try:
        return psutil.Process(pid)
    except (psutil.NoSuchProcess, ValueError):
        # Also of a launcher that failed at once: whoever reads it may not have asked for an agent.
        raise UserError(f"process {pid} has ended, or never was: there is nothing to watch") from None


async def _serve(
    load_settings: Callable[[], Settings],
    settings: Settings,
    state: Path,
    console: Console,
    manager: ServiceManager,
    launcher: psutil.Process | None,
) -> None:
    service = Service(
        settings,
        state,
        shared_run_dir(),
        console,
        address=_ADDRESS if launcher is None else _ANY_ADDRESS,
        root=None if launcher is None else lambda: launcher.pid,
        manager=manager,
    )
    watched = "this node" if launcher is None else f"process {launcher.pid}"
    stop, reload = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, reload.set)
    ending = asyncio.create_task(_stop_with(launcher, stop)) if launcher is not None else None
    try:
        url = await service.open()
        status = f"watching {watched}, metrics at {url}/metrics, page at {url}/"
        service.voice.say(status, url=url)
        manager.ready(status)
        reloading = asyncio.create_task(_reload(service, load_settings, reload, status), name="hangwatch reload")
        await service.agent.run(stop)
        manager.stopping()
        reloading.cancel()
        await service.close(over=ending is not None and ending.done())
    finally:
        if ending is not None:
            ending.cancel()
        await service.release()


async def _stop_with(launcher: psutil.Process, stop: asyncio.Event) -> None:
    with contextlib.suppress(psutil.Error):
        await wait_for_process(launcher)
    stop.set()


async def _reload(
    service: Service, load_settings: Callable[[], Settings], requested: asyncio.Event, status: str
) -> None:
    """Reload the settings whenever ``requested`` is set; invalid settings leave the current ones in place."""
    while True:
        await requested.wait()
        requested.clear()
        service.manager.reloading()
        try:
            fixed = await service.reload(load_settings())
        except (UserError, PushError) as error:
            log.error("settings not reloaded, the current ones stay: %s", error)
        else:
            later = f"; restart required for {', '.join(fixed)}" if fixed else ""
            service.voice.say(f"settings reloaded{later}")
        service.manager.ready(status)
