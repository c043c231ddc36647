"""Reads on in files that others write: across rotation, truncation and deletion, by the file's identity and not its name.

May import the standard library. Nothing but reading: no lock, no notification, no change of the file's times.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

#: How much of its own last bytes a follower remembers, to see that a file was truncated and has grown again.
_REMEMBERED_BYTES = 64
READ_BYTES = 256 << 10


class Follower:
    """One path. Begins at the file's ``start`` (bytes), and goes to the beginning of every file that replaces it."""

    def __init__(self, path: Path, start: int = 0) -> None:
        self.path = path
        self._position = start
        self._descriptor: int | None = None
        self._identity: tuple[int, int] | None = None
        self._last = b""
        self._anew = False

    def read_new(self, limit_bytes: int) -> Iterator[tuple[bool, bytes]]:
        """What was written since, in pieces, at most about ``limit_bytes``; with each whether it begins a new file.

        Raises OSError where the file cannot be read; it is opened again the next time, as one on a file system that was
        gone for a while has to be. What is not there, or no regular file, yields nothing.
        """
        try:
            yield from self._read(limit_bytes)
        except OSError:
            self.close()
            raise

    def _read(self, limit_bytes: int) -> Iterator[tuple[bool, bytes]]:
        if self._descriptor is None and not self._open():
            return
        fresh = self._seems_rewritten() or self._anew
        left = limit_bytes
        while left > 0:
            data = os.pread(self._descriptor, min(READ_BYTES, left), self._position)  # type: ignore[arg-type]
            if data:
                self._position += len(data)
                self._last = (self._last + data)[-_REMEMBERED_BYTES:]
                left -= len(data)
                self._anew = False
                yield fresh, data
                fresh = False
            elif self._is_replaced():
                self.close()
                self._position, self._last = 0, b""
                fresh = self._anew = True
                if not self._open():
                    return
            else:
                return

    def close(self) -> None:
        """Let go of the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self) -> bool:
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        except FileNotFoundError:
            return False
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            return False
        self._descriptor, self._identity = descriptor, (status.st_dev, status.st_ino)
        return True

    def _seems_rewritten(self) -> bool:
        """Whether the file is shorter than what was read of it, or says something else there; then it is begun anew."""
        descriptor = self._descriptor
        if descriptor is None or not self._last:
            return False
        start = self._position - len(self._last)
        if (
            os.fstat(descriptor).st_size >= self._position
            and os.pread(descriptor, len(self._last), start) == self._last
        ):
            return False
        self._position, self._last = 0, b""
        return True

    def _is_replaced(self) -> bool:
        """Whether another file has the name now."""
        try:
            status = os.stat(self.path)  # noqa: PTH116
        except OSError:
            return False
        return (status.st_dev, status.st_ino) != self._identity
