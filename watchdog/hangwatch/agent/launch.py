"""Runs the user's command beside the agent: its terminal, its signals and its exit status stay its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence

import psutil

from hangwatch.agent.errors import EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND, UserError

#: Signals passed on to the command. From a terminal, the kernel sends INT, QUIT and HUP to the command as well.
_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_FROM_TERMINAL = frozenset({signal.SIGINT, signal.SIGQUIT, signal.SIGHUP})
#: How long a job that is ended may take to end by itself before it is killed.
END_GRACE_S = 8.0


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
            message = f"command not found: {name}; check the spelling, or activate the environment it is installed in"
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
    """The status a shell would report: 128 + N for a command that signal N ended."""
    return returncode if returncode >= 0 else 128 - returncode


def pass_signals(process: subprocess.Popen[bytes], loop: asyncio.AbstractEventLoop) -> None:
    """Pass signals on to the command for as long as the loop runs; we ourselves end only when it does."""

    def forward(number: signal.Signals) -> None:
        if number in _FROM_TERMINAL and _in_foreground():
            return  # the terminal has told the whole foreground process group already
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)

    for number in _PASSED_ON:
        if signal.getsignal(number) is signal.SIG_IGN and number is signal.SIGHUP:
            continue  # nohup: the command has inherited it
        loop.add_signal_handler(number, forward, number)


def _in_foreground() -> bool:
    """Whether we are in the foreground process group of a terminal."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            if os.tcgetpgrp(stream.fileno()) == os.getpgrp():
                return True
    return False


async def wait_for_command(process: subprocess.Popen[bytes]) -> int:
    """Wait for the command without a thread: a pidfd where the kernel has them, else by asking."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except (AttributeError, OSError):
        while process.poll() is None:
            await asyncio.sleep(0.1)
        return process.wait()
    loop = asyncio.get_running_loop()
    done = asyncio.Event()
    loop.add_reader(descriptor, done.set)
    try:
        await done.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
    return process.wait()


def process_tree(pid: int, others: Sequence[int] = ()) -> list[psutil.Process]:
    """The process, its descendants, and ``others`` (ranks that may have been orphaned) with theirs."""
    found: dict[int, psutil.Process] = {}
    for root in (pid, *others):
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(root)
            found.setdefault(root, process)
            for child in process.children(recursive=True):
                found.setdefault(child.pid, child)
    return list(found.values())


async def end_tree(pid: int, others: Sequence[int] = (), grace_s: float = END_GRACE_S) -> int:
    """End a whole job: SIGTERM from the launcher down, SIGCONT for those stopped, SIGKILL for whoever is left.

    Returns the number of processes that had to be killed.
    """
    tree = process_tree(pid, others)
    for process in tree:
        with contextlib.suppress(psutil.Error):
            process.terminate()
            process.resume()
    deadline = asyncio.get_running_loop().time() + grace_s
    while asyncio.get_running_loop().time() < deadline and any(_runs(p) for p in tree):
        await asyncio.sleep(0.05)
    # Ranks may have started helpers while they ended.
    left = [p for p in {p.pid: p for p in (*tree, *process_tree(pid, others))}.values() if _runs(p)]
    for process in left:
        with contextlib.suppress(psutil.Error):
            process.kill()
    return len(left)


def _runs(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running()) and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
