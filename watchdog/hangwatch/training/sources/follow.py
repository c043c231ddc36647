"""Follows files that others write, across rotation, truncation and deletion, by the file's identity, not its name.

May import the standard library. Only reads: no lock, no notification, no change of the file's times.
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
    """One path.

    Begins at byte ``start`` of the file, and at byte 0 of every file that replaces it.
    """

    def __init__(self, path: Path, start: int = 0) -> None:
        self.path = path
        self._position = start
        self._descriptor: int | None = None
        self._identity: tuple[int, int] | None = None
        self._last = b""
        self._anew = False

    def read_new(self, limit_bytes: int) -> Iterator[tuple[bool, bytes]]:
        """Yield what was written since the last call, in pieces, at most about ``limit_bytes``.

        Each piece comes with True if it begins a new file. Raises OSError if the file cannot be read; the next call
        opens it again, as a file system that was gone for a while requires. A path that does not exist, or is no
        regular file, yields nothing.
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
        """Close the file."""
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
        """True if the file is shorter than what was read of it, or differs there; it is then read from its start."""
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
        """True if another file has the name now."""
        try:
            status = os.stat(self.path)  # noqa: PTH116
        except OSError:
            return False
        return (status.st_dev, status.st_ino) != self._identity
