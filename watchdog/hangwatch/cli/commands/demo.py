"""``hangwatch demo``: reproduce a real hang and diagnose it in under a minute."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hangwatch.cli.options import SectionCommand, verbose

if TYPE_CHECKING:
    from hangwatch.demos import Scenario
    from hangwatch.outputs.terminal.console import Console

#: A demo that takes longer than this has failed.
_LIMIT_S = 120.0
#: Nobody is harmed if a demo is stopped, so it need not be looked at for another minute.
_STALL_AFTER_S, _ACT_AFTER_S = 6.0, 2.0
#: What is shown of the events while the job runs; the verdict comes at the end, in full.
_SHOWN_EVENTS = frozenset({"started", "incident_confirmed", "action_taken"})
#: What the job and hangwatch write to standard error: the launcher's tracebacks, when the job is stopped.
_ERRORS = "stderr.log"


@click.command(cls=SectionCommand)
@click.argument("name", required=False)
@click.option("--list", "list_them", is_flag=True, help="List the demos and exit.")
@verbose
def demo(name: str | None, list_them: bool, verbose: bool) -> None:
    """Run a small job that hangs, and diagnose it.

    NAME: the demo to run (default: tuple-labels); --list names them.

    Exit status 0: the verdict is the expected one; 1: it is not.
    """
    from hangwatch.cli.common import stdout_console
    from hangwatch.demos import DEFAULT, SCENARIOS, find_scenario
    from hangwatch.model.errors import UserError

    console = stdout_console()
    if list_them:
        for one in SCENARIOS:
            console.say(f"{one.name:22} {one.description}")
        return
    chosen = find_scenario(name) if name else DEFAULT
    if chosen is None:
        raise UserError(f"no demo named {name!r}; list them with: hangwatch demo --list")
    _check_needs(chosen)
    raise SystemExit(_show(chosen, console, verbose=verbose))


def _check_needs(scenario: Scenario) -> None:
    """Raise ``UserError`` if something is not installed; its text names a demo that runs without, if there is one."""
    import importlib.metadata

    from hangwatch.demos import SCENARIOS
    from hangwatch.model.errors import UserError

    missing = []
    for need in scenario.needs:
        try:
            importlib.metadata.version(need)
        except importlib.metadata.PackageNotFoundError:
            missing.append(need)
    if missing:
        lean = next(one for one in SCENARIOS if one.needs == ("torch",))
        other = f", or run: hangwatch demo {lean.name} (it needs torch alone)" if "torch" not in missing else ""
        raise UserError(
            f"the demo {scenario.name} needs {', '.join(missing)}; run: pip install {' '.join(missing)}{other}"
        )


def _show(scenario: Scenario, console: Console, *, verbose: bool) -> int:
    import sys
    import tempfile
    import time

    from hangwatch.outputs.bundle.bundle import list_incidents
    from hangwatch.outputs.terminal.verdict import print_verdict

    state = Path(tempfile.mkdtemp(prefix="hangwatch-demo-"))
    console.say(f"hangwatch demo: {scenario.name} - {scenario.description}")
    command = [
        sys.executable, "-m", "hangwatch", "run", "--on-hang", "stop", "--state-dir", str(state),
        "--stall-after", f"{_STALL_AFTER_S:g}", "--act-after", f"{_ACT_AFTER_S:g}",
    ]  # fmt: skip
    console.say(f"$ hangwatch run --on-hang stop -- {' '.join(scenario.command())}")
    started_s = time.monotonic()
    status = _run(command, scenario, state / _ERRORS, console)
    took_s = time.monotonic() - started_s
    for incident in list_incidents(state):
        console.say("")
        print_verdict(incident, console, bundle=state / "incidents" / incident.id, verbose=verbose)
    console.say("")
    return _judge(scenario, state, status, took_s, console)


def _run(command: list[str], scenario: Scenario, errors: Path, console: Console) -> int:
    """Run the job under ``command`` and return its exit status.

    Prints its output, and one line for each thing that hangwatch does.
    """
    import os
    import signal
    import subprocess
    import threading

    events, writing = os.pipe()
    reader = threading.Thread(target=_show_events, args=(events, console), daemon=True)
    with errors.open("wb") as log:
        process = subprocess.Popen(
            [*command, "--events", str(writing), "--", *scenario.command()],
            env={**os.environ, **scenario.full_environment()},
            stdin=subprocess.DEVNULL,
            stderr=log,
            pass_fds=(writing,),
        )
    os.close(writing)
    reader.start()
    try:
        status = process.wait(timeout=_LIMIT_S)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        process.send_signal(signal.SIGTERM)
        status = process.wait(timeout=30)
    reader.join(timeout=5)
    return status


def _show_events(descriptor: int, console: Console) -> None:
    import json

    with open(descriptor, encoding="utf-8") as lines:
        for line in lines:
            event = json.loads(line)
            if event["event"] in _SHOWN_EVENTS:
                console.say(f"hangwatch: {event['message']}")


def _judge(scenario: Scenario, state: Path, status: int, took_s: float, console: Console) -> int:
    """Compare the stored incident with the one the demo expects; return the exit status."""
    from hangwatch.model.errors import EXIT_STOPPED
    from hangwatch.outputs.bundle.bundle import list_incidents

    incidents = list_incidents(state)
    reported = [
        (i.verdict.kind, i.verdict.cause.id if i.verdict.cause else None, i.verdict.culprit_ranks) for i in incidents
    ]
    shown = "; ".join(_describe(*one) for one in reported) or "no incident"

    say, log = console.say, state / _ERRORS
    if scenario.ends_itself:
        alarms = [one for one in reported if one[0] not in {"healthy", "straggler", "slow"}]
        if status == 0 and not alarms:
            say(f"PASS: the job finished in {took_s:.0f} s and no hang was reported.")
            return 0
        say(f"FAIL: expected no hang; reported {shown}; exit status {status}; see {log}")
        return 1
    expected = (scenario.kind, scenario.cause, scenario.culprits)
    if status == EXIT_STOPPED and reported[-1:] == [expected]:
        say(f"PASS: hang found, diagnosed and job stopped in {took_s:.0f} s.")
        return 0
    say(f"FAIL: expected {_describe(*expected)}; reported {shown}; exit status {status}; see {log}")
    return 1


def _describe(kind: str, cause: str | None, culprits: tuple[int, ...]) -> str:
    """Return ``deadlock (cause ranks-diverged, culprit ranks 2)``."""
    from hangwatch.model.text import format_ranks

    return f"{kind} (cause {cause or 'unknown'}, culprit ranks {format_ranks(culprits) or 'none'})"
