"""What several commands share: options, consoles, exit statuses."""

from __future__ import annotations

import os
import sys
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Optional

import typer
from rich.console import Console

from hangwatch.model.incident import HANG_KINDS, Incident
from hangwatch.outputs.bundle.files import encode

#: Exit statuses of ``diagnose`` and ``dump``; nothing usable is a ``UserError``.
EXIT_HEALTHY = 0
EXIT_HANG = 1

StateDir = Annotated[
    Optional[Path],  # noqa: UP045  # typer reads the annotation at run time, on Python 3.10 too
    typer.Option("--state-dir", metavar="DIR", help="Where incidents are kept (default: ~/.local/state/hangwatch)."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text for people.")]


class Format(str, Enum):
    """How a verdict is printed."""

    text = "text"
    json = "json"
    html = "html"


def stdout_console() -> Console:
    """For what the user asked for. Wide enough for a log file when there is no terminal."""
    return Console(**_width(sys.stdout.isatty()))


def stderr_console() -> Console:
    """For what we say on our own account, beside the job's output."""
    return Console(stderr=True, **_width(sys.stderr.isatty()))


def _width(terminal: bool) -> dict[str, Any]:
    return {} if terminal or os.environ.get("COLUMNS") else {"width": 110}


def print_json(value: object) -> None:
    """A document or any other value of ours on standard output, as bundles have it."""
    sys.stdout.write(encode(value).decode())


def hang_status(incident: Incident) -> int:
    """0 where no hang was found, 1 where one was."""
    return EXIT_HANG if incident.verdict.kind in HANG_KINDS else EXIT_HEALTHY
