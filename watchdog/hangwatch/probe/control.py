"""The control socket: one short line asks, the answer follows, the connection ends. Standard library only.

Nothing here blocks: a client that is slow, silent or gone costs a poll of the descriptor, never a beat. One client is
served at a time; others wait in the backlog.

The program may close all its descriptors, and ours with them. Their numbers then belong to what it opens next, which is
neither read, written nor closed here.
"""
# Plain os calls: this runs in the rank.
# ruff: noqa: PTH101, PTH108, PTH116

from __future__ import annotations

import os
import select
import socket
import time
from typing import Callable

from .server import reachable

_LINE_LIMIT_BYTES = 2048
_READ_TIME_S = 0.5
_SEND_TIME_S = 2.0
_CHUNK_BYTES = 1 << 18


class Control:
    """The socket, the client being served, and the pipe that wakes the thread.

    Used by the probe's thread alone. ``answer``: gets the words of the request and returns the whole answer; an
    exception ends the connection.
    """

    def __init__(self, answer: Callable[[list[str]], bytes]) -> None:
        self._answer = answer
        self._listener: socket.socket | None = None
        self._client: socket.socket | None = None
        self._line = b""
        self._rest = memoryview(b"")
        self._deadline = 0.0
        #: What is at the socket's path, if it is ours.
        self._place: tuple[int, int] | None = None
        #: What each descriptor of ours is, by its number.
        self._own: dict[int, tuple[int, int] | None] = {}
        self._open_pipe()

    def listen(self, path: str) -> None:
        """Open the socket at ``path``, mode 0600, unless it is there and ours. Raises OSError."""
        if self._listener is not None:
            if self._is_ours(self._listener.fileno()) and self._place == _identify(path) is not None:
                return
            self._close(self._listener)
            self._listener = None
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            if os.path.lexists(path):
                os.unlink(path)
            with reachable(path) as short_path:
                listener.bind(short_path)
            os.chmod(path, 0o600)
            listener.listen(4)
        except BaseException:
            listener.close()
            raise
        self._listener, self._place = listener, _identify(path)
        self._own[listener.fileno()] = _identify(listener.fileno())

    def wake(self) -> None:
        """End a running ``serve``; from any thread."""
        try:
            if self._is_ours(self._wake_writer):
                os.write(self._wake_writer, b"x")
        except OSError:
            pass

    def serve(self, until: float) -> bool:
        """Serve clients until ``until`` of ``time.monotonic``; True, and earlier, after an answer was given."""
        while True:
            now = time.monotonic()
            if self._client is not None and now >= self._deadline:
                self._end_client()
            if now >= until:
                return False
            ready = self._poll(until - now, now)
            self._replace_closed()
            if not ready:
                continue
            try:
                if self._wake_reader in ready:
                    os.read(self._wake_reader, _LINE_LIMIT_BYTES)
                    return False
                if self._client is None:
                    self._accept()
                elif self._rest:
                    self._send()
                elif self._receive():
                    return True
            except BlockingIOError:
                continue
            except Exception:
                self._end_client()

    def _poll(self, timeout_s: float, now: float) -> set[int]:
        """Wait for the client, or for a new one, or for ``wake``; return the descriptors that are ready."""
        poll = select.poll()
        poll.register(self._wake_reader, select.POLLIN)
        if self._client is not None:
            poll.register(self._client, select.POLLOUT if self._rest else select.POLLIN)
            timeout_s = min(timeout_s, self._deadline - now)
        elif self._listener is not None:
            poll.register(self._listener, select.POLLIN)
        return {descriptor for descriptor, _ in poll.poll(max(timeout_s, 0.0) * 1000 + 1)}

    def close(self) -> None:
        """Close everything in this process for good (a forked child closes only its own copies)."""
        self._end_client()
        for descriptor in (self._wake_reader, self._wake_writer):
            if self._is_ours(descriptor):
                os.close(descriptor)
        if self._listener is not None:
            self._close(self._listener)
            self._listener = None

    def _open_pipe(self) -> None:
        self._wake_reader, self._wake_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        for descriptor in (self._wake_reader, self._wake_writer):
            self._own[descriptor] = _identify(descriptor)

    def _is_ours(self, descriptor: int) -> bool:
        """Return whether the number still stands for what we have opened."""
        return descriptor in self._own and self._own[descriptor] == _identify(descriptor) is not None

    def _replace_closed(self) -> None:
        """Open the pipe again if the program has closed it, and let go of what else it has. Raises OSError."""
        if self._client is not None and not self._is_ours(self._client.fileno()):
            self._end_client()
        if not self._is_ours(self._wake_reader) or not self._is_ours(self._wake_writer):
            self._open_pipe()
        if self._listener is not None and not self._is_ours(self._listener.fileno()):
            self._close(self._listener)
            self._listener = None

    def _close(self, connection: socket.socket) -> None:
        if not self._is_ours(connection.fileno()):
            connection.detach()
        connection.close()

    def _accept(self) -> None:
        if self._listener is None:
            return
        self._client = self._listener.accept()[0]
        self._own[self._client.fileno()] = _identify(self._client.fileno())
        self._client.setblocking(False)
        self._line, self._rest = b"", memoryview(b"")
        self._deadline = time.monotonic() + _READ_TIME_S

    def _receive(self) -> bool:
        """Read on; True once there is a whole line and an answer to send."""
        assert self._client is not None  # noqa: S101
        part = self._client.recv(_LINE_LIMIT_BYTES)
        self._line += part
        if b"\n" not in self._line:
            if not part or len(self._line) >= _LINE_LIMIT_BYTES:
                self._end_client()
            return False
        words = self._line.split(b"\n", 1)[0].decode("utf-8", "replace").split()
        self._rest = memoryview(self._answer(words))
        self._deadline = time.monotonic() + _SEND_TIME_S
        self._send()  # the request may end the program before this is served again
        return True

    def _send(self) -> None:
        assert self._client is not None  # noqa: S101
        sent = self._client.send(self._rest[:_CHUNK_BYTES], socket.MSG_NOSIGNAL)
        self._rest = self._rest[sent:]
        if not self._rest:
            self._end_client()

    def _end_client(self) -> None:
        if self._client is not None:
            self._close(self._client)
            self._client = None
        self._line, self._rest = b"", memoryview(b"")


def _identify(what: int | str) -> tuple[int, int] | None:
    """Return what a number or a path stands for: device and inode; None if it is closed, or not there."""
    try:
        found = os.stat(what, follow_symlinks=False) if isinstance(what, str) else os.fstat(what)
    except OSError:
        return None
    return found.st_dev, found.st_ino
