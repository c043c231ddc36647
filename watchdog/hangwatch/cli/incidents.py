"""How commands print one incident, in whatever format was asked for."""

from __future__ import annotations

import sys
from pathlib import Path

from hangwatch.cli.common import Format, print_json, stdout_console
from hangwatch.model.capture import Capture
from hangwatch.model.incident import Incident
from hangwatch.outputs.html.report import render_report
from hangwatch.outputs.markdown.report import BRIEF, WHOLE, render_markdown
from hangwatch.outputs.terminal.verdict import print_verdict


def print_incident(incident: Incident, capture: Capture | None, format: Format, *, bundle: Path | None = None) -> None:
    """Print it on stdout. ``capture``: the stacks of the HTML report; ``bundle``: where it is stored, if it is."""
    if format is Format.json:
        print_json(incident)
    elif format is Format.html:
        _write(render_report(incident, capture))
    elif format is Format.text:
        print_verdict(incident, stdout_console(), bundle=bundle)
    else:
        _write(render_markdown(incident, BRIEF if format is Format.github else WHOLE))


def _write(text: str) -> None:
    sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace"))
