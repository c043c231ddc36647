"""A node of a test's own on this machine: an agent there sees the processes that the test has started there, and no others.

An agent watches its whole node. On the machine itself it would capture the jobs of all tests beside it, report them, and end
those that hang if it is told to.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from hangwatch.sources.proc.files import inner_pid
from support import SOURCE_ROOT, Job, JobRunner

#: The first process of a PID namespace: orphans become its children, and are buried by the kernel since it does not ask for them.
_FIRST = "import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN); print('up', flush=True); signal.pause()"

#: What a command begins with that is started as people start theirs beside an agent: after ``eval "$(hangwatch env)"``.
WITH_VARIABLES = (
    "sh", "-c", f'set -e; variables="$({sys.executable} -m hangwatch env)"; eval "$variables"; exec "$@"', "sh",
)  # fmt: skip


@dataclass(frozen=True)
class Node:
    """A PID namespace, and a short folder for run directories. ``inside``: what a command begins with that runs there."""

    runner: JobRunner
    folder: Path
    inside: tuple[str, ...]

    def start(
        self,
        *command: str | os.PathLike[str],
        env: Mapping[str, str | None] | None = None,
        stdin: int = subprocess.DEVNULL,
    ) -> Job:
        """Start a command there, hangwatch importable."""
        own = {"TMPDIR": str(self.folder), "PYTHONPATH": str(SOURCE_ROOT)}
        return self.runner.start([*self.inside, *command], env={**own, **(env or {})}, stdin=stdin)

    def hangwatch(self, *arguments: str | os.PathLike[str], env: Mapping[str, str | None] | None = None) -> Job:
        """Start ``hangwatch`` there."""
        entry = "import sys; sys.argv[0] = 'hangwatch'; from hangwatch.cli.main import main; main()"
        return self.start(sys.executable, "-c", entry, *arguments, env=env)

    def ranks(self, job: Job) -> dict[int, int]:
        """The pids of a job's ranks, as they are known there."""
        return {rank: inner_pid(process.pid) or process.pid for rank, process in job.ranks().items()}


def send(job: Job, number: signal.Signals) -> None:
    """Send a signal to a command of a node: it is the child of the one that went there, which stops when it does."""
    for process in psutil.Process(job.pid).children():
        process.send_signal(number)
    if number == signal.SIGCONT:
        job.send(number)


@contextmanager
def make_node(runner: JobRunner) -> Iterator[Node]:
    """A node, gone with all that runs there at the end. Raises ``OSError`` with the reason where none can be made."""
    user = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    own = ("unshare", *user, "--pid", "--fork", "--mount-proc", "--kill-child")
    with tempfile.TemporaryDirectory(prefix="node-") as folder:
        holder = runner.start([*own, sys.executable, "-I", "-S", "-c", _FIRST])
        try:
            holder.wait_for_output("up")
        except AssertionError:
            raise OSError(holder.stderr().strip()) from None
        (first,) = psutil.Process(holder.pid).children()
        joined = ("--user", "--preserve-credentials") if user else ()
        yield Node(runner, Path(folder), ("nsenter", "--target", str(first.pid), *joined, "--pid", "--mount"))
        runner.end_all()  # before its folder goes
