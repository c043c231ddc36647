"""``hangwatch incidents``: the incidents of a state directory, the newest first."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hangwatch.cli.options import SectionCommand, as_json, state_dir

if TYPE_CHECKING:
    from hangwatch.outputs.archive import IncidentSummary

_HEADINGS = ("STATE", "SINCE (UTC)", "JOB", "KIND", "CULPRITS", "CAUSE", "INCIDENT")
_JOB_CHARACTERS = 24


@click.command(cls=SectionCommand)
@click.option("--open", "only_open", is_flag=True, help="List only incidents that are not over.")
@as_json
@state_dir
def incidents(only_open: bool, as_json: bool, state_dir: Path | None) -> None:
    """List the incidents that were found.

    State: open, over, or dump (written by `hangwatch dump`). Print one with: hangwatch report INCIDENT.
    """
    import msgspec

    from hangwatch.cli.common import print_json, stdout_console
    from hangwatch.config.directories import default_state_dir
    from hangwatch.model.numbers import name_guests
    from hangwatch.model.text import short_ranks
    from hangwatch.outputs.archive import Archive
    from hangwatch.outputs.terminal.console import Span
    from hangwatch.outputs.terminal.layout import table

    folder = state_dir or default_state_dir()
    found = [one for one in Archive(folder).list() if one.open or not only_open]
    if as_json:
        print_json([{"state": one.state, **msgspec.structs.asdict(one)} for one in found])
        return
    console = stdout_console()
    if not found:
        console.say(f"No {'open ' if only_open else ''}incidents in {folder}.")
        return

    def row(one: IncidentSummary) -> tuple[Span, ...]:
        culprits = name_guests(short_ranks(one.culprit_ranks), one.names)
        style = "bold red" if one.open else ""
        since = one.onset_at[:19].replace("T", " ")
        cells = (since, one.title[:_JOB_CHARACTERS], one.kind, culprits, one.cause, one.id)
        return (Span(one.state, style), *map(Span, cells))

    rows = list(map(row, found))
    lines = table(_HEADINGS, rows)
    if max(sum(len(span.text) for span in line) for line in lines) > console.width:
        # The id is what is copied: it gets a line of its own where the row is too long.
        head, *others = table(_HEADINGS[:-1], [one[:-1] for one in rows])
        lines = [
            head,
            *(part for line, one in zip(others, rows, strict=True) for part in (line, (Span("  "), one[-1]))),
        ]
    console.print(lines)
