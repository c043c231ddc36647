"""``hangwatch agent``: the per-node daemon, or the agent of one job that runs already."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hangwatch.cli.options import SectionCommand, SectionOption, verbose
from hangwatch.cli.settings import JOBS, RECEIVER_SETTINGS, combine, config, takes_settings

if TYPE_CHECKING:
    from hangwatch.config.settings import Settings


@click.command(cls=SectionCommand)
@takes_settings(
    "stall_after_s", "logs", "on_hang.action", "act_after_s", "on_silent_failure.action", *RECEIVER_SETTINGS
)
@click.option(
    "--pid",
    cls=SectionOption,
    section=JOBS,
    metavar="PID",
    type=int,
    help="Watch only the jobs that this process (a launcher) has started, and end when it ends.",
)
@takes_settings(
    "job", "engines", "state_dir", "with_values", "condition_values", "native_stacks", "listen", "exchange"
)  # fmt: skip
@config
@verbose
def agent(pid: int | None, config: Path | None, verbose: bool, **given: object) -> None:
    """Watch every job on this node.

    SIGHUP reloads the settings file. SIGTERM stops the agent; jobs keep running.
    """
    import asyncio

    from hangwatch.agent.daemon import find_launcher, watch_until_stopped
    from hangwatch.agent.host.systemd import take_service_manager
    from hangwatch.cli.common import stderr_console
    from hangwatch.config.directories import default_state_dir, prepare_state_dir

    def load_settings() -> Settings:
        return combine(given, config)

    manager = take_service_manager()
    settings = load_settings()
    launcher = find_launcher(pid) if pid is not None else None
    state = prepare_state_dir(Path(settings.state_dir) if settings.state_dir else default_state_dir())
    asyncio.run(
        watch_until_stopped(load_settings, settings, state, stderr_console(), manager, launcher, verbose=verbose)
    )
