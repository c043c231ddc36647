"""``hangwatch check-config``: validate a settings file before an agent uses it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hangwatch.cli.options import SectionCommand, as_json
from hangwatch.cli.settings import combine

if TYPE_CHECKING:
    from hangwatch.config.settings import Settings


@click.command("check-config", cls=SectionCommand)
@click.argument("file", type=click.Path(path_type=Path))
@as_json
def check_config(file: Path, as_json: bool) -> None:
    """Check a settings file (TOML).

    Exit status 0: valid; 2: invalid, with the line and key of the error.
    """
    import stat

    from hangwatch.cli.common import print_json, stdout_console

    settings = combine({}, file)
    if as_json:
        print_json(_without_secrets(settings))
        return
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


def _without_secrets(settings: Settings) -> dict[str, object]:
    """Return all settings, with the secret parts of receiver URLs and the exchange removed."""
    import msgspec

    from hangwatch.exchange.protocol import hide_password
    from hangwatch.outputs.push.senders import parse_target

    receivers = msgspec.structs.asdict(settings.receivers)
    shown = {kind: [parse_target(kind, url).shown for url in urls] for kind, urls in receivers.items()}
    return {**msgspec.to_builtins(settings), "receivers": shown, "exchange": hide_password(settings.exchange)}
