"""``hangwatch doctor``: check that hangwatch works on this machine, with a repair for each problem."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer
from rich.text import Text

from hangwatch.cli.common import Json, StateDir, print_json, stdout_console
from hangwatch.cli.settings import Config, ExchangeOption, combine
from hangwatch.doctor.check import Check
from hangwatch.doctor.checks import run_checks
from hangwatch.outputs.sanitize import clean

_MARKS = {"ok": ("ok", "green"), "warning": ("warn", "yellow"), "failed": ("FAIL", "red")}


def doctor(
    config: Config = None,
    state_dir: StateDir = None,
    json: Json = False,
    listen: Annotated[
        Optional[str],  # noqa: UP045  # typer reads the annotation at run time, on Python 3.10 too
        typer.Option("--listen", metavar="HOST:PORT", help="Address to test (default: a free port on 127.0.0.1)."),
    ] = None,
    exchange: ExchangeOption = None,
) -> None:
    """Check that hangwatch works on this machine. Exit status 0: everything required works; 1: a required check failed."""
    settings = combine(config, state_dir=state_dir, listen=listen, exchange=exchange)
    where = Path(settings.state_dir) if settings.state_dir else None
    checks = run_checks(where, settings.listen or "127.0.0.1:0", settings.exchange)
    if json:
        print_json(checks)
    else:
        console = stdout_console()
        for check in checks:
            console.print(_line(check), soft_wrap=True)
    raise typer.Exit(1 if any(c.state == "failed" for c in checks) else 0)


def _line(check: Check) -> Text:
    mark, colour = _MARKS[check.state]
    text = Text(f"{mark:5}", style=colour)
    text.append(f"{check.name:18} {clean(check.says)}", style="default")
    if check.repair:
        text.append(f"\n     repair: {clean(check.repair)}", style="bold default")
    return text
