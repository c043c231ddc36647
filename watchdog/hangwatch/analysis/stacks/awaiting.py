"""Where a thread takes the next call, command or task, by its stack. Pure.

Three places are known: the task loop of a Ray worker, a server's or an event loop's wait for clients, and a loop of the program
that reads its next command.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from hangwatch.analysis.places import bare, calls, is_interpreter
from hangwatch.model.processes import ProcessSample
from hangwatch.model.stacks import Block, Frame, ThreadStack

Place = Literal["tasks", "server", "commands"]

#: ``Worker.main_loop`` of Ray 2.9 to 2.60: ``self.core_worker.run_task_loop()``, which is C++ and calls back for each task.
_RAY_LOOP, _RAY_TASKS = "ray/_private/worker.py", "ray/_private/function_manager.py"
#: Servers of the standard library, and what they are in while they serve somebody.
_SERVER, _SERVES = "socketserver.py", ("process_request", "_handle_request_noblock", "handle_request")
_EVENT_LOOP = "asyncio/base_events.py"
_SELECTS = frozenset({"poll", "ppoll", "select", "pselect6", "epoll_wait", "epoll_pwait", "epoll_pwait2"})
_READS = frozenset({"read", "recvfrom", "recvmsg", "recv", "futex"}) | _SELECTS
#: Where the standard library, ZeroMQ's binding and vLLM's MessageQueue (0.9 to 0.27: a ring in shared memory, polled, or
#: awaited on a socket of ZeroMQ's) take what another process has put.
_QUEUES = ("multiprocessing/connection.py", "multiprocessing/queues.py", "zmq/")
_MESSAGE_QUEUE = "device_communicators/shm_broadcast.py"
_THREAD_QUEUE = "/queue.py"
#: What a thread is in that takes commands from outside, and hands them on.
_LISTENS = (*_QUEUES, "socket.py", "selectors.py", _SERVER, "asyncio/")
_ENDLESS = re.compile(r"while\s*\(?\s*(?:True|1)\s*\)?\s*:|while\s+not\b.*:|while\s+\(?\w+\s*:=.*:")
#: A read so few lines below the head of its loop is at the head, where no call sites tell.
_AT_HEAD_LINES = 3
_READS_IN_HEADER = re.compile(r"(?:async )?for\b.*\bin\s+iter\(|while\b.*:=")


@dataclass(frozen=True)
class Awaiting:
    """Where a rank awaits what to do. ``loop``: the line at which the program's own loop begins, None where it is a library's."""

    place: Place
    frame: Frame
    loop: int | None = None

    @property
    def at_head(self) -> bool:
        """Whether the read is at the head of its loop, or a library's: further down it may be of an answer."""
        return self.loop is None or self.frame.line - self.loop <= _AT_HEAD_LINES


def read_awaiting(frames: Sequence[Frame], others: Sequence[ThreadStack], last: ProcessSample) -> Awaiting | None:
    """The same by one stack of its main thread, its other threads and its process, whatever came before."""
    if not frames:
        return None
    if frames[0].file.endswith(_RAY_LOOP) and bare(frames[0]) == "main_loop":
        works = any(calls(t.frames, _RAY_TASKS) is not None for t in others)
        return Awaiting("tasks", frames[0]) if not works else None
    above = _above(frames)
    server = calls(above, _SERVER, "serve_forever")
    if server is not None and last.syscall in _SELECTS:
        serves = calls(above, _SERVER, *_SERVES)
        return Awaiting("server", server) if serves is None else None
    events = calls(above, _EVENT_LOOP, "_run_once")
    if events is not None:
        # Without a port of its own, what it awaits may be the answer to a request that it has made itself.
        serves_nobody = last.syscall in _SELECTS and " listening on port " in (last.blocked_on or "")
        return Awaiting("server", events) if serves_nobody else None
    return _in_loop(frames, above, others, last)


def _above(frames: Sequence[Frame]) -> Sequence[Frame]:
    """The frames through which the program reads: the interpreter's, ZeroMQ's, those of vLLM's MessageQueue."""
    for number, frame in enumerate(frames):
        if not (is_interpreter(frame) or "zmq/" in frame.file or _MESSAGE_QUEUE in frame.file):
            return frames[:number]
    return frames


def _in_loop(
    frames: Sequence[Frame], above: Sequence[Frame], others: Sequence[ThreadStack], last: ProcessSample
) -> Awaiting | None:
    """Whether the line that reads is in a loop that goes on until something ends it."""
    polled = any(_MESSAGE_QUEUE in f.file for f in above)
    if not polled and last.syscall not in _READS:
        return None
    if any(f.file.endswith(_THREAD_QUEUE) for f in above):
        # A thread of its own fills it: from outside?
        if not any(t.frames and any(part in t.frames[0].file for part in _LISTENS) for t in others):
            return None
    elif not polled and not any(part in f.file for f in above for part in _QUEUES):
        return None
    for frame in frames[len(above) :]:
        if is_interpreter(frame):
            return None  # whoever calls the program from here is no loop of its
        if _READS_IN_HEADER.match(frame.source or ""):
            return Awaiting("commands", frame, frame.line)
        loop = next((b for b in reversed(frame.blocks) if b.kind in {"for", "while"}), None)
        if loop is not None:
            return Awaiting("commands", frame, loop.line) if _ends_from_within(loop) else None
    return None


def _ends_from_within(loop: Block) -> bool:
    return bool(_READS_IN_HEADER.match(loop.text) if loop.kind == "for" else _ENDLESS.match(loop.text))
