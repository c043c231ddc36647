"""Runs the agent of a node, or of one running launcher, until it is stopped, for ``hangwatch agent``."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable
from pathlib import Path

import psutil

from hangwatch.agent.host.launch import wait_for_process
from hangwatch.agent.host.systemd import ServiceManager
from hangwatch.agent.service import Service
from hangwatch.config.directories import shared_run_dir
from hangwatch.config.settings import Settings
from hangwatch.model.errors import UserError
from hangwatch.outputs.push.transports import PushError
from hangwatch.outputs.terminal.console import Console

log = logging.getLogger("hangwatch")

#: The address that scrapers, dashboards and manifests know.
ADDRESS = "127.0.0.1:9753"
#: The address of an agent that is one of many on its node.
_ANY_ADDRESS = "127.0.0.1:0"


def find_launcher(pid: int) -> psutil.Process:
    """Return the process that an agent is to watch. Raises ``UserError`` if there is none."""
    try:
        return psutil.Process(pid)
    except (psutil.NoSuchProcess, ValueError):
        # Also if the launcher failed at once: the reader may not have asked for an agent.
        raise UserError(f"process {pid} has ended, or never was: there is nothing to watch") from None


async def watch_until_stopped(
    load_settings: Callable[[], Settings],
    settings: Settings,
    state: Path,
    console: Console,
    manager: ServiceManager,
    launcher: psutil.Process | None,
    *,
    verbose: bool = False,
) -> None:
    """Watch all jobs of the node, or those below ``launcher`` until that ends.

    SIGHUP loads the settings again.
    """
    service = Service(
        settings,
        state,
        shared_run_dir(),
        console,
        address=ADDRESS if launcher is None else _ANY_ADDRESS,
        root=None if launcher is None else lambda: launcher.pid,
        manager=manager,
        verbose=verbose,
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
