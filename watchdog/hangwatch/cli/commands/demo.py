"""``hangwatch demo``: reproduce a real hang and diagnose it in under a minute."""

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
from hangwatch.cli.recovered import find_recovery, read_steps
from hangwatch.config.errors import EXIT_STOPPED, UserError
from hangwatch.demos import DEFAULT, SCENARIOS, Scenario, find_scenario
from hangwatch.model.text import format_ranks
from hangwatch.outputs.bundle.bundle import list_incidents

#: A demo that takes longer than this has failed.
_LIMIT_S = 120.0
#: One that is restarted imports everything twice, and trains to its end.
_RESTART_LIMIT_S = 600.0
#: Its steps: a job that has recovered ends with the last one.
_STEPS = 24
#: What a hang costs before anything else ends it: the default timeouts of torch 2.13 (``torch/distributed/constants.py``).
_DEFAULT_TIMEOUTS = "NCCL's default timeout ends a hung job after 10 min, Gloo's after 30 min"


def demo(
    scenario: Annotated[
        Optional[str],  # noqa: UP045  # typer reads the annotation at run time, on Python 3.10 too
        typer.Argument(metavar="NAME", help=f"Demo to run (see --list; default: {DEFAULT.name})."),
    ] = None,
    list_them: Annotated[bool, typer.Option("--list", help="List the demos and exit.")] = False,
) -> None:
    """Run a small job that hangs and diagnose it. Exit status 0: as expected; 1: not."""
    console = stdout_console()
    if list_them:
        for one in SCENARIOS:
            console.print(f"{one.name:22} {one.description}", markup=False, highlight=False, soft_wrap=True)
        return
    chosen = find_scenario(scenario) if scenario else DEFAULT
    if chosen is None:
        raise UserError(f"no demo named {scenario!r}; list them with: hangwatch demo --list")
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
        raise UserError(f"the demo {scenario.name} needs {', '.join(missing)}; run: pip install {' '.join(missing)}")


def _show(scenario: Scenario, console: Console) -> int:
    state = Path(tempfile.mkdtemp(prefix="hangwatch-demo-"))
    console.print(
        f"hangwatch demo: {scenario.name} - {scenario.description}", markup=False, highlight=False, soft_wrap=True
    )
    action = "restart" if scenario.restarts else "stop"
    training = ("--folder", str(state / "training"), "--steps", str(_STEPS))
    job = (*scenario.command(), *(training if scenario.restarts else ()))
    command = [
        sys.executable, "-m", "hangwatch", "run", "--on-hang", action, "--state-dir", str(state),
        "--stall-after", f"{scenario.stall_after_s:g}", "--", *job,
    ]  # fmt: skip
    console.print(
        f"$ hangwatch run --on-hang {action} -- {' '.join(job)}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
    started_s = time.monotonic()
    status = _run(command, scenario)
    took_s = time.monotonic() - started_s
    return _judge(scenario, state, status, took_s, console)


def _run(command: list[str], scenario: Scenario) -> int:
    # A debugger prompt needs a stdin that stays open and empty; the user's terminal must not be used for it.
    read_end, write_end = os.pipe()
    try:
        process = subprocess.Popen(command, env={**os.environ, **scenario.full_environment()}, stdin=read_end)
        try:
            return process.wait(timeout=_RESTART_LIMIT_S if scenario.restarts else _LIMIT_S)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            process.send_signal(signal.SIGTERM)
            return process.wait(timeout=30)
    finally:
        os.close(read_end)
        os.close(write_end)


def _judge(scenario: Scenario, state: Path, status: int, took_s: float, console: Console) -> int:
    """Compare the stored incident with the one the demo expects; returns the exit status."""
    incidents = list_incidents(state)
    reported = [
        (i.verdict.kind, i.verdict.cause.id if i.verdict.cause else None, i.verdict.culprit_ranks) for i in incidents
    ]
    shown = "; ".join(_describe(*one) for one in reported) or "no incident"

    def say(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    if scenario.ends_itself:
        alarms = [one for one in reported if one[0] not in {"healthy", "straggler"}]
        if status == 0 and not alarms:
            say(f"PASS: the job finished in {took_s:.0f} s and no hang was reported.")
            return 0
        say(f"FAIL: expected no hang; reported {shown}; exit status {status}; see {state}")
        return 1
    expected = (scenario.kind, scenario.cause, scenario.culprits)
    if scenario.restarts:
        steps = read_steps(state / "training" / "steps.jsonl")
        recovery = find_recovery(incidents[-1], steps) if reported == [expected] else None
        if status == 0 and recovery is not None and steps[-1].step == _STEPS:
            say(
                f"PASS: the job hung after step {recovery.hung_after}, was restarted, resumed with step"
                f" {recovery.resumed_step} and ended with step {_STEPS} of {_STEPS}."
            )
            say(
                f"Time lost from the onset of the hang to the first new step: {recovery.new_step_s:.0f} s (verdict after"
                f" {recovery.confirmed_s:.0f} s, first step after the restart after {recovery.resumed_s:.0f} s)."
                f" {_DEFAULT_TIMEOUTS}."
            )
            return 0
        say(
            f"FAIL: expected {_describe(*expected)}, a recovery and {_STEPS} steps; reported {shown};"
            f" exit status {status}; see {state}"
        )
        return 1
    if status == EXIT_STOPPED and reported[-1:] == [expected]:
        bundle = state / "incidents" / incidents[-1].id
        say(f"PASS: hang found, diagnosed and job stopped in {took_s:.0f} s. Incident bundle: {bundle}")
        return 0
    say(f"FAIL: expected {_describe(*expected)}; reported {shown}; exit status {status}; see {state}")
    return 1


def _describe(kind: str, cause: str | None, culprits: tuple[int, ...]) -> str:
    """``deadlock (cause uneven-inputs, culprit ranks 2)``."""
    return f"{kind} (cause {cause or 'unknown'}, culprit ranks {format_ranks(culprits) or 'none'})"
