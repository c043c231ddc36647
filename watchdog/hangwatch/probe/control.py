"""The control socket: one short line asks, the answer follows, the connection ends. Standard library only.

Nothing here blocks: a client that is slow, silent or gone costs a poll of the descriptor, never a beat. One client is
served at a time; others wait in the backlog.
"""
# Plain os calls: this runs in the rank.
# ruff: noqa: PTH101, PTH108

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
        self._wake_reader, self._wake_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def listen(self, path: str) -> None:
        """Open the socket at ``path``, mode 0600. Raises OSError."""
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
        self._listener = listener

    def wake(self) -> None:
        """End a running ``serve``; from any thread."""
        try:
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
            if self._wake_reader in ready:
                return False
            if not ready:
                continue
            try:
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
            os.close(descriptor)
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def _accept(self) -> None:
        if self._listener is None:
            return
        self._client = self._listener.accept()[0]
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
            self._client.close()
            self._client = None
        self._line, self._rest = b"", memoryview(b"")
