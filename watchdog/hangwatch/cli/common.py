"""What several commands share: consoles, how a result is printed, and exit statuses."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from hangwatch.outputs.terminal.console import Console

if TYPE_CHECKING:
    from hangwatch.model.capture import Capture
    from hangwatch.model.incident import Incident

_SHOW_AFTER_S = 0.5
_EVERY_S = 0.1
Report = Callable[[int, "int | None"], None]
#: Back to the beginning of the line, which is erased (ECMA-48, 8.3.41).
_CLEAR = "\r\x1b[K"
#: Exit statuses of ``diagnose`` and ``dump``; unusable input is a ``UserError``.
EXIT_HEALTHY = 0
EXIT_HANG = 1


def stdout_console() -> Console:
    """Return the console for the command's result."""
    return Console(sys.stdout)


def stderr_console() -> Console:
    """Return the console for hangwatch's own messages, which appear between the job's output."""
    return Console(sys.stderr)


def print_json(value: object) -> None:
    """Print a value as JSON on stdout, encoded as in bundles."""
    from hangwatch.outputs.bundle.files import encode

    sys.stdout.write(encode(value).decode())


def hang_status(incident: Incident) -> int:
    """Return the exit status: 0 if no hang was found, 1 if one was."""
    from hangwatch.model.incident import HANG_KINDS

    return EXIT_HANG if incident.verdict.kind in HANG_KINDS else EXIT_HEALTHY


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
