"""``hangwatch check-config``: whether a configuration can be used, before an agent is told to."""

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
    holds = _secrets(settings)
    if holds and file.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
        said = f"it holds {holds}, and others may read it; chmod 600, or 640 for a group"
        console.print(f"{file}: {said}", markup=False, highlight=False, soft_wrap=True)


def check_addresses(settings: Settings) -> None:
    """Refuse addresses and a token that nobody could use. Raises what they raise, one line each (``PlainError``)."""
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
    """What of the settings is secret, in words; empty where nothing is."""
    found = ["addresses of receivers, which are secrets"] if settings.receivers != Receivers() else []
    if hide_password(settings.exchange) != settings.exchange:
        found.append("the password of the exchange")
    return " and ".join(found)


def _without_secrets(settings: Settings) -> dict[str, object]:
    """All settings as they would be used; of receivers and exchange only how they may be shown."""
    import msgspec

    shown = {
        kind: [parse_target(kind, url).shown for url in getattr(settings.receivers, kind)]
        for kind in settings.receivers.__struct_fields__
    }
    return {**msgspec.to_builtins(settings), "receivers": shown, "exchange": hide_password(settings.exchange)}
