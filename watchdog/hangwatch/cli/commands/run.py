"""``hangwatch run -- CMD``: run a command with the probe in its ranks and an agent next to it."""

from __future__ import annotations

from pathlib import Path

import click

from hangwatch.cli.options import SectionCommand, SectionOption, verbose
from hangwatch.cli.settings import NOTIFICATIONS, RECEIVER_SETTINGS, SECRET_VARIABLES, combine, config, takes_settings


# Options end where the training command begins, so that `hangwatch run torchrun --nproc-per-node 8` needs no `--`.
@click.command(cls=SectionCommand, context_settings={"allow_interspersed_args": False})
@click.argument("command", metavar="-- CMD ...", nargs=-1, required=True, type=click.UNPROCESSED)
@takes_settings(
    "stall_after_s",
    "logs",
    "on_hang.action",
    "act_after_s",
    "max_restarts",
    "on_silent_failure.action",
    *RECEIVER_SETTINGS,
)
@click.option(
    "--events",
    cls=SectionOption,
    section=NOTIFICATIONS,
    metavar="FD|PATH",
    help="Write events as JSON lines to an open descriptor or to the end of a file (see docs/operations.md).",
)
@takes_settings(
    "job", "engines", "state_dir", "with_values", "condition_values", "native_stacks", "listen", "exchange"
)  # fmt: skip
@config
@verbose
def run(command: tuple[str, ...], events: str | None, config: Path | None, verbose: bool, **given: object) -> None:
    """Run a training command and watch it.

    CMD: the command that starts the training job, such as torchrun with its options.

    Exits with the status of CMD, or with 75 if hangwatch has stopped the job and not restarted it.
    """
    import asyncio
    import os

    from hangwatch.agent.command import WatchedCommand
    from hangwatch.agent.host.events import EventFile
    from hangwatch.cli.common import stderr_console
    from hangwatch.config.directories import default_state_dir, make_run_dir, prepare_state_dir, remove_run_dir

    settings = combine(given, config)
    event_file = EventFile(events) if events is not None else None
    state = prepare_state_dir(Path(settings.state_dir) if settings.state_dir else default_state_dir())
    run_dir = make_run_dir()
    try:
        watched = WatchedCommand(
            list(command), settings, state, run_dir, stderr_console(), os.environ, SECRET_VARIABLES, event_file,
            verbose=verbose,
        )  # fmt: skip
        status = asyncio.run(watched.run())
    finally:
        remove_run_dir(run_dir)
    raise SystemExit(status)
