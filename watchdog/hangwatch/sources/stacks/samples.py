"""Stacks of ranks, read by py-spy without stopping them.

May import hangwatch.model, hangwatch.sources' own parts, msgspec and the standard library. Always ``--nonblocking``: a
rank is never paused, and a stopped one can be read at all. Such a read may race with the interpreter, so a failure is
tried once more. Format: ``py-spy dump --json``, py-spy 0.4.3.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from hangwatch.model.capture import Gap
from hangwatch.model.stacks import Frame, Position, StackSample, ThreadStack
from hangwatch.sources.proc.files import inner_pid
from hangwatch.sources.redaction import hide_named
from hangwatch.sources.stacks import source_lines
from hangwatch.sources.stacks.locals import describe_group, describe_local, digest_value, mark_value
from hangwatch.sources.stacks.readers import explain_failure, find_program, run_reader

T = TypeVar("T")

SOURCE = "stacks"
READER = "py-spy"
_AT_ONCE = 4
_FRAMES_LIMIT, _OUTERMOST = 400, 100
_LOCALS_LIMIT = 64
#: The check of a lock file, the call that polls it, and the caller of that, which names the file or its folder.
_PATHS_DEPTH = 3
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


async def sample_stacks(
    pids: Sequence[int],
    *,
    timeout_s: float = 3.0,
    with_locals: bool = True,
    with_values: bool = False,
    condition_values: bool = False,
) -> dict[int, StackSample | Gap]:
    """Return the stacks of processes, by pid; a Gap for each that cannot be read in ``timeout_s``.

    ``with_values``: keep what locals hold, as the user has asked. ``condition_values``: keep the booleans and small integers
    that a condition of their function names.

    The main thread's frames outside the standard library carry the text of their lines, of other threads the deepest do.
    """
    program = find_program(READER)
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
    """Return the threads with Python frames, the main one first, with locals reduced to descriptions.

    ``pid``: in the process's own PID namespace, because Python, and so py-spy, uses those numbers for its threads.

    A frame whose line is unknown has line 0. ``os_thread_id`` is 0 if py-spy does not know it (Python < 3.11, nonblocking); the
    main thread is then the one of that name, else the first that ``threading`` did not start. Raises ``StackFormatError``.
    """
    try:
        threads = msgspec.json.decode(data, type=list[_Thread])
    except msgspec.MsgspecError as error:
        raise StackFormatError(f"py-spy's output cannot be read: {error}") from None
    threads = [thread for thread in threads if thread.frames]
    main = _find_main(threads, pid)
    ordered = sorted(threads, key=lambda thread: thread is not main)
    return StackSample(at_ns, tuple(_make_thread(thread, thread is main, with_values, unsettled) for thread in ordered))


async def _sample(program: str, pid: int, timeout_s: float, with_locals: bool, with_values: bool) -> StackSample | Gap:
    """Return the stack of one process. A read that fails is tried once more within ``timeout_s``."""
    arguments = ["dump", "--json", "--nonblocking", *(["--locals"] if with_locals else []), "--pid", str(pid)]
    deadline = time.monotonic() + timeout_s
    gap = Gap(SOURCE, f"process {pid} could not be read within {timeout_s:g} s")
    for _ in range(2):
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            break
        result = await run_reader(program, arguments, left_s)
        if result is None:
            break
        code, output, message, at_ns = result
        if code == 0:
            try:
                return parse_pyspy(output, at_ns=at_ns, pid=inner_pid(pid), with_values=with_values, unsettled=True)
            except StackFormatError as error:
                gap = Gap(SOURCE, f"process {pid}: {error}", hint="use py-spy 0.4 or newer: pip install -U py-spy")
        else:
            gap = explain_failure(pid, message, READER)
            if gap.hint or "gone" in gap.reason:
                break
    return gap


async def read_paths(pid: int, *, timeout_s: float = 3.0) -> tuple[str, ...]:
    """Return the absolute paths that the deepest calls of a main thread have in their locals; none where it cannot be read.

    They say which file it waits for. No capture keeps them.
    """
    program = find_program(READER)
    arguments = ["dump", "--json", "--nonblocking", "--locals", "--pid", str(pid)]
    result = await run_reader(program, arguments, timeout_s) if program is not None else None
    return parse_paths(result[1], inner_pid(pid)) if result is not None and result[0] == 0 else ()


def parse_paths(data: bytes, pid: int) -> tuple[str, ...]:
    """Return the same from py-spy's output. A text that py-spy has cut does not end in a quote, and is left out."""
    try:
        threads = msgspec.json.decode(data, type=list[_Thread])
    except msgspec.MsgspecError:
        return ()
    main = _find_main([thread for thread in threads if thread.frames], pid)
    frames = main.frames[:_PATHS_DEPTH] if main is not None else []
    shown = (local.repr or "" for frame in frames for local in frame.locals or ())
    return tuple(dict.fromkeys(text[1:-1] for text in shown if text.startswith('"/') and text.endswith('"')))


def _find_main(threads: Sequence[_Thread], pid: int) -> _Thread | None:
    """Return the main thread if it is among those seen, else None."""
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
    """Return one thread as the model has it."""
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
    """Return the stack without the middle of a deep recursion: the deepest and the outermost frames stay."""
    return frames if len(frames) <= _FRAMES_LIMIT else [*frames[: _FRAMES_LIMIT - _OUTERMOST], *frames[-_OUTERMOST:]]


def _describe(frame: _Frame, unsettled: bool) -> dict[str, str] | None:
    """Return descriptions of the frame's locals; None if py-spy was not asked for them."""
    if frame.locals is None:
        return None
    named = [(one.name, one.repr) for one in frame.locals if one.repr is not None]
    return describe_locals(frame.filename, named, unsettled=unsettled)


def _digest(frame: _Frame) -> tuple[Position, ...]:
    """Return the digest of each local, for the reader of the source to choose from."""
    named = ((one.name[:64], one.repr) for one in (frame.locals or ())[:_LOCALS_LIMIT] if one.repr is not None)
    return tuple(Position(name, 0, digest_value(shown)) for name, shown in named)


def _keep_values(frame: _Frame) -> dict[str, str] | None:
    """Return the frame's locals as py-spy shows them, with known secrets hidden; None if it was not asked for them."""
    if frame.locals is None:
        return None
    shown = ((one.name[:64], one.repr) for one in frame.locals[:_LOCALS_LIMIT] if one.repr is not None)
    return {name: hide_named(name, text)[:_VALUE_LIMIT_CHARS] for name, text in shown}


def describe_locals(file: str, named: Sequence[tuple[str, str]], *, unsettled: bool = False) -> dict[str, str]:
    """Return descriptions of a frame's locals by name. ``named``: names and what py-spy shows of the values.

    ``unsettled``: integers and booleans are left for whoever reads the source to settle (``settle_values``).
    """
    file = f"/{file}"
    integers = any(package in file for package in _INTEGER_PACKAGES)
    status = _STATUS[1] if file.endswith(_STATUS[0]) else None
    booleans = any(package in file for package in _BOOLEAN_PACKAGES)

    def describe(name: str, shown: str) -> str:
        known = describe_group(name, shown) if integers or name == "group" else None
        switch = booleans and shown in {"True", "False"}
        marked = mark_value(shown) if unsettled and not (integers or switch or name == status) else None
        return (
            known or marked or describe_local(shown, keep_integers=integers or name == status, keep_booleans=booleans)
        )

    return {name[:64]: describe(name, shown) for name, shown in named[:_LOCALS_LIMIT]}
