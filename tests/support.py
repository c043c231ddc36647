"""Helpers of the whole suite: real processes that are always cleaned up, and waiting without guessing.

Imports the standard library and psutil only, so that it serves every area. Tests get ``jobs``, ``free_port`` and the
clean environment as fixtures (``conftest.py``) and import the rest from here: ``from support import wait_for``.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import random
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import psutil

if TYPE_CHECKING:
    import pytest

T = TypeVar("T")

#: The package's source root, for ``PYTHONPATH`` of programs started by tests.
SOURCE_ROOT = Path(__file__).resolve().parent.parent / "watchdog"
#: Small job programs used by end-to-end tests.
JOBS = Path(__file__).resolve().parent / "jobs"
#: Programs that hang, whose captures are kept.
PROGRAMS = Path(__file__).resolve().parent / "fixtures" / "programs"
#: The Python of the environment that ``make nccl`` builds, and what says that it is whole.
NCCL_PYTHON = Path(__file__).resolve().parents[1] / ".venv-nccl" / "bin" / "python"
NCCL_BUILT = NCCL_PYTHON.parents[1] / ".device"
#: Every process started by a test inherits this variable: it is how orphans in sessions of their own are found again.
MARKER = "HANGSUITE_TOKEN"

#: How long a process may take that is expected to end: it bounds a failure and no success.
LONG_S = 300.0
#: What the suite's waits are multiplied by. A machine that shares its host was seen to be ten times slower for an hour.
ROOM = 4.0

#: What a launcher or a user of hangwatch may have left in the environment that the suite itself runs in.
LAUNCHER_VARIABLES = frozenset(
    {
        "RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "ROLE_NAME", "NODE_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE",
        "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE", "CROSS_RANK", "CROSS_SIZE", "MASTER_ADDR", "MASTER_PORT",
        "PYTHONSTARTUP", "PYTHONINSPECT", "PYTHONBREAKPOINT", "PYTHONWARNINGS", "NOTIFY_SOCKET",
    }
)  # fmt: skip
LAUNCHER_PREFIXES = (
    "HANGWATCH_", "TORCHELASTIC_", "TORCH_FR_", "TORCH_NCCL_", "TORCH_DISTRIBUTED_", "OMPI_", "PMI_", "PMIX_", "SLURM_",
    "PET_", "ACCELERATE_", "DEEPSPEED_", "DS_",
)  # fmt: skip


def is_launcher_variable(name: str) -> bool:
    """Whether an environment variable would make a test see a job that is not its own."""
    return name in LAUNCHER_VARIABLES or name.startswith(LAUNCHER_PREFIXES)


def wait_for(condition: Callable[[], T], timeout_s: float = 30.0, what: str = "", poll_s: float = 0.05) -> T:
    """Return the first truthy value of ``condition()``; fail after ``timeout_s``, in a test after ``ROOM`` times that.

    The one place of the suite that sleeps. ``what`` says in the failure what was waited for. Exceptions of the
    condition are its own business: they come through at once.
    """
    timeout_s = _with_room(timeout_s)
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout_s:g} s in vain for {what or condition}; last value: {value!r}")
        time.sleep(poll_s)


def _with_room(timeout_s: float) -> float:
    """A limit in seconds, as much wider in a test as a busy machine may need."""
    return timeout_s * ROOM if "PYTEST_CURRENT_TEST" in os.environ else timeout_s


@functools.cache
def _ports_left() -> list[int]:
    """Ports that this process has not given to any test, in any order. Workers that run side by side have shares of their own."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    share = 10240 + int(worker) % 16 * 1280
    return random.sample(range(share, share + 1280), 1280)


def find_free_port() -> int:
    """A TCP port of the loopback interface that nobody listens on now, and that the kernel gives to no connection.

    Those it gives are above 32768. No port is given twice, except after all others: who asked for one may not listen on it yet.
    """
    ports = _ports_left()
    for port in list(ports):
        ports.remove(port)
        ports.append(port)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError(f"no port is free between {min(ports)} and {max(ports)}")


