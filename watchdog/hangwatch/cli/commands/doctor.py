"""``hangwatch doctor``: check that hangwatch works on this machine, with a repair for each problem."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hangwatch.cli.options import SectionCommand, as_json
from hangwatch.cli.settings import combine, config, takes_settings

if TYPE_CHECKING:
    from hangwatch.doctor.check import Check
    from hangwatch.outputs.terminal.console import Line

_MARKS = {"ok": ("ok", "green"), "warning": ("warn", "yellow"), "failed": ("FAIL", "red")}


@click.command(cls=SectionCommand)
@takes_settings("state_dir", "listen", "exchange")
@config
@as_json
def doctor(config: Path | None, as_json: bool, **given: object) -> None:
    """Check that hangwatch works on this machine.

    Exit status 0: everything required works; 1: a required check failed.
    """
    from hangwatch.cli.common import print_json, stdout_console
    from hangwatch.doctor.checks import run_checks

    settings = combine(given, config)
    where = Path(settings.state_dir) if settings.state_dir else None
    checks = run_checks(where, settings.listen or "127.0.0.1:0", settings.exchange)
    if as_json:
        print_json(checks)
    else:
        stdout_console().print(line for check in checks for line in _lines(check))
    raise SystemExit(1 if any(c.state == "failed" for c in checks) else 0)


def _lines(check: Check) -> list[Line]:
    from hangwatch.outputs.sanitize import clean
    from hangwatch.outputs.terminal.console import Span

    mark, colour = _MARKS[check.state]
    lines: list[Line] = [(Span(f"{mark:5}", colour), Span(f"{check.name:18} {clean(check.says)}"))]
    if check.repair:
        lines.append((Span(f"     repair: {clean(check.repair)}", "bold"),))
    return lines
