"""``hangwatch mcp``: read-only tools for coding agents, through the Model Context Protocol."""

from __future__ import annotations

from pathlib import Path

import click

from hangwatch.cli.options import SectionCommand, state_dir


@click.command(cls=SectionCommand)
@click.option(
    "--listen", metavar="HOST:PORT", help="Serve over HTTP at this address, path /mcp (default: stdin and stdout)."
)
@click.option("--skill", is_flag=True, help="Print SKILL.md, which tells an agent when to call what.")
@state_dir
def mcp(listen: str | None, skill: bool, state_dir: Path | None) -> None:
    """Serve read-only tools for coding agents (MCP).

    The tools return incidents, waits between ranks, stacks, source lines, and the findings of doctor.
    """
    import asyncio
    import sys

    from hangwatch.assistant.skill import read_skill
    from hangwatch.config.directories import default_state_dir
    from hangwatch.model.errors import UserError
    from hangwatch.outputs.web.server import ServerError, parse_listen

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
        return
    try:
        address = parse_listen(listen)
    except ServerError as error:
        raise UserError(f"--listen: {error}") from None
    asyncio.run(_serve(server, *address))


async def _serve(server: object, host: str, port: int) -> None:
    """Serve over HTTP until a signal ends it."""
    import asyncio
    import os
    import signal

    from hangwatch.assistant.http import PATH, serve_over_http
    from hangwatch.cli.common import stderr_console
    from hangwatch.outputs.web.access import read_token

    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    running = await serve_over_http(server, host, port, read_token(os.environ))
    stderr_console().say(f"hangwatch: MCP server at {running.url}{PATH}")
    await stop.wait()
    await running.stop()
