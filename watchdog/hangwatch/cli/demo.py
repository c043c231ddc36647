"""``hangwatch demo``: a real hang, found, in under a minute."""

from __future__ import annotations

import importlib.metadata
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Optional

import typer
from rich.console import Console

from hangwatch.cli.common import stdout_console
from hangwatch.config.errors import EXIT_STOPPED, UserError
from hangwatch.demos import DEFAULT, SCENARIOS, Scenario, find_scenario
from hangwatch.outputs.bundle.bundle import list_incidents

#: A demo that takes longer than this has failed to show what it should.
_LIMIT_S = 120.0


def demo(
    scenario: Annotated[
        Optional[str],  # noqa: UP045  # typer reads the annotation at run time, on Python 3.10 too
        typer.Argument(metavar="[SCENARIO]", help="Which hang to show (see --list)."),
    ] = None,
    list_them: Annotated[bool, typer.Option("--list", help="Name the scenarios and exit.")] = False,
) -> None:
    """Run a real job that hangs, watch it being found, and check that the verdict is the right one."""
    console = stdout_console()
    if list_them:
        for one in SCENARIOS:
            console.print(f"{one.name:22} {one.description}", markup=False, highlight=False, soft_wrap=True)
        return
    chosen = find_scenario(scenario) if scenario else DEFAULT
    if chosen is None:
        raise UserError(f"no scenario named {scenario!r}; hangwatch demo --list names them")
    _check_needs(chosen)
    raise typer.Exit(_show(chosen, console))


def _check_needs(scenario: Scenario) -> None:
    missing = []
    for need in scenario.needs:
        try:
            importlib.metadata.version(need)
        except importlib.metadata.PackageNotFoundError:
            missing.append(need)
    if missing:
        raise UserError(f"the demo {scenario.name} needs {', '.join(missing)}; run: pip install 'hangwatch[demo]'")


def _show(scenario: Scenario, console: Console) -> int:
    state = Path(tempfile.mkdtemp(prefix="hangwatch-demo-"))
    console.print(
        f"hangwatch demo: {scenario.name} - {scenario.description}", markup=False, highlight=False, soft_wrap=True
    )
    command = [
        sys.executable, "-m", "hangwatch", "run", "--on-hang", "stop", "--state-dir", str(state),
        "--stall-after", f"{scenario.stall_after_s:g}", "--", *scenario.command(),
    ]  # fmt: skip
    console.print(
        f"$ hangwatch run --on-hang stop -- {' '.join(scenario.command())}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
    started_s = time.monotonic()
    status = _run(command, scenario)
    took_s = time.monotonic() - started_s
    return _judge(scenario, state, status, took_s, console)


def _run(command: list[str], scenario: Scenario) -> int:
    # A debugger's prompt needs an input that stays open and says nothing; the terminal's is not ours to give away.
    read_end, write_end = os.pipe()
    try:
        process = subprocess.Popen(command, env={**os.environ, **scenario.full_environment()}, stdin=read_end)
        try:
            return process.wait(timeout=_LIMIT_S)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            process.send_signal(signal.SIGTERM)
            return process.wait(timeout=30)
    finally:
        os.close(read_end)
        os.close(write_end)


def _judge(scenario: Scenario, state: Path, status: int, took_s: float, console: Console) -> int:
    """0 if the incident on disk is the one the scenario's table promises."""
    incidents = list_incidents(state)
    told = [
        (i.verdict.kind, i.verdict.cause.id if i.verdict.cause else None, i.verdict.culprit_ranks) for i in incidents
    ]

    def say(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    if scenario.ends_itself:
        alarms = [t for t in told if t[0] not in {"healthy", "straggler"}]
        if status == 0 and not alarms:
            say(f"As it should be: the job ran to its end in {took_s:.0f} s and no hang was reported.")
            return 0
        say(f"Not as it should be: exit status {status}, reported: {alarms or 'nothing'}.")
        return 1
    wanted = (scenario.kind, scenario.cause, scenario.culprits)
    if status == EXIT_STOPPED and told[-1:] == [wanted]:
        kept = state / "incidents" / incidents[-1].id
        say(f"As it should be: found, named and ended in {took_s:.0f} s. The incident is kept in {kept}")
        return 0
    say(f"Not as it should be: expected {wanted}, reported {told or 'nothing'}, exit status {status}; see {state}")
    return 1
