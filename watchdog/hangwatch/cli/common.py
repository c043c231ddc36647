"""Consoles, JSON and exit statuses that several commands share."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from hangwatch.outputs.terminal.console import Console

if TYPE_CHECKING:
    from hangwatch.model.incident import Incident

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
