"""Options, consoles and exit statuses that several commands share."""

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

#: Exit statuses of ``diagnose`` and ``dump``; unusable input is a ``UserError``.
EXIT_HEALTHY = 0
EXIT_HANG = 1

StateDir = Annotated[
    Optional[Path],  # noqa: UP045  # typer reads the annotation at run time, on Python 3.10 too
    typer.Option("--state-dir", metavar="DIR", help="Directory for incidents (default: ~/.local/state/hangwatch)."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


class Format(str, Enum):
    """Output format of a verdict."""

    text = "text"
    json = "json"
    html = "html"
    md = "md"
    github = "github"


def stdout_console() -> Console:
    """Console for the command's result; a fixed width if stdout is not a terminal."""
    return Console(**_width(sys.stdout.isatty()))


def stderr_console() -> Console:
    """Console for hangwatch's own messages, which appear between the job's output."""
    return Console(stderr=True, **_width(sys.stderr.isatty()))


def _width(terminal: bool) -> dict[str, Any]:
    return {} if terminal or os.environ.get("COLUMNS") else {"width": 110}


def print_json(value: object) -> None:
    """Print a value as JSON on stdout, encoded as in bundles."""
    sys.stdout.write(encode(value).decode())


def hang_status(incident: Incident) -> int:
    """The exit status: 0 if no hang was found, 1 if one was."""
    return EXIT_HANG if incident.verdict.kind in HANG_KINDS else EXIT_HEALTHY
