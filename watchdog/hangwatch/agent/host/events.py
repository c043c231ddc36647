"""The file or descriptor that events are written to, one per line. May import ``config.errors`` and the standard library."""

from __future__ import annotations

import contextlib
import os
import select

from hangwatch.model.errors import UserError

#: The format of the lines that ``Voice`` writes; a run's first line names it.
SCHEMA = "hangwatch.events/1"
_HINT = "give a file or a descriptor that is open for writing: --events 3 3>events.jsonl"


class EventFile:
    """Writes events.

    ``where``: the number of an open descriptor, which the job does not inherit; or a path, which is appended to (mode
    0600). Raises ``UserError`` if it is not writable.
    """

    def __init__(self, where: str) -> None:
        self._where = where
        try:
            if where.isascii() and where.isdigit():
                self._descriptor = os.dup(int(where))
                os.write(self._descriptor, b"")
                if int(where) > 2:  # the job has its own three
                    os.set_inheritable(int(where), False)
            else:
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK
                self._descriptor = os.open(where, flags, 0o600)
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise UserError(f"--events {where} cannot be written to: {why}; {_HINT}") from error

    def write(self, line: str) -> str:
        """Write one line, without waiting for its reader; return why writing has ended, empty while it goes on."""
        if self._descriptor < 0:
            return ""
        data = line.encode()
        try:
            while data:
                if not select.select([], [self._descriptor], [], 0)[1]:
                    raise BlockingIOError(0, "its reader has stopped reading")
                data = data[os.write(self._descriptor, data[: select.PIPE_BUF]) :]
        except (OSError, ValueError) as error:
            self.close()
            return f"no more events to --events {self._where}: {getattr(error, 'strerror', None) or error}"
        return ""

    def close(self) -> None:
        """Close the file."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with contextlib.suppress(OSError):
                os.close(descriptor)
