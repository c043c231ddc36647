"""``hangwatch``: the command line. User errors are caught here, once, and printed as one line.

Only the command that is called is imported, and a command imports what it needs when it runs: help and completion are instant.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from types import MappingProxyType

import click

from hangwatch import __version__
from hangwatch.cli.options import CONTEXT

#: The commands by section of the help, with what they do (``commands/NAME.py``).
SECTIONS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "Watch jobs": {
            "run": "Run a training command and watch it",
            "agent": "Watch every job on this node",
            "env": "Print the variables for a job that you start without `run`",
        },
        "Look at jobs": {
            "status": "Show the ranks of every job on this node",
            "dump": "Capture and diagnose a job now",
        },
        "Look at hangs": {
            "incidents": "List the incidents that were found",
            "explain": "Explain a cause, and what to do about it",
            "report": "Print an incident in a form to send",
            "diagnose": "Diagnose the files that a job has left behind",
        },
        "Set up": {
            "doctor": "Check that hangwatch works on this machine",
            "demo": "Run a small job that hangs, and diagnose it",
            "check-config": "Check a settings file",
            "mcp": "Serve read-only tools for coding agents",
        },
    }
)
COMMANDS: Mapping[str, str] = MappingProxyType(
    {name: does for section in SECTIONS.values() for name, does in section.items()}
)


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, in the order of the help."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command of that name and return it; None if there is none."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        command: click.Command = getattr(importlib.import_module(f"hangwatch.cli.commands.{name}"), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that is called and its arguments; for an unknown name, fail and suggest the nearest one."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-") and not ctx.resilient_parsing:
            import difflib

            near = difflib.get_close_matches(name, COMMANDS, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            ctx.fail(f"No such command {name!r}.{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections of commands, without importing any of them."""
        del ctx
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl(list(commands.items()))


@click.group(cls=_Commands, context_settings=CONTEXT)
@click.version_option(__version__, prog_name="hangwatch", message="%(prog)s %(version)s")
def app() -> None:
    """Find, prove and explain hangs of distributed PyTorch and DeepSpeed jobs while they happen."""


def main() -> None:
    """Run the ``hangwatch`` command."""
    from hangwatch.model.errors import PlainError

    try:
        app(prog_name="hangwatch")
    except PlainError as error:
        sys.stderr.write(f"hangwatch: {error}\n")
        sys.exit(error.status)
