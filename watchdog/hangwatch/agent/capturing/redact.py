"""The last check before anything of a job is kept or reported: values of its secret variables, wherever they turn up.

May import the model, the sources and msgspec. What is secret by its shape or its name is gone already where it was read
(``sources.redaction``); a password that looks like any word is known only by the environment of the rank that has it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache

import msgspec

from hangwatch.model.capture import Capture, RankCapture, RankIdentity
from hangwatch.model.collectives import FlightRecord
from hangwatch.model.processes import ChildProcess, ProcessSample
from hangwatch.model.stacks import Frame, StackSample
from hangwatch.sources.proc.files import read_whole
from hangwatch.sources.redaction import find_secret_values, hide_values

_ENVIRON_LIMIT_BYTES = 1 << 20
_Hide = Callable[[str], str]


class _UnreadError(Exception):
    """There is no environment to be read, or not yet: a process that is just being executed shows an empty one."""


@lru_cache(maxsize=1024)
def _read_values(pid: int, start_time: float) -> frozenset[str]:
    """Remembered once it was read, also for when the process is gone. Raises ``_UnreadError``, which is not remembered."""
    del start_time  # a part of the key: another process with this pid has other secrets
    data = read_whole(f"/proc/{pid}/environ", _ENVIRON_LIMIT_BYTES)
    if not data:
        raise _UnreadError
    return find_secret_values(data)


def secret_values(ranks: Iterable[RankIdentity]) -> frozenset[str]:
    """What the environments of these processes say is secret; nothing of those that may not be read."""
    found: set[str] = set()
    for one in ranks:
        with contextlib.suppress(_UnreadError):
            found |= _read_values(one.pid, one.start_time)
    return frozenset(found)


def hide_secrets(capture: Capture) -> Capture:
    """The capture without the secret values of its ranks."""
    values = sorted(secret_values(rank.identity for rank in capture.ranks), key=len, reverse=True)
    return hide_in_capture(capture, values) if values else capture


def hide_in_capture(capture: Capture, values: Sequence[str]) -> Capture:
    """The capture without these values in any text that is the job's own. Pure."""

    @cache
    def hide(text: str) -> str:
        return hide_values(text, values)

    @cache
    def plain(lines: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(hide(line) for line in lines)

    replace = msgspec.structs.replace
    return replace(
        capture,
        job=replace(capture.job, command=hide(capture.job.command)),
        gaps=tuple(replace(gap, reason=hide(gap.reason)) for gap in capture.gaps),
        ranks=tuple(_in_rank(rank, hide, plain) for rank in capture.ranks),
    )


def _in_rank(rank: RankCapture, hide: _Hide, plain: Callable[[tuple[str, ...]], tuple[str, ...]]) -> RankCapture:
    return msgspec.structs.replace(
        rank,
        stacks=tuple(_in_stack(stack, hide) for stack in rank.stacks),
        processes=tuple(_in_process(process, plain, hide) for process in rank.processes),
        flight=_in_flight(rank.flight, hide) if rank.flight is not None else None,
        log_error=plain(rank.log_error),
        thread_error=plain(rank.thread_error),
        handled_error=plain(rank.handled_error),
    )


def _in_process(
    process: ProcessSample, plain: Callable[[tuple[str, ...]], tuple[str, ...]], hide: _Hide
) -> ProcessSample:
    def child(one: ChildProcess) -> ChildProcess:
        return msgspec.structs.replace(one, stack=plain(one.stack), side_threads=plain(one.side_threads))

    blocked = hide(process.blocked_on) if process.blocked_on is not None else None
    return msgspec.structs.replace(process, children=tuple(map(child, process.children)), blocked_on=blocked)


def _in_stack(stack: StackSample, hide: _Hide) -> StackSample:
    threads = (
        msgspec.structs.replace(thread, frames=tuple(_in_frame(frame, hide) for frame in thread.frames))
        for thread in stack.threads
    )
    return msgspec.structs.replace(stack, threads=tuple(threads))


def _in_flight(record: FlightRecord, hide: _Hide) -> FlightRecord:
    operations = (
        msgspec.structs.replace(one, frames=tuple(_in_frame(frame, hide) for frame in one.frames))
        if one.frames
        else one
        for one in record.operations
    )
    return msgspec.structs.replace(record, operations=tuple(operations))


def _in_frame(frame: Frame, hide: _Hide) -> Frame:
    """The frame itself where nothing is hidden in it: there are thousands."""
    if frame.source is None and not frame.blocks and not frame.locals and not frame.values:
        return frame
    source = hide(frame.source) if frame.source is not None else None
    blocks = tuple(msgspec.structs.replace(one, text=hide(one.text)) for one in frame.blocks)
    held = {name: hide(text) for name, text in frame.locals.items()} if frame.locals is not None else None
    values = {name: hide(text) for name, text in frame.values.items()} if frame.values is not None else None
    if (source, blocks, held, values) == (frame.source, frame.blocks, frame.locals, frame.values):
        return frame
    return msgspec.structs.replace(frame, source=source, blocks=blocks, locals=held, values=values)
