"""Draws docs/verdict.svg, the README's picture, from the bundle of a real incident.

Run: ``hangwatch demo`` (it names the bundle), then ``python docs/picture.py BUNDLE``.
"""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

from rich.console import Console as Drawing
from rich.terminal_theme import MONOKAI
from rich.text import Text

from hangwatch.outputs.bundle.bundle import read_bundle
from hangwatch.outputs.terminal.console import Console
from hangwatch.outputs.terminal.verdict import print_verdict


def main() -> None:
    """Render the verdict as a terminal shows it."""
    incident, _ = read_bundle(Path(sys.argv[1]))
    if incident is None:
        raise SystemExit("this bundle has no incident.json")
    shown = io.StringIO()
    print_verdict(incident, Console(shown, width=100, colour=True))
    console = Drawing(record=True, width=100, force_terminal=True, file=io.StringIO(), color_system="truecolor")
    console.print(Text.from_ansi(shown.getvalue()))
    picture = Path(__file__).parent / "verdict.svg"
    drawing = console.export_svg(title="hangwatch", theme=MONOKAI)
    # Nothing is to be loaded from elsewhere: the reader's own fixed-width font serves.
    picture.write_text(re.sub(r"@font-face \{.*?\}", "", drawing, flags=re.DOTALL), encoding="utf-8")
    print(picture)


if __name__ == "__main__":
    main()
