"""Real processes with and without the probe, and what they leave in the run directory."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable
from pathlib import Path

import msgspec
import psutil

from hangwatch.model.beats import Beat
from support import LONG_S, SOURCE_ROOT, is_launcher_variable, wait_for

SITE = SOURCE_ROOT / "hangwatch" / "probe" / "site"


class Run:
    """A run directory and the processes started with it."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self.directory = Path(tempfile.mkdtemp(prefix="hw", dir="/tmp"))
        self.ranks = self.directory / "ranks"
        self.ranks.mkdir(mode=0o700)
        self._processes: list[subprocess.Popen[str]] = []

    def environment(self, *, site: Path | None = SITE, **more: str) -> dict[str, str]:
        """Ours without what would make the child a rank by accident, plus the probe's and ``more``."""
        kept = {name: value for name, value in os.environ.items() if not is_launcher_variable(name)}
        paths = [str(site)] if site is not None else []
        if "PYTHONPATH" in more:
            paths.append(more.pop("PYTHONPATH"))
        return kept | {
            "PYTHONPATH": os.pathsep.join(paths),
            "HANGWATCH_RUN_DIR": str(self.directory),
            "OMP_NUM_THREADS": "1",
            **more,
        }

    def write(self, text: str, name: str = "job.py") -> Path:
        """A program in the scratch directory."""
        path = self.scratch / name
        path.write_text(textwrap.dedent(text))
        return path

    def start(self, *arguments: str | Path, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
        """Start this Python with these arguments, in a session of its own, all three streams piped."""
        process = subprocess.Popen(
            [sys.executable, *map(str, arguments)],
            env=env if env is not None else self.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.scratch,
            start_new_session=True,
        )
        self._processes.append(process)
        return process

    def start_rank(self, script: Path, rank: int = 0, world_size: int = 1, **more: str) -> subprocess.Popen[str]:
        """Start one rank as a launcher would; ``RENDEZVOUS`` is a file to meet at."""
        identity = {"RANK": str(rank), "WORLD_SIZE": str(world_size), "LOCAL_RANK": str(rank)}
        more.setdefault("RENDEZVOUS", f"file://{self.scratch}/rendezvous")
        return self.start(script, env=self.environment(**identity, **more))

    def beat(self, pid: int) -> Beat | None:
        """The last beat of that process, decoded as the agent does."""
        try:
            return msgspec.json.decode((self.ranks / f"{pid}.beat").read_bytes(), type=Beat)
        except FileNotFoundError:
            return None

    def beats(self) -> list[Beat]:
        """All beats that lie in the run directory, by rank."""
        found = [msgspec.json.decode(path.read_bytes(), type=Beat) for path in self.ranks.glob("*.beat")]
        return sorted(found, key=lambda beat: (beat.rank if beat.rank is not None else -1, beat.pid))

    def wait_beat(self, pid: int, accept: Callable[[Beat], bool] = lambda _: True, limit_s: float = 60) -> Beat:
        """Wait for a beat of that process that is accepted."""
        beat: Beat | None = None

        def seen() -> bool:
            nonlocal beat
            beat = self.beat(pid)
            return beat is not None and accept(beat)

        wait_for(seen, limit_s, f"a beat of process {pid}")
        assert beat is not None
        return beat

    def end(self) -> None:
        """End what was started here, with all that came of it, and remove the directory."""
        for process in self._processes:
            family: list[psutil.Process] = []
            with contextlib.suppress(psutil.NoSuchProcess):  # torchrun gives its workers sessions of their own
                family = psutil.Process(process.pid).children(recursive=True)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            for member in family:
                with contextlib.suppress(psutil.NoSuchProcess):
                    member.kill()
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None and not stream.closed:
                    stream.close()
        shutil.rmtree(self.directory, ignore_errors=True)


def ask(path: str, request: bytes) -> bytes:
    """Send the request to a unix socket and read to the end; again if a probe that is late has closed it unread."""
    while True:
        with (
            socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection,
            contextlib.suppress(ConnectionResetError, BrokenPipeError),
        ):
            connection.settimeout(LONG_S)
            connection.connect(path)
            connection.sendall(request)
            parts = []
            while part := connection.recv(65536):
                parts.append(part)
            return b"".join(parts)
