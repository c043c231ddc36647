"""Errors that end a command: one line that says what is wrong and how to repair it. Handled once, in ``cli.main``.

Standard library only, so that catching them imports nothing else of ours.
"""

from __future__ import annotations

#: Nothing was started: the command line or the environment cannot be used as given.
EXIT_USAGE = 2
#: As a shell: the command was found but cannot be executed, or was not found.
EXIT_NOT_EXECUTABLE = 126
EXIT_NOT_FOUND = 127
#: ``run --on-hang stop`` ended the job (EX_TEMPFAIL of sysexits.h: try again).
EXIT_STOPPED = 75


class PlainError(Exception):
    """An error whose message is one line for people, with the repair. ``status``: the exit status it leads to."""

    status = EXIT_USAGE


class UserError(PlainError):
    """What went wrong, in one line with its repair, and the exit status it leads to."""

    def __init__(self, message: str, status: int = EXIT_USAGE) -> None:
        super().__init__(message)
        self.status = status
