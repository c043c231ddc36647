"""``hangwatch report``: a stored incident in a form that can be sent."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hangwatch.cli.common import Format, StateDir
from hangwatch.cli.incidents import print_incident
from hangwatch.cli.progress import progress_bar
from hangwatch.config.directories import default_state_dir
from hangwatch.config.errors import UserError
from hangwatch.outputs.bundle.find import LATEST, find_incident
from hangwatch.postmortem.artifacts import read_artifacts

_INCIDENT = "An incident's id, the path of its bundle (or of an archive of it), or latest."
_FORMAT = "html: one file for a ticket; md: Markdown; github: under 60 lines, for an issue or a pull request."


def report(
    incident: Annotated[str, typer.Argument(metavar="INCIDENT", help=_INCIDENT)] = LATEST,
    format: Annotated[Format, typer.Option("--format", help=_FORMAT)] = Format.md,
    state_dir: StateDir = None,
) -> None:
    """Print a stored incident as a report that can be sent. Exit status 0: printed; 2: no such incident."""
    # An id is a plain name, so a path has a slash or is not in the state directory.
    path = Path(incident)
    found = path if "/" in incident else find_incident(state_dir or default_state_dir(), incident)
    with progress_bar("reading") as progress:
        artifacts = read_artifacts(found, progress)
    if artifacts.before is None:
        raise UserError(f"{found} holds no incident's document; for a verdict on it run: hangwatch diagnose {found}")
    print_incident(artifacts.before, artifacts.capture, format, bundle=found)
