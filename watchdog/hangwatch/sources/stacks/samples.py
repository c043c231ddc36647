"""Stacks of ranks, read by py-spy without stopping them.

May import hangwatch.model, hangwatch.sources' own parts, msgspec and the standard library. Always ``--nonblocking``: a
rank is never paused, and a stopped one can be read at all. Such a read may race with the interpreter, so a failure is
tried once more. Format: ``py-spy dump --json``, py-spy 0.4.3.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from hangwatch.model.capture import Gap
from hangwatch.model.stacks import Frame, Position, StackSample, ThreadStack
from hangwatch.sources.proc.files import inner_pid, read_small
from hangwatch.sources.redaction import hide_named
from hangwatch.sources.stacks import source_lines
from hangwatch.sources.stacks.locals import describe_group, describe_local, digest_value, mark_value

T = TypeVar("T")

SOURCE = "stacks"
_AT_ONCE = 4
_OUTPUT_LIMIT_BYTES = 64 << 20
_FRAMES_LIMIT, _OUTERMOST = 400, 100
_LOCALS_LIMIT = 64
_VALUE_LIMIT_CHARS = 200
#: Integers of torch's own frames are peers, tags and counts; booleans of these libraries are switches, not data.
_INTEGER_PACKAGES = ("/torch/", "/deepspeed/")
#: The status with which multiprocessing is about to end a process that it started; the name of its variable.
_STATUS = ("/multiprocessing/process.py", "exitcode")
_BOOLEAN_PACKAGES = (*_INTEGER_PACKAGES, "/accelerate/", "/transformers/", "/lightning/", "/megatron/")


class StackFormatError(ValueError):
    """py-spy's output is not what it should be."""


class _Local(msgspec.Struct):
    name: str
    repr: str | None = None


class _Frame(msgspec.Struct):
    name: str
    filename: str
    line: int
    locals: list[_Local] | None = None


class _Thread(msgspec.Struct):
    frames: list[_Frame]
    os_thread_id: int | None = None
    thread_id: int = 0
    thread_name: str | None = None
    active: bool = False
    owns_gil: bool = False


def find_pyspy() -> str | None:
    """Path of py-spy: beside this interpreter, else on PATH; None where it is not installed."""
    beside = Path(sys.executable).parent / "py-spy"
    return str(beside) if os.access(beside, os.X_OK) else shutil.which("py-spy")


async def sample_stacks(
    pids: Sequence[int],
    *,
    timeout_s: float = 3.0,
    with_locals: bool = True,
    with_values: bool = False,
    condition_values: bool = False,
) -> dict[int, StackSample | Gap]:
    """The stacks of several processes, each within ``timeout_s``, a few at once; a Gap for each that cannot be had.

    ``with_values``: keep what locals hold, as the user has asked. ``condition_values``: keep the booleans and small integers
    that a condition of their function names.

    The main thread's frames outside the standard library carry the text of their lines, of other threads the deepest do.
    """
    program = find_pyspy()
    if program is None:
        gap = Gap(SOURCE, "py-spy is not installed", hint="pip install py-spy")
        return dict.fromkeys(pids, gap)
    slots = asyncio.Semaphore(_AT_ONCE)

    async def sample(pid: int) -> StackSample | Gap:
        async with slots:
            return await _sample(program, pid, timeout_s, with_locals, with_values)

    wanted = tuple(dict.fromkeys(pids))
    results = dict(zip(wanted, await asyncio.gather(*(sample(pid) for pid in wanted)), strict=True))
    seen = {pid: result for pid, result in results.items() if isinstance(result, StackSample)}
    return {**results, **await source_lines.shared.attach(seen, condition_values=condition_values)}


def parse_pyspy(
    data: bytes, *, at_ns: int, pid: int, with_values: bool = False, unsettled: bool = False
) -> StackSample:
    """Threads with Python frames, the main one first, locals reduced to descriptions. Raises ``StackFormatError``.

    ``pid`` is the process's own, in its PID namespace: Python, and so py-spy, knows its threads by these.

    A frame whose line is not known has line 0. ``os_thread_id`` is 0 where py-spy does not know it (Python < 3.11,
    nonblocking); the main thread is then the one of that name, else the first that ``threading`` did not start.
    """
    try:
        threads = msgspec.json.decode(data, type=list[_Thread])
    except msgspec.MsgspecError as error:
        raise StackFormatError(f"py-spy's output cannot be read: {error}") from None
    threads = [thread for thread in threads if thread.frames]
    main = _find_main(threads, pid)
    ordered = sorted(threads, key=lambda thread: thread is not main)
    return StackSample(at_ns, tuple(_make_thread(thread, thread is main, with_values, unsettled) for thread in ordered))


def explain_failure(pid: int, message: str) -> Gap:
    """py-spy's complaint (0.4.3, several lines) as one line with a repair."""
    lower = message.lower()
    if "permission denied" in lower or "operation not permitted" in lower:
        return Gap(SOURCE, f"reading process {pid} is not permitted", hint=_permission_hint())
    if "no such process" in lower or "no such file" in lower or "os error 3)" in lower:
        return Gap(SOURCE, f"process {pid} is gone")
    if "failed to find python version" in lower or "failed to find a python" in lower:
        return Gap(SOURCE, f"process {pid} runs no Python that py-spy knows")
    lines = [line.strip() for line in message.split("Stack backtrace", maxsplit=1)[0].splitlines() if line.strip()]
    reasons = [line.removeprefix("Error: ") for line in lines if not line.startswith(("Caused by", "Reason"))]
    return Gap(SOURCE, f"py-spy could not read process {pid}: {'; '.join(reasons)[:300] or 'it gave no reason'}")


