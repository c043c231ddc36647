"""The control socket in a process of ours: what reaches a client, and when."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangwatch.probe.control import Control
from support import LONG_S


@pytest.fixture
def control(real: None) -> Iterator[Control]:
    control = Control(lambda words: b" ".join(word.encode() for word in words))
    yield control
    control.close()


@pytest.mark.parametrize("words", [b"raise stall", b""])
def test_an_answer_is_sent_before_the_program_can_end_by_it(control: Control, tmp_path: Path, words: bytes) -> None:
    """A request may end the program, which ends the probe: nothing of the answer waits for another turn."""
    path = str(tmp_path / "control")
    control.listen(path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.connect(path)
        client.sendall(words + b"\n")
        assert control.serve(time.monotonic() + LONG_S)
        client.setblocking(False)
        assert client.recv(100) == words
