"""What to do when an incident is confirmed: report, stop the job, or run a command of the user's."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hangwatch.agent.errors import UserError
from hangwatch.model.incident import Incident


@dataclass(frozen=True)
class Action:
    """``kind`` and, for ``exec``, the shell command."""

    kind: Literal["report", "stop", "exec"]
    command: str = ""


def parse_action(text: str, option: str) -> Action:
    """The value of ``--on-hang`` or ``--on-silent-failure``, named in the error. Raises ``UserError``."""
    if text == "report":
        return Action("report")
    if text == "stop":
        return Action("stop")
    if text.startswith("exec:") and text.removeprefix("exec:").strip():
        return Action("exec", text.removeprefix("exec:"))
    raise UserError(f"{option} {text!r} is none of report, stop, exec:CMD; for example {option} 'exec:notify-oncall'")


def hook_environment(incident: Incident, path: Path | None) -> dict[str, str]:
    """What the user's command is told: ``HANGWATCH_INCIDENT`` is the bundle's directory, the rest the verdict's fields."""
    verdict = incident.verdict
    return {
        "HANGWATCH_INCIDENT": str(path) if path is not None else "",
        "HANGWATCH_INCIDENT_ID": incident.id,
        "HANGWATCH_JOB": incident.job.id,
        "HANGWATCH_KIND": verdict.kind,
        "HANGWATCH_PROVEN": "1" if verdict.proven else "0",
        "HANGWATCH_SEVERITY": verdict.severity,
        "HANGWATCH_CAUSE": verdict.cause.id if verdict.cause else "unknown",
        "HANGWATCH_CULPRITS": ",".join(map(str, verdict.culprit_ranks)),
        "HANGWATCH_SUMMARY": verdict.summary.replace("\0", ""),
    }


async def run_hook(command: str, incident: Incident, path: Path | None) -> int:
    """Run the user's command by the shell, without our standard input; returns its exit status."""
    process = await asyncio.create_subprocess_shell(
        command, stdin=asyncio.subprocess.DEVNULL, env={**os.environ, **hook_environment(incident, path)}
    )
    return await process.wait()
