"""``hangwatch diagnose PATH``: the same diagnosis after the fact, on files that a job left behind."""

from __future__ import annotations

from pathlib import Path

import click

from hangwatch.cli.options import FORMATS, SectionCommand, as_json, verbose


@click.command(cls=SectionCommand)
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--format", "form", type=click.Choice(FORMATS), help="Print a report instead of text.")
@as_json
@verbose
def diagnose(path: Path, form: str | None, as_json: bool, verbose: bool) -> None:
    """Diagnose the files that a job has left behind.

    PATH: an incident bundle, flight recorder dumps or py-spy stacks: a folder, a file or an archive. Or training output: a log,
    TensorBoard event files, trainer_state.json, or a folder of them.

    Exit status 0: no hang found; 1: hang found; 2: no usable data.
    """
    from hangwatch.cli.common import hang_status, print_incident, show_progress
    from hangwatch.postmortem.artifacts import read_artifacts
    from hangwatch.postmortem.verdict import diagnose_artifacts

    with show_progress("reading") as progress:
        artifacts = read_artifacts(path, progress)
    incident = diagnose_artifacts(artifacts)
    bundle = path if artifacts.before is not None else None
    print_incident(incident, artifacts.capture, "json" if as_json else form, bundle=bundle, verbose=verbose)
    raise SystemExit(hang_status(incident))
