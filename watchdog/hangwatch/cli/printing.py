"""How commands print one incident, in whatever format was asked for."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hangwatch.cli.common import print_json, stdout_console

if TYPE_CHECKING:
    from hangwatch.model.capture import Capture
    from hangwatch.model.incident import Incident
import contextlib
import time
from collections.abc import Callable, Iterator

_SHOW_AFTER_S = 0.5
_EVERY_S = 0.1
Report = Callable[[int, "int | None"], None]
#: Back to the beginning of the line, which is erased (ECMA-48, 8.3.41).
_CLEAR = "\r\x1b[K"


@contextlib.contextmanager
def show_progress(what: str) -> Iterator[Report]:
    """Yield ``report(done, total)``; ``total`` is None if it is not known."""
    terminal = sys.stderr.isatty()
    due_s = time.monotonic() + _SHOW_AFTER_S
    shown = False

    def report(done: int, total: int | None) -> None:
        nonlocal due_s, shown
        if not terminal or time.monotonic() < due_s:
            return
        due_s, shown = time.monotonic() + _EVERY_S, True
        sys.stderr.write(f"{_CLEAR}{what} {done}{f' of {total}' if total is not None else ''}")
        sys.stderr.flush()

    try:
        yield report
    finally:
        if shown:
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()


def print_incident(
    incident: Incident, capture: Capture | None, form: str | None, *, bundle: Path | None = None, verbose: bool = False
) -> None:
    """Print it on stdout.

    ``capture``: the stacks of the HTML report. ``form``: one of ``options.FORMATS``, ``json``, or None for text, which is the
    whole verdict if ``verbose``. ``bundle``: where the incident is stored, if it is.
    """
    from hangwatch.outputs.html.incident import render_report
    from hangwatch.outputs.markdown.report import BRIEF, WHOLE, render_markdown
    from hangwatch.outputs.terminal.verdict import print_verdict

    if form is None:
        print_verdict(incident, stdout_console(), bundle=bundle, verbose=verbose)
    elif form == "json":
        print_json(incident)
    elif form == "html":
        _write(render_report(incident, capture))
    else:
        _write(render_markdown(incident, BRIEF if form == "github" else WHOLE))


def _write(text: str) -> None:
    sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace"))
