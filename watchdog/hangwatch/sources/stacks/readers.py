"""The programs that read the stacks of other processes: where they are, how they are run, what they complain of.

May import hangwatch.model, hangwatch.sources' own parts and the standard library.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from hangwatch.model.capture import Gap
from hangwatch.sources.proc.files import read_small

_OUTPUT_LIMIT_BYTES = 64 << 20
#: What the readers say of a process that has ended, and of one that runs no Python.
_GONE = ("no such process", "no such file", "os error 3)", "could not read the contents of /proc/")
_NO_PYTHON = ("failed to find python version", "failed to find a python", "could not determine python version")


def find_program(name: str) -> str | None:
    """Return the path of a reader, beside this interpreter or on PATH; None if it is not installed."""
    beside = Path(sys.executable).parent / name
    return str(beside) if os.access(beside, os.X_OK) else shutil.which(name)


async def run_reader(program: str, arguments: Sequence[str], timeout_s: float) -> tuple[int, bytes, str, int] | None:
    """Run a reader of stacks once: exit status, output, complaint, and when; None when it took too long and was killed."""
    try:
        process = await asyncio.create_subprocess_exec(
            program,
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=_OUTPUT_LIMIT_BYTES,
            env={"PATH": os.environ.get("PATH", os.defpath), "RUST_BACKTRACE": "0"},
        )
    except OSError as error:
        return 1, b"", f"{program} cannot run: {error.strerror}", time.time_ns()
    try:
        output, complaint = await asyncio.wait_for(process.communicate(), timeout_s)
    except asyncio.TimeoutError:
        return None
    finally:
        if process.returncode is None:
            # ``process.kill()`` asks first whether it has ended, and so takes its status from asyncio, which complains on stderr
            # (CPython 3.11, Popen.send_signal). A pid comes back only after all others, so this one is nobody else's yet.
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
            # It may be caught in the kernel, behind the very process that hangs.
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(process.wait(), 1.0)
    return process.returncode or 0, output, complaint.decode(errors="replace"), time.time_ns()


def explain_failure(pid: int, message: str, reader: str, source: str = "stacks") -> Gap:
    """Return an error of py-spy 0.4.3 or pystack 1.7.2 (several lines) as one line, with a hint how to solve it."""
    lower = message.lower()
    if "permission denied" in lower or "operation not permitted" in lower:
        return Gap(source, f"reading process {pid} is not permitted", hint=_permission_hint())
    if any(said in lower for said in _GONE):
        return Gap(source, f"process {pid} is gone")
    if any(said in lower for said in _NO_PYTHON):
        return Gap(source, f"process {pid} runs no Python that {reader} recognizes")
    # pystack puts a skull around its complaint.
    stripped = (line.strip("\U0001f480 ") for line in message.split("Stack backtrace", maxsplit=1)[0].splitlines())
    reasons = [
        line.removeprefix("Error: ") for line in stripped if line and not line.startswith(("Caused by", "Reason"))
    ]
    return Gap(source, f"{reader} could not read process {pid}: {'; '.join(reasons)[:300] or 'it gave no reason'}")


def _permission_hint() -> str:
    """Return what makes it possible to read other processes on this machine."""
    scope = (read_small("/proc/sys/kernel/yama/ptrace_scope", 16) or b"").strip()
    if scope not in {b"", b"0"} and os.geteuid() != 0:
        return "sudo sysctl kernel.yama.ptrace_scope=0, or run the agent as root"
    if os.geteuid() != 0:
        return "run the agent as the job's user or as root"
    return "give the agent's container SYS_PTRACE: --cap-add=SYS_PTRACE"
