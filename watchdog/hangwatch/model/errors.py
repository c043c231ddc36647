"""What ends a command, reported to whoever gave it. Standard library only, so that catching it imports nothing else of ours."""

from __future__ import annotations


class PlainError(Exception):
    """Its message is one line for people, with the repair. ``status`` is the exit status it leads to."""

    status = 2
