"""``hangwatch mcp``: read-only tools for coding agents, through the Model Context Protocol."""

from __future__ import annotations

from pathlib import Path

import click

from hangwatch.cli.options import SectionCommand, state_dir


@click.command(cls=SectionCommand)
@click.option("--skill", is_flag=True, help="Print SKILL.md, which tells an agent when to call what.")
@state_dir
def mcp(skill: bool, state_dir: Path | None) -> None:
    """Serve read-only tools for coding agents (MCP), on stdin and stdout.

    The tools return incidents, waits between ranks, stacks, source lines, and the findings of doctor.
    """
    import sys

    from hangwatch.assistant.skill import read_skill
    from hangwatch.config.directories import default_state_dir
    from hangwatch.model.errors import UserError

    if skill:
        sys.stdout.write(read_skill())
        return
    try:
        from hangwatch.assistant.server import make_server
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in {"mcp", "mcp_types", "pydantic"}:
            raise
        raise UserError("hangwatch mcp needs the MCP SDK: pip install 'mcp>=2.3'") from None
    make_server((state_dir or default_state_dir()).absolute()).run("stdio")
