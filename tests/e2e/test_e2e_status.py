"""``hangwatch status`` on a terminal, as a person has it: live, and gone without a trace."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support import SOURCE_ROOT, is_launcher_variable, wait_for

pytestmark = pytest.mark.usefixtures("real")

ALTERNATE, ORDINARY, CURSOR = b"\x1b[?1049h", b"\x1b[?1049l", b"\x1b[?25h"


@contextmanager
def on_terminal(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """``hangwatch status`` on a terminal of 80 by 24, and the other end of that terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    inherited = {name: value for name, value in os.environ.items() if not is_launcher_variable(name)}
    inherited |= {"TERM": "xterm", "TMPDIR": str(folder), "PYTHONPATH": str(SOURCE_ROOT)}
    command = [sys.executable, "-m", "hangwatch", "status"]
    # A suite that a shell has put into the background has its interrupts ignored, which a child would inherit.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=inherited)
    finally:
        signal.signal(signal.SIGINT, before)
    os.close(theirs)
    os.set_blocking(ours, False)
    try:
        yield process, ours
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def _written(terminal: int) -> bytes:
    """What has come since; nothing where the other side is gone."""
    try:
        return os.read(terminal, 1 << 20)
    except (BlockingIOError, OSError):
        return b""


def test_status_is_live_and_leaves_the_terminal_as_it_was(tmp_path: Path) -> None:
    """It draws again and again on a screen of its own; an interrupt ends it with status 0, and the last table stays."""
    with on_terminal(tmp_path) as (process, terminal):
        seen = bytearray()

        def drawn(times: int) -> bool:
            assert process.poll() is None, seen.decode(errors="replace")
            seen.extend(_written(terminal))
            return seen.count(b"\x1b[H") >= times

        wait_for(lambda: drawn(3), 60.0, "the third table")
        assert ALTERNATE in seen
        process.send_signal(signal.SIGINT)
        wait_for(lambda: seen.extend(_written(terminal)) or process.poll() is not None, 30.0, "its end")
        seen.extend(_written(terminal))
    assert process.returncode == 0
    _, _, after = bytes(seen).partition(ORDINARY)
    assert b"Traceback" not in seen
    assert CURSOR in seen
    assert after.strip()
