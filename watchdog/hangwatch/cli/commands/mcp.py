"""``hangwatch mcp``: read-only tools for coding agents, through the Model Context Protocol."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Annotated, Optional

import typer

from hangwatch.assistant.skill import read_skill
from hangwatch.cli.common import StateDir, stderr_console
from hangwatch.config.directories import default_state_dir
from hangwatch.config.errors import UserError
from hangwatch.outputs.web.access import read_token
from hangwatch.outputs.web.server import parse_listen


def mcp(
    state_dir: StateDir = None,
    listen: Annotated[
        Optional[str],  # noqa: UP045  # typer reads the annotation at run time, on Python 3.10 too
        typer.Option(
            "--listen",
            metavar="HOST:PORT",
            help="Serve over HTTP at this address, path /mcp (default: stdin and stdout).",
        ),
    ] = None,
    skill: Annotated[
        bool, typer.Option("--skill", help="Print SKILL.md, which tells an agent when to call what.")
    ] = False,
) -> None:
    """Serve read-only tools for coding agents (MCP): incidents, who waits for whom, stacks, source lines, doctor."""
    if skill:
        sys.stdout.write(read_skill())
        return
    try:
        from hangwatch.assistant.server import make_server
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in {"mcp", "mcp_types", "pydantic"}:
            raise
        raise UserError("hangwatch mcp needs the MCP SDK: pip install 'mcp>=2.3'") from None
    server = make_server((state_dir or default_state_dir()).absolute(), remote=listen is not None)
    if listen is None:
        server.run("stdio")
    else:
        asyncio.run(_serve(server, *parse_listen(listen)))


async def _serve(server: object, host: str, port: int) -> None:
    """Serve over HTTP until a signal ends it."""
    from hangwatch.assistant.http import PATH, serve_over_http

    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    running = await serve_over_http(server, host, port, read_token(os.environ))
    stderr_console().print(
        f"hangwatch: MCP server at {running.url}{PATH}", markup=False, highlight=False, soft_wrap=True
    )
    await stop.wait()
    await running.stop()
