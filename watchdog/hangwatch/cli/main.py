"""``hangwatch``: the command line. User errors are caught here, once, and printed as one line."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from hangwatch import __version__
from hangwatch.agent.errors import UserError
from hangwatch.cli import agent, demo, diagnose, doctor, dump, env, run, status
from hangwatch.outputs.access import TokenError
from hangwatch.outputs.bundle import BundleError
from hangwatch.outputs.push import PushError
from hangwatch.outputs.server import ServerError

app = typer.Typer(
    name="hangwatch",
    help="Finds, proves and explains hangs of distributed PyTorch and DeepSpeed jobs while they happen.",
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


# Options of `run` end where the command begins, so that `hangwatch run torchrun --nproc-per-node 8` needs no `--`.
app.command("run", context_settings={"allow_interspersed_args": False, "ignore_unknown_options": False})(run.run)
app.command("agent")(agent.agent)
app.command("env")(env.env)
app.command("status")(status.status)
app.command("dump")(dump.dump)
app.command("diagnose")(diagnose.diagnose)
app.command("doctor")(doctor.doctor)
app.command("demo")(demo.demo)


def main() -> None:
    """Entry point of the ``hangwatch`` command."""
    try:
        app()
    except (UserError, ServerError, BundleError, PushError, TokenError) as error:
        sys.stderr.write(f"hangwatch: {error}\n")
        sys.exit(error.status if isinstance(error, UserError) else 2)
    except BrokenPipeError:
        # Whoever read our output has seen enough.
        sys.exit(0)
