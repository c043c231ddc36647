"""``hangwatch env``: the environment for a job that is started without ``hangwatch run``."""

from __future__ import annotations

import shlex
import sys

from hangwatch.cli.common import Json, print_json
from hangwatch.config.directories import probe_environment, shared_run_dir


def env(json: Json = False) -> None:
    """Print variables that load the probe. Run eval "$(hangwatch env)" before torchrun, deepspeed or accelerate."""
    variables = probe_environment(shared_run_dir())
    if json:
        print_json(variables)
        return
    for name, value in variables.items():
        sys.stdout.write(f"export {name}={shlex.quote(value)}\n")
