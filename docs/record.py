"""Records docs/recordings/demo.cast: a real ``hangwatch demo`` in a terminal, as asciinema plays it.

Run: ``python docs/record.py``, with PyTorch and transformers installed, as for ``make demo``. The format is asciicast v2
(https://docs.asciinema.org/manual/asciicast/v2/). Times and output are real; the names of this machine's folders and of
the host are replaced, which is done a line at a time, so a line appears as a whole.
"""

from __future__ import annotations

import json
import os
import pty
import re
import select
import socket
import struct
import sys
import termios
import time
from collections.abc import Iterator
from fcntl import ioctl
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

from neutral import neutral

CAST = Path(__file__).resolve().parent / "recordings" / "demo.cast"
COLUMNS, ROWS = 110, 40
#: What is typed, at the speed of a hand.
COMMAND, KEY_S = "hangwatch demo", 0.08


def run(program: Path) -> Iterator[tuple[float, str]]:
    """Run it in a terminal of its own; seconds since its start and a line, with its line feed."""
    start = time.monotonic()
    pid, terminal = pty.fork()
    if pid == 0:
        environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "LINES": str(ROWS)}
        environment["PATH"] = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
        os.execve(program, ["hangwatch", "demo"], environment)  # noqa: S606  # no shell is wanted
    ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    rest = b""
    while True:
        select.select([terminal], [], [])
        try:
            read = os.read(terminal, 65536)
        except OSError:  # the other side is closed: EIO
            break
        *lines, rest = (rest + read).split(b"\n")
        for line in lines:
            yield time.monotonic() - start, line.decode() + "\n"
    _, status = os.waitpid(pid, 0)
    if status:
        raise SystemExit(f"the demo has ended with {os.waitstatus_to_exitcode(status)}")


def main() -> None:
    """Type the command, run it, and write what was to be seen."""
    events = [(KEY_S * number, key) for number, key in enumerate(COMMAND, 1)]
    typed = KEY_S * (len(COMMAND) + 4)
    events = [(0.0, "$ "), *events, (typed, "\r\n")]
    names = {socket.gethostname(): "node0"}
    for at, line in run(Path(sys.executable).parent / "hangwatch"):
        text = neutral(line, {str(Path(sys.executable).parent): "/opt/venv/bin"})
        for name, shown in names.items():
            text = re.sub(rf"\b{re.escape(name)}\b", shown, text)
        events.append((typed + at, text))
    events.append((events[-1][0], "$ "))
    header = {"version": 2, "width": COLUMNS, "height": ROWS, "idle_time_limit": 2, "title": COMMAND}
    lines = [json.dumps(header), *(json.dumps([round(at, 3), "o", text]) for at, text in events)]
    CAST.parent.mkdir(exist_ok=True)
    CAST.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{CAST}: {CAST.stat().st_size / 1000:.0f} kB, {events[-1][0]:.0f} s")


if __name__ == "__main__":
    main()
