"""``hangwatch diagnose PATH``: the same diagnosis, on what was left behind."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from hangwatch.agent.document import make_incident
from hangwatch.causes.diagnosis import diagnose as diagnose_capture
from hangwatch.cli.common import Format, hang_status, print_json, stdout_console
from hangwatch.model.incident import Incident
from hangwatch.outputs.bundle import read_bundle
from hangwatch.outputs.verdict import print_verdict


def diagnose(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="An incident's bundle.")],
    format: Annotated[Format, typer.Option("--format", help="How to print the verdict.")] = Format.text,
) -> None:
    """Diagnose a bundle again. Exit status 0: no hang found, 1: a hang found, 2: nothing usable."""
    before, capture = read_bundle(path)
    diagnosis = diagnose_capture(capture)
    incident = make_incident(
        diagnosis,
        detected_ns=capture.at_ns,
        confirmed_ns=capture.at_ns,
        id=before.id if before is not None else None,
    )
    incident = _with_history(incident, before)
    if format is Format.json:
        print_json(incident)
    else:
        print_verdict(incident, stdout_console(), bundle=path)
    raise typer.Exit(hang_status(incident))


def _with_history(incident: Incident, before: Incident | None) -> Incident:
    """When things happened is known from the document that the agent wrote, and not from the capture."""
    if before is None:
        return incident
    return msgspec.structs.replace(
        incident,
        onset_at=before.onset_at,
        detected_at=before.detected_at,
        confirmed_at=before.confirmed_at,
        ended_at=before.ended_at,
    )