async def _sample(program: str, pid: int, timeout_s: float, with_locals: bool, with_values: bool) -> StackSample | Gap:
    """One process, tried twice within the time."""
    arguments = ["dump", "--json", "--nonblocking", *(["--locals"] if with_locals else []), "--pid", str(pid)]
    deadline = time.monotonic() + timeout_s
    gap = Gap(SOURCE, f"process {pid} could not be read within {timeout_s:g} s")
    for _ in range(2):
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            break
        result = await _dump(program, arguments, left_s)
        if result is None:
            break
        code, output, message, at_ns = result
        if code == 0:
            try:
                return parse_pyspy(output, at_ns=at_ns, pid=inner_pid(pid), with_values=with_values, unsettled=True)
            except StackFormatError as error:
                gap = Gap(SOURCE, f"process {pid}: {error}", hint="use py-spy 0.4 or newer: pip install -U py-spy")
        else:
            gap = explain_failure(pid, message)
            if gap.hint or "gone" in gap.reason:
                break
    return gap


async def _dump(program: str, arguments: list[str], timeout_s: float) -> tuple[int, bytes, str, int] | None:
    """Run py-spy once: exit status, output, complaint, and when; None when it took too long and was killed."""
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
        return 1, b"", f"{program} cannot be run: {error.strerror}", time.time_ns()
    try:
        output, complaint = await asyncio.wait_for(process.communicate(), timeout_s)
    except asyncio.TimeoutError:
        return None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            # It may be caught in the kernel, behind the very process that hangs.
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(process.wait(), 1.0)
    return process.returncode or 0, output, complaint.decode(errors="replace"), time.time_ns()


def _find_main(threads: Sequence[_Thread], pid: int) -> _Thread | None:
    """The main thread among those seen."""
    for thread in threads:
        if thread.os_thread_id == pid:
            return thread
    if any(thread.os_thread_id for thread in threads):
        return None
    for thread in threads:
        if thread.thread_name == "MainThread":
            return thread
    return next((thread for thread in threads if thread.frames[-1].name != "_bootstrap"), None)


def _make_thread(thread: _Thread, is_main: bool, with_values: bool, unsettled: bool) -> ThreadStack:
    """One thread in our terms."""
    return ThreadStack(
        os_thread_id=thread.os_thread_id or 0,
        name=thread.thread_name,
        is_main=is_main,
        # Without the system's number py-spy guesses by the names of functions. What the process uses tells of its main thread.
        active=thread.active and not (is_main and not thread.os_thread_id),
        owns_gil=thread.owns_gil,
        frames=tuple(
            Frame(
                frame.name,
                frame.filename,
                max(frame.line, 0),
                locals=_describe(frame, unsettled),
                values=_keep_values(frame) if with_values else None,
                positions=_digest(frame) if unsettled else (),
            )
            for frame in cut_stack(thread.frames)
        ),
        ident=thread.thread_id,
    )


def cut_stack(frames: Sequence[T]) -> Sequence[T]:
    """A stack without the middle of a recursion: where it is and what began it are kept."""
    return frames if len(frames) <= _FRAMES_LIMIT else [*frames[: _FRAMES_LIMIT - _OUTERMOST], *frames[-_OUTERMOST:]]


def _describe(frame: _Frame, unsettled: bool) -> dict[str, str] | None:
    """The frame's locals as descriptions; None where py-spy was not asked for them."""
    if frame.locals is None:
        return None
    named = [(one.name, one.repr) for one in frame.locals if one.repr is not None]
    return describe_locals(frame.filename, named, unsettled=unsettled)


def _digest(frame: _Frame) -> tuple[Position, ...]:
    """The digests of all its locals, for whoever reads the source to choose from."""
    named = ((one.name[:64], one.repr) for one in (frame.locals or ())[:_LOCALS_LIMIT] if one.repr is not None)
    return tuple(Position(name, 0, digest_value(shown)) for name, shown in named)


def _keep_values(frame: _Frame) -> dict[str, str] | None:
    """The frame's locals as py-spy shows them, without what is known to be secret; None where it was not asked for them."""
    if frame.locals is None:
        return None
    shown = ((one.name[:64], one.repr) for one in frame.locals[:_LOCALS_LIMIT] if one.repr is not None)
    return {name: hide_named(name, text)[:_VALUE_LIMIT_CHARS] for name, text in shown}


def describe_locals(file: str, named: Sequence[tuple[str, str]], *, unsettled: bool = False) -> dict[str, str]:
    """Descriptions of a frame's locals by name, from their names and what py-spy shows of them.

    ``unsettled``: integers and booleans are left for whoever reads the source to settle (``settle_values``).
    """
    file = f"/{file}"
    integers = any(package in file for package in _INTEGER_PACKAGES)
    status = _STATUS[1] if file.endswith(_STATUS[0]) else None
    booleans = any(package in file for package in _BOOLEAN_PACKAGES)

    def describe(name: str, shown: str) -> str:
        known = describe_group(name, shown) if integers else None
        switch = booleans and shown in {"True", "False"}
        marked = mark_value(shown) if unsettled and not (integers or switch or name == status) else None
        return (
            known or marked or describe_local(shown, keep_integers=integers or name == status, keep_booleans=booleans)
        )

    return {name[:64]: describe(name, shown) for name, shown in named[:_LOCALS_LIMIT]}


def _permission_hint() -> str:
    """How to be allowed to read other processes on this machine."""
    scope = (read_small("/proc/sys/kernel/yama/ptrace_scope", 16) or b"").strip()
    if scope not in {b"", b"0"} and os.geteuid() != 0:
        return "sudo sysctl kernel.yama.ptrace_scope=0, or run the agent as root"
    if os.geteuid() != 0:
        return "run the agent as the job's user or as root"
    return "give the agent's container SYS_PTRACE: --cap-add=SYS_PTRACE"