def once(name: str, make: Callable[[], str], temporary: pytest.TempPathFactory) -> str:
    """The text that ``make`` gives, made once for all workers of a run."""
    base = temporary.getbasetemp()
    folder = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = folder / f"{name}.made"
        if not made.exists():
            made.write_text(make())
        return made.read_text()


def is_alive(process: psutil.Process) -> bool:
    """Whether a process runs still (a zombie does not: it may wait long for a lazy init to reap it)."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@dataclass(frozen=True)
class Job:
    """A started command, its output in files. ``process`` is its top process, in a session of its own."""

    process: subprocess.Popen[bytes]
    stdout_path: Path
    stderr_path: Path
    token: str

    @property
    def pid(self) -> int:
        """Process id of the top process."""
        return self.process.pid

    def stdout(self) -> str:
        """What it has written to its standard output so far."""
        return self.stdout_path.read_text(errors="replace")

    def stderr(self) -> str:
        """What it has written to its standard error so far."""
        return self.stderr_path.read_text(errors="replace")

    def wait(self, timeout_s: float = 60.0) -> int:
        """Its exit status (negative: the signal that ended it); fails, showing the output, if it does not end."""
        timeout_s = _with_room(timeout_s)
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"{self.process.args!r} has not ended within {timeout_s:g} s\n--- stdout\n{self.stdout()[-4000:]}"
                f"\n--- stderr\n{self.stderr()[-4000:]}"
            ) from None

    def wait_for_output(self, text: str, timeout_s: float = 60.0) -> str:
        """Everything written by the time ``text`` appears in either stream; fails if it ends or is late without it."""

        def seen() -> str | None:
            ended = self.process.poll() is not None
            written = self.stdout() + self.stderr()
            if text in written:
                return written
            assert not ended, f"ended with {self.process.returncode} before it wrote {text!r}:\n{written[-4000:]}"
            return None

        return wait_for(seen, timeout_s, f"{text!r} in the output of {self.process.args!r}") or ""

    def members(self) -> list[psutil.Process]:
        """All living processes of the job, also those that left its session or lost their parent; oldest first."""
        return sorted(_marked({self.token}), key=lambda process: (process.create_time(), process.pid))

    def ranks(self) -> dict[int, psutil.Process]:
        """The topmost process of each ``RANK`` among the members."""
        found: dict[int, psutil.Process] = {}
        for process in self.members():
            rank = _environment(process).get("RANK")
            if rank is not None and rank.isdigit():
                found.setdefault(int(rank), process)
        return found

    def send(self, signal_number: signal.Signals) -> None:
        """Send a signal to the top process alone."""
        self.process.send_signal(signal_number)

    def end(self, timeout_s: float = 10.0) -> None:
        """End every process of the job (SIGKILL: stopped and hung ones too) and wait until none is left."""
        self.process.kill()  # by itself: in the middle of its exec it shows no environment
        _end_all({self.token}, timeout_s)
        self.process.wait(_with_room(timeout_s))


class JobRunner:
    """Starts real commands and ends everything that came of them: ``start`` in a test, ``end_all`` at its teardown."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: list[Job] = []

    def start(
        self,
        command: Sequence[str | os.PathLike[str]],
        env: Mapping[str, str | None] | None = None,
        cwd: Path | None = None,
        stdin: int | None = subprocess.DEVNULL,
    ) -> Job:
        """Start a command in a session of its own with a clean environment.

        ``env`` is added to the suite's environment; a value of None removes a variable. ``cwd`` is a fresh folder
        unless given. Every job speaks over the loopback and uses one thread a process.
        """
        number = len(self._started)
        token = uuid.uuid4().hex
        home = self._folder / f"job{number}"
        home.mkdir(parents=True)
        environment = {name: value for name, value in os.environ.items() if not is_launcher_variable(name)}
        environment |= {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "TOKENIZERS_PARALLELISM": "false"}
        environment |= {"PYTHONUNBUFFERED": "1", "CUDA_VISIBLE_DEVICES": ""}
        for name, value in (env or {}).items():
            if value is None:
                environment.pop(name, None)
            else:
                environment[name] = value
        environment[MARKER] = token
        out, err = home / "stdout", home / "stderr"
        with out.open("wb") as out_file, err.open("wb") as err_file:
            process = subprocess.Popen(
                [os.fspath(part) for part in command],
                env=environment,
                cwd=cwd or home,
                stdin=stdin,
                stdout=out_file,
                stderr=err_file,
                start_new_session=True,
            )
        job = Job(process, out, err, token)
        self._started.append(job)
        return job

    def python(
        self, script: str | os.PathLike[str], *arguments: str, env: Mapping[str, str | None] | None = None
    ) -> Job:
        """Start a Python program with this interpreter, hangwatch importable."""
        return self.start([sys.executable, script, *arguments], _with_source_root(env))

    def torchrun(
        self,
        script: str | os.PathLike[str],
        *arguments: str,
        nproc: int = 2,
        env: Mapping[str, str | None] | None = None,
    ) -> Job:
        """Start ``torchrun --standalone --nproc-per-node NPROC SCRIPT ARGUMENTS``, hangwatch importable."""
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(nproc)]
        return self.start([*launcher, script, *arguments], _with_source_root(env))

    def hangwatch(
        self,
        *arguments: str | os.PathLike[str],
        env: Mapping[str, str | None] | None = None,
        stdin: int | None = subprocess.DEVNULL,
        entry: str = "from hangwatch.cli.main import main; main()",
    ) -> Job:
        """Start the ``hangwatch`` command with this interpreter, installed or not. ``entry``: what calls it."""
        entry = f"import sys; sys.argv[0] = 'hangwatch'; {entry}"
        return self.start([sys.executable, "-c", entry, *arguments], _with_source_root(env), stdin=stdin)

    def end_all(self, timeout_s: float = 10.0) -> None:
        """End everything that was started; fails when something is left."""
        tokens = {job.token for job in self._started}
        for job in self._started:
            job.process.kill()
        try:
            if tokens:
                _end_all(tokens, timeout_s)
        finally:
            for job in self._started:
                if job.process.stdin is not None:
                    with contextlib.suppress(BrokenPipeError):
                        job.process.stdin.close()
                job.process.wait(_with_room(timeout_s))
            self._started.clear()


