"""``hangwatch agent``: the per-node daemon."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Optional

import typer
from rich.console import Console

from hangwatch.agent.host.systemd import ServiceManager, take_service_manager
from hangwatch.agent.service import Service
from hangwatch.cli.common import StateDir, stderr_console
from hangwatch.cli.receivers import Alertmanager, Notify, Slack, Webhook
from hangwatch.cli.settings import Config, ExchangeOption, JobOption, StallAfter, combine
from hangwatch.config.directories import default_state_dir, prepare_state_dir, shared_run_dir
from hangwatch.config.errors import UserError
from hangwatch.config.settings import Settings
from hangwatch.outputs.push.senders import PushError

log = logging.getLogger("hangwatch")

_ADDRESS = "127.0.0.1:9753"


def agent(
    config: Config = None,
    state_dir: StateDir = None,
    listen: Annotated[
        Optional[str],  # noqa: UP045  # typer reads the annotation at run time, on Python 3.10 too
        typer.Option(
            "--listen", metavar="HOST:PORT", help=f"Address for /metrics and the web page (default: {_ADDRESS})."
        ),
    ] = None,
    stall_after: StallAfter = None,
    alertmanager: Alertmanager = None,
    webhook: Webhook = None,
    slack: Slack = None,
    notify: Notify = None,
    exchange: ExchangeOption = None,
    job: JobOption = None,
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
            slack=slack,
            notify=notify,
            exchange=exchange,
            job=job,
        )

    manager = take_service_manager()
    settings = load_settings()
    state = prepare_state_dir(Path(settings.state_dir) if settings.state_dir else default_state_dir())
    asyncio.run(_serve(load_settings, settings, state, stderr_console(), manager))


async def _serve(
    load_settings: Callable[[], Settings], settings: Settings, state: Path, console: Console, manager: ServiceManager
) -> None:
    service = Service(settings, state, shared_run_dir(), console, address=_ADDRESS, manager=manager)
    stop, reload = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, reload.set)
    try:
        url = await service.open()
        status = f"watching this node, metrics at {url}/metrics, page at {url}/"
        service.voice.say(status, url=url)
        manager.ready(status)
        reloading = asyncio.create_task(_reload(service, load_settings, reload, status), name="hangwatch reload")
        await service.agent.run(stop)
        manager.stopping()
        reloading.cancel()
        await service.close(over=False)
    finally:
        await service.release()


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
