"""``hangwatch doctor``: what works here, and how to repair what does not."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from hangwatch.agent.check import Check
from hangwatch.agent.checks import run_checks
from hangwatch.cli.common import Json, StateDir, print_json, stdout_console
from hangwatch.outputs.sanitize import clean

_MARKS = {"ok": ("ok", "green"), "warning": ("--", "yellow"), "failed": ("no", "red")}


def doctor(
    state_dir: StateDir = None,
    json: Json = False,
    listen: Annotated[str, typer.Option("--listen", metavar="HOST:PORT", help="The address to try.")] = "127.0.0.1:0",
) -> None:
    """Check this machine. Exit status 0: all that is needed works; 1: something does not."""
    checks = run_checks(state_dir, listen)
    if json:
        print_json(checks)
    else:
        console = stdout_console()
        for check in checks:
            console.print(_line(check), soft_wrap=True)
    raise typer.Exit(1 if any(c.state == "failed" for c in checks) else 0)


def _line(check: Check) -> Text:
    mark, colour = _MARKS[check.state]
    text = Text(f"{mark:3}", style=colour)
    text.append(f"{check.name:18} {clean(check.says)}", style="default")
    if check.repair:
        text.append(f"\n   repair: {clean(check.repair)}", style="bold default")
    return text
