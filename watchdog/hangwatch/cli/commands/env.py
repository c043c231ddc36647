"""``hangwatch env``: the environment for a job that is started without ``hangwatch run``."""

from __future__ import annotations

import click

from hangwatch.cli.options import SectionCommand, as_json


@click.command(cls=SectionCommand)
@as_json
def env(as_json: bool) -> None:
    """Print the variables for a job that you start without `run`: they load the probe.

    Run eval "$(hangwatch env)" before torchrun, deepspeed or accelerate.
    """
    import shlex
    import sys

    from hangwatch.cli.common import print_json
    from hangwatch.config.directories import probe_environment, shared_run_dir

    variables = probe_environment(shared_run_dir())
    if as_json:
        print_json(variables)
        return
    for name, value in variables.items():
        sys.stdout.write(f"export {name}={shlex.quote(value)}\n")
