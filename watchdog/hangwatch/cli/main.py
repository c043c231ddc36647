"""``hangwatch``: the command line. User errors are caught here, once, and printed as one line.

Only the command that is called is imported: reading dumps needs no web server.
"""

from __future__ import annotations

import importlib
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from hangwatch import __version__
from hangwatch.model.errors import PlainError

#: The commands in the order of the help, with their click settings (``commands/NAME.py``).
#: Options of `run` end where the training command begins, so that `hangwatch run torchrun --nproc-per-node 8` needs no `--`.
COMMANDS: dict[str, dict[str, Any]] = {
    "run": {"allow_interspersed_args": False, "ignore_unknown_options": False},
    "agent": {},
    "check-config": {},
    "env": {},
    "status": {},
    "dump": {},
    "diagnose": {},
    "report": {},
    "mcp": {},
    "doctor": {},
    "demo": {},
}


class _Commands(TyperGroup):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = dict.fromkeys(COMMANDS)  # type: ignore[assignment]  # names for the help and for suggestions

    def get_command(self, ctx: object, cmd_name: str, /) -> TyperCommand | None:
        """Import the command of that name and return it."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        function = getattr(importlib.import_module(f"hangwatch.cli.commands.{name}"), name)
        alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
        alone.command(cmd_name, context_settings=COMMANDS[cmd_name])(function)
        command: TyperCommand = typer.main.get_command(alone)  # type: ignore[assignment]
        return command


app = typer.Typer(
    name="hangwatch",
    cls=_Commands,
    help="Find, prove and explain hangs of distributed PyTorch and DeepSpeed jobs while they happen.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hangwatch {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options of hangwatch itself."""


def main() -> None:
    """Entry point of the ``hangwatch`` command."""
    try:
        app()
    except PlainError as error:
        sys.stderr.write(f"hangwatch: {error}\n")
        sys.exit(error.status)
    except BrokenPipeError:
        # The reader of our output has closed the pipe, as `head` does.
        sys.exit(0)
