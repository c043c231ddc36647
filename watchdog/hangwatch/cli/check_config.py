"""``hangwatch check-config``: whether a configuration can be used, before an agent is told to."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Annotated

import typer

from hangwatch.agent.config import read_config
from hangwatch.agent.settings import Receivers, Settings
from hangwatch.cli.common import Json, print_json, stdout_console
from hangwatch.outputs.push import parse_target
from hangwatch.outputs.server import parse_listen


def check_config(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The configuration, TOML.")],
    json: Json = False,
) -> None:
    """Check a configuration. Exit status 0: it can be used; 2: it cannot, with the line and the key."""
    settings = read_config(file)
    check_addresses(settings)
    if json:
        print_json(_without_secrets(settings))
        return
    console = stdout_console()
    console.print(f"{file}: can be used", markup=False, highlight=False, soft_wrap=True)
    if settings.receivers != Receivers() and file.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
        said = (
            "it holds addresses of receivers, which are secrets, and others may read it; chmod 600, or 640 for a group"
        )
        console.print(f"{file}: {said}", markup=False, highlight=False, soft_wrap=True)


def check_addresses(settings: Settings) -> None:
    """Refuse addresses that no server could use. Raises ``ServerError`` or ``PushError``."""
    if settings.listen:
        parse_listen(settings.listen)
    for kind in settings.receivers.__struct_fields__:
        for url in getattr(settings.receivers, kind):
            parse_target(kind, url)


def _without_secrets(settings: Settings) -> dict[str, object]:
    """All settings as they would be used; of receivers only how they may be shown."""
    import msgspec

    shown = {
        kind: [parse_target(kind, url).shown for url in getattr(settings.receivers, kind)]
        for kind in settings.receivers.__struct_fields__
    }
    return {**msgspec.to_builtins(settings), "receivers": shown}
