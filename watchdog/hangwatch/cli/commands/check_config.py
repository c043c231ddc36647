"""``hangwatch check-config``: validate a settings file before an agent uses it."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Annotated

import typer

from hangwatch.cli.common import Json, print_json, stdout_console
from hangwatch.config.settings import Receivers, Settings
from hangwatch.config.toml import read_config
from hangwatch.exchange.opening import parse_exchange
from hangwatch.exchange.protocol import hide_password
from hangwatch.outputs.push.senders import parse_target
from hangwatch.outputs.web.access import read_token
from hangwatch.outputs.web.server import parse_listen


def check_config(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Settings file (TOML).")],
    json: Json = False,
) -> None:
    """Check a settings file. Exit status 0: valid; 2: invalid, with the line and key of the error."""
    settings = read_config(file)
    check_addresses(settings)
    if json:
        print_json(_without_secrets(settings))
        return
    console = stdout_console()
    console.print(f"{file}: valid", markup=False, highlight=False, soft_wrap=True)
    secrets = _secrets(settings)
    if secrets and file.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
        warning = f"contains {secrets} but is readable by other users; run chmod 600, or chmod 640 for a group"
        console.print(f"{file}: {warning}", markup=False, highlight=False, soft_wrap=True)


def check_addresses(settings: Settings) -> None:
    """Raise ``PlainError``, one line, for an address that is malformed or a token that cannot be read."""
    if settings.exchange:
        parse_exchange(settings.exchange)
    if settings.token_file:
        read_token({"HANGWATCH_TOKEN_FILE": settings.token_file})
    if settings.listen:
        parse_listen(settings.listen)
    for kind in settings.receivers.__struct_fields__:
        for url in getattr(settings.receivers, kind):
            parse_target(kind, url)


def _secrets(settings: Settings) -> str:
    """Names the secrets that the settings contain; empty if there are none."""
    found = ["secret receiver URLs"] if settings.receivers != Receivers() else []
    if hide_password(settings.exchange) != settings.exchange:
        found.append("the exchange password")
    return " and ".join(found)


def _without_secrets(settings: Settings) -> dict[str, object]:
    """All settings, with the secret parts of receiver URLs and the exchange removed."""
    import msgspec

    shown = {
        kind: [parse_target(kind, url).shown for url in getattr(settings.receivers, kind)]
        for kind in settings.receivers.__struct_fields__
    }
    return {**msgspec.to_builtins(settings), "receivers": shown, "exchange": hide_password(settings.exchange)}
