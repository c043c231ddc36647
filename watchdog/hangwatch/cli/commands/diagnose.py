"""``hangwatch diagnose PATH``: the same diagnosis after the fact, on files that a job left behind."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from hangwatch.cli.common import Format, hang_status
from hangwatch.cli.incidents import print_incident
from hangwatch.cli.progress import progress_bar
from hangwatch.diagnosis.document import make_incident
from hangwatch.diagnosis.verdict import diagnose as diagnose_capture
from hangwatch.model.incident import Incident
from hangwatch.postmortem.artifacts import read_artifacts

_PATH = (
    "An incident bundle, flight recorder dumps or py-spy stacks: a folder, a file or an archive. "
    "Or training output: a log, TensorBoard event files, trainer_state.json, or a folder of them."
)


def diagnose(
    path: Annotated[Path, typer.Argument(metavar="PATH", help=_PATH)],
    format: Annotated[Format, typer.Option("--format", help="Output format.")] = Format.text,
) -> None:
    """Diagnose what a crashed job left behind. Exit status 0: no hang found; 1: hang found; 2: no usable data."""
    with progress_bar("reading") as progress:
        artifacts = read_artifacts(path, progress)
    capture, before = artifacts.capture, artifacts.before
    diagnosis = diagnose_capture(capture, min_wait_s=artifacts.min_wait_s)
    incident = make_incident(
        diagnosis,
        detected_ns=capture.at_ns,
        confirmed_ns=capture.at_ns,
        id=before.id if before is not None else None,
    )
    incident = _with_history(incident, before)
    print_incident(incident, capture, format, bundle=path if before is not None else None)
    raise typer.Exit(hang_status(incident))


def _with_history(incident: Incident, before: Incident | None) -> Incident:
    """Take the times from the document that the agent wrote: the capture does not have them."""
    if before is None:
        return incident
    return msgspec.structs.replace(
        incident,
        onset_at=before.onset_at,
        detected_at=before.detected_at,
        confirmed_at=before.confirmed_at,
        ended_at=before.ended_at,
    )
