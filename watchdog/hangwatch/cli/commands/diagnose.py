"""``hangwatch diagnose PATH``: the same diagnosis after the fact, on files that a job left behind."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hangwatch.cli.common import Format, hang_status
from hangwatch.cli.incidents import print_incident
from hangwatch.cli.progress import progress_bar
from hangwatch.postmortem.artifacts import read_artifacts
from hangwatch.postmortem.verdict import diagnose_artifacts

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
    incident = diagnose_artifacts(artifacts)
    print_incident(incident, artifacts.capture, format, bundle=path if artifacts.before is not None else None)
    raise typer.Exit(hang_status(incident))
