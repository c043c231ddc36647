"""``hangwatch check-config``: validate a settings file before an agent uses it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hangwatch.cli.options import SectionCommand
from hangwatch.cli.settings import combine

if TYPE_CHECKING:
    from hangwatch.config.settings import Settings


@click.command("check-config", cls=SectionCommand)
@click.argument("file", type=click.Path(path_type=Path))
def check_config(file: Path) -> None:
    """Check a settings file (TOML).

    Exit status 0: valid; 2: invalid, with the key of the error.
    """
    import stat

    from hangwatch.cli.common import stdout_console

    settings = combine({}, file)
    console = stdout_console()
    console.say(f"{file}: valid")
    secrets = _secrets(settings)
    if secrets and file.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
        console.say(
            f"{file}: contains {secrets} but is readable by other users; run chmod 600, or chmod 640 for a group"
        )


def _secrets(settings: Settings) -> str:
    """Return the names of the secrets that the settings contain; empty if there are none."""
    import msgspec

    from hangwatch.exchange.protocol import hide_password

    found = ["secret receiver URLs"] if any(msgspec.structs.asdict(settings.receivers).values()) else []
    if hide_password(settings.exchange) != settings.exchange:
        found.append("the exchange password")
    return " and ".join(found)