def _with_source_root(env: Mapping[str, str | None] | None) -> dict[str, str | None]:
    """The environment with the package's source root in front of ``PYTHONPATH``."""
    given = dict(env or {})
    before = given.get("PYTHONPATH", os.environ.get("PYTHONPATH"))
    given["PYTHONPATH"] = os.pathsep.join(part for part in (str(SOURCE_ROOT), before) if part)
    return given


def _environment(process: psutil.Process) -> dict[str, str]:
    """A process's environment; empty where it is gone, a zombie, or another user's."""
    try:
        return process.environ()
    except (psutil.Error, OSError):
        return {}


def _marked(tokens: Iterable[str]) -> Iterator[psutil.Process]:
    """Living processes that carry one of the tokens."""
    marks = [f"{MARKER}={token}\0".encode() for token in tokens]
    for pid in psutil.pids():
        with contextlib.suppress(OSError, psutil.NoSuchProcess):
            environment = Path(f"/proc/{pid}/environ").read_bytes()  # psutil takes six times as long, and tests poll
            if any(mark in environment for mark in marks) and is_alive(process := psutil.Process(pid)):
                yield process


def _end_all(tokens: set[str], timeout_s: float) -> None:
    """Kill the marked processes, again until none is left: a launcher may start workers while it is being ended."""

    def none_left() -> bool:
        left = list(_marked(tokens))
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        return not left

    wait_for(none_left, timeout_s, "the processes started by the test to be gone")
