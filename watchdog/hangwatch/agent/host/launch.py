"""Runs the user's command beside the agent: its terminal, its signals and its exit status stay its own.

May import ``config.errors``, the model and the sources.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import psutil

from hangwatch.model.capture import RankIdentity
from hangwatch.model.errors import EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND, UserError
from hangwatch.sources.discovery.launchers import HANGWATCH, name_launcher
from hangwatch.sources.proc.samples import find_living

#: Signals passed on to the command. From a terminal, the kernel sends INT, QUIT and HUP to the command as well.
_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_FROM_TERMINAL = frozenset({signal.SIGINT, signal.SIGQUIT, signal.SIGHUP})
#: How long an ended job may take before it is killed, in seconds.
END_GRACE_S = 8.0
#: A killed process is gone within this time, unless the kernel holds it.
_KILLED_S = 2.0


def start_command(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start the command with our own streams and process group, as if we were not there.

    Raises:
        UserError: it was not found (127) or cannot be executed (126).
    """
    name = command[0]
    try:
        # The program gets the signal dispositions and the descriptors that we were given.
        return subprocess.Popen(list(command), env=dict(environment), close_fds=False)
    except FileNotFoundError as error:
        if shutil.which(name) is None:
            message = f"command not found: {name}; check the spelling, or activate the environment that has it"
            raise UserError(message, EXIT_NOT_FOUND) from error
        raise UserError(
            f"cannot start {name}: its interpreter is missing (see its first line)", EXIT_NOT_FOUND
        ) from error
    except PermissionError as error:
        raise UserError(
            f"cannot execute {name}: permission denied; chmod +x it, or name its interpreter", EXIT_NOT_EXECUTABLE
        ) from error
    except OSError as error:
        raise UserError(f"cannot execute {name}: {error.strerror}", EXIT_NOT_EXECUTABLE) from error


def exit_status(returncode: int) -> int:
    """Return the status that a shell would report: 128 + N for a command that signal N ended."""
    return returncode if returncode >= 0 else 128 - returncode


def pass_signals(deliver: Callable[[signal.Signals, bool], None], loop: asyncio.AbstractEventLoop) -> None:
    """Pass signals to ``deliver`` while the loop runs.

    Its second argument is True if the command has not received the signal itself.
    """

    def forward(number: signal.Signals) -> None:
        # The terminal signals the whole foreground process group.
        deliver(number, not (number in _FROM_TERMINAL and _in_foreground()))

    for number in _PASSED_ON:
        if signal.getsignal(number) is signal.SIG_IGN and number is signal.SIGHUP:
            continue  # nohup: the command has inherited it
        loop.add_signal_handler(number, forward, number)


def _in_foreground() -> bool:
    """True if we are in the foreground process group of a terminal."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            if os.tcgetpgrp(stream.fileno()) == os.getpgrp():
                return True
    return False


async def wait_for_command(process: subprocess.Popen[bytes]) -> int:
    """Wait for the command without a thread: by a pidfd if the kernel has them, else by polling."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except (AttributeError, OSError):
        while process.poll() is None:
            await asyncio.sleep(0.1)
    else:
        await _wait_for_end(descriptor)
    return process.wait()


async def wait_for_process(process: psutil.Process) -> None:
    """Wait for a process that is not our child, likewise."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except (AttributeError, OSError):
        pass
    else:
        if not process.is_running():  # the pid has been reused
            os.close(descriptor)
            return
        await _wait_for_end(descriptor)
    while _runs(process):
        await asyncio.sleep(0.1)


async def _wait_for_end(descriptor: int) -> None:
    """Wait until the process of a pidfd has ended, and close it."""
    loop = asyncio.get_running_loop()
    done = asyncio.Event()
    loop.add_reader(descriptor, done.set)
    try:
        await done.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def process_tree(pids: Sequence[int], since: Sequence[psutil.Process] = ()) -> list[psutil.Process]:
    """Return the processes and their descendants, without this process and those above it.

    ``since``: processes seen before; a pid that was reused is not followed.
    """
    known = {process.pid: process for process in since}
    found: dict[int, psutil.Process] = {}
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            if pid in known and known[pid] != process:
                continue
            found.setdefault(pid, process)
            for child in process.children(recursive=True):
                found.setdefault(child.pid, child)
    ours = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    return [process for pid, process in found.items() if pid not in ours]


@dataclass(frozen=True)
class Ended:
    """How the end of a job went: how many processes were asked to end, had to be killed, and still run."""

    asked: int
    killed: int
    left: int

    def in_words(self) -> str:
        """Return one sentence."""
        if not self.asked:
            return "no process of the job was left"
        killed = f", {self.killed} of them by SIGKILL" if self.killed else ""
        if self.left:
            return f"{self.left} of {self.asked} processes could not be ended; is the agent allowed to (CAP_KILL)?"
        return f"{self.asked} process{'es' * (self.asked != 1)} ended{killed}"


async def end_tree(pids: Sequence[int]) -> Ended:
    """End a whole job: SIGTERM from the launcher (the first pid) down, SIGCONT for stopped processes.

    Those left after ``END_GRACE_S`` get SIGKILL.
    """
    tree = process_tree(pids)
    for process in tree:
        with contextlib.suppress(psutil.Error):
            process.terminate()
            process.resume()
    deadline = asyncio.get_running_loop().time() + END_GRACE_S
    while asyncio.get_running_loop().time() < deadline and any(_runs(p) for p in tree):
        await asyncio.sleep(0.05)
    # Ranks may have started helpers while they ended.
    left = [p for p in {p.pid: p for p in (*tree, *process_tree(pids, since=tree))}.values() if _runs(p)]
    for process in left:
        with contextlib.suppress(psutil.Error):
            process.kill()
    deadline = asyncio.get_running_loop().time() + _KILLED_S
    while asyncio.get_running_loop().time() < deadline and any(_runs(p) for p in left):
        await asyncio.sleep(0.02)
    return Ended(len(tree), len(left), sum(_runs(p) for p in left))


async def end_job(ranks: Sequence[RankIdentity]) -> Ended:
    """End the job of these ranks: its launcher on this node, then the ranks and all below. Reused pids are left alone."""
    pids = [one.pid for one in find_living(ranks)]
    return await end_tree([*find_launchers(pids), *pids])


async def end_ranks(ranks: Sequence[RankIdentity]) -> Ended:
    """End these ranks and all below them, but not their launcher. Reused pids are left alone."""
    return await end_tree([one.pid for one in find_living(ranks)])


def find_launchers(pids: Sequence[int]) -> list[int]:
    """Return the topmost launcher above each process that belongs to the job: torchrun, deepspeed, accelerate, mpirun.

    Slurm's own daemons do not: a step ends when its tasks do.
    """
    found: dict[int, None] = {}
    for pid in pids:
        above = []
        with contextlib.suppress(psutil.Error):
            above = psutil.Process(pid).parents()
        names = [(one.pid, _launcher_of(one)) for one in above]
        launchers = [parent for parent, name in names if name not in {None, HANGWATCH, "srun"}]
        if launchers:
            found.setdefault(launchers[-1])
    return list(found)


def _launcher_of(process: psutil.Process) -> str | None:
    try:
        return name_launcher(process.cmdline())
    except psutil.Error:
        return None


def _runs(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running()) and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
