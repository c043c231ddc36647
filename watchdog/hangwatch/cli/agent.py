"""``hangwatch agent``: the per-node daemon."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from hangwatch.agent.directories import default_state_dir, prepare_state_dir, shared_run_dir
from hangwatch.agent.log import log_to
from hangwatch.agent.watch import Agent
from hangwatch.cli.common import StateDir, check_patience, stderr_console
from hangwatch.cli.receivers import Alertmanager, Slack, Webhook, parse_targets
from hangwatch.model.incident import Incident
from hangwatch.outputs.access import read_token
from hangwatch.outputs.metrics import Metrics
from hangwatch.outputs.page import Page
from hangwatch.outputs.push import Push
from hangwatch.outputs.server import parse_listen, start_server
from hangwatch.outputs.verdict import print_verdict


def agent(
    state_dir: StateDir = None,
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Where /metrics and the page are served.")
    ] = "127.0.0.1:9753",
    stall_after: Annotated[
        float, typer.Option("--stall-after", metavar="SECONDS", help="Patience for what cannot be proven.")
    ] = 0.0,
    alertmanager: Alertmanager = None,
    webhook: Webhook = None,
    slack: Slack = None,
) -> None:
    """Watch every job on this node that was started with the environment of `hangwatch env`."""
    patience_s = check_patience(stall_after)
    push = Push(parse_targets(alertmanager, webhook, slack))
    state = prepare_state_dir(state_dir or default_state_dir())
    asyncio.run(_serve(state, parse_listen(listen), patience_s, stderr_console(), push, read_token()))


async def _serve(
    state: Path,
    address: tuple[str, int],
    stall_after_s: float | None,
    console: Console,
    push: Push,
    token: str | None,
) -> None:
    log_to(console)
    metrics = Metrics()

    async def announce(incident: Incident, path: Path | None) -> None:
        push.tell(incident, path)
        if incident.ended_at is None:
            print_verdict(incident, console, bundle=path)

    watcher = Agent(shared_run_dir(), state, announce, metrics, stall_after_s=stall_after_s, receivers=push.metrics)
    page = Page(state, watcher.live)
    server = await start_server(*address, metrics, watcher.healthz, page, token)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    where = f"metrics at {server.url}/metrics, page at {server.url}/"
    console.print(f"hangwatch: watching this node, {where}", highlight=False, soft_wrap=True)
    try:
        await watcher.run(stop)
        await watcher.close()
    finally:
        await push.close()
        await server.stop()
