"""``hangwatch report``: a stored incident in a form that can be sent."""

from __future__ import annotations

from pathlib import Path

import click

from hangwatch.cli.options import FORMATS, SectionCommand, as_json, state_dir


@click.command(cls=SectionCommand)
@click.argument("incident", default="latest")
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="md",
    help="html: one file for a ticket; md: Markdown (the default); github: under 60 lines, for an issue or a pull request.",
)
@as_json
@state_dir
def report(incident: str, form: str, as_json: bool, state_dir: Path | None) -> None:
    """Print an incident in a form to send.

    INCIDENT: its id, the path of its bundle (or of an archive of it), or latest.

    Exit status 0: printed; 2: no such incident.
    """
    from hangwatch.cli.common import print_incident, show_progress
    from hangwatch.config.directories import default_state_dir
    from hangwatch.model.errors import UserError
    from hangwatch.outputs.bundle.find import find_incident
    from hangwatch.postmortem.artifacts import read_artifacts

    # An id is a plain name, so a path has a slash or is not in the state directory.
    path = Path(incident)
    found = path if "/" in incident else find_incident(state_dir or default_state_dir(), incident)
    with show_progress("reading") as progress:
        artifacts = read_artifacts(found, progress)
    if artifacts.before is None:
        raise UserError(f"{found} contains no incident.json; to get a verdict, run: hangwatch diagnose {found}")
    print_incident(artifacts.before, artifacts.capture, "json" if as_json else form, bundle=found)
