"""Commands whose help has sections of options, and the options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

_OTHER = "Options"
#: Of every command: both names of its help, and a width that is still read easily.
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
#: Forms in which an incident is printed as a report.
FORMATS = ("html", "md", "github")


class SectionOption(click.Option):
    """An option that is listed under ``section`` in the help of its command."""

    def __init__(self, *declarations: Any, section: str = _OTHER, **attributes: Any) -> None:
        super().__init__(*declarations, **attributes)
        self.section = section


class SectionCommand(click.Command):
    """A command that lists its options in sections, in the order in which they are declared."""

    def __init__(self, name: str, *, context_settings: dict[str, Any] | None = None, **attributes: Any) -> None:
        super().__init__(name, {**CONTEXT, **(context_settings or {})}, **attributes)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections; options that are in none come last."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            # The usage line shows the arguments already.
            record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if record is not None:
                sections.setdefault(getattr(parameter, "section", _OTHER), []).append(record)
        other = sections.pop(_OTHER, [])
        for title, records in (*sections.items(), (_OTHER, other)):
            with formatter.section(title):
                formatter.write_dl(records)


as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
verbose = click.option(
    "-v", "--verbose", is_flag=True, help="Print the whole verdict: proof, evidence, other causes, missing data."
)
state_dir = click.option(
    "--state-dir",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Directory of incidents (default: ~/.local/state/hangwatch).",
)
