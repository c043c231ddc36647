"""``hangwatch completion SHELL``: the script with which a shell completes our commands and options."""

from __future__ import annotations

import click

from hangwatch.cli.options import SectionCommand

_SHELLS = ("bash", "zsh", "fish")


@click.command(cls=SectionCommand)
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print a script that completes commands in a shell.

    For bash, add to ~/.bashrc: eval "$(hangwatch completion bash)"
    """
    from click.shell_completion import get_completion_class

    made = get_completion_class(shell)
    assert made is not None  # noqa: S101  # click knows the three
    click.echo(made(context.find_root().command, {}, "hangwatch", "_HANGWATCH_COMPLETE").source())
