"""Where a thread takes the next call, command or task, by its stack. Pure.

Three places are known: the task loop of a Ray worker, a server's or an event loop's wait for clients, and a loop of the program
that reads its next command.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from hangwatch.analysis.places import bare, calls, find_event_loop, is_interpreter
from hangwatch.model.processes import POLLS, SELECTS, ProcessSample
from hangwatch.model.stacks import Block, Frame, ThreadStack
from hangwatch.program.lines import header_of, read_header

Place = Literal["tasks", "server", "commands"]

#: ``Worker.main_loop`` of Ray 2.9 to 2.60: ``self.core_worker.run_task_loop()``, which is C++ and calls back for each task.
_RAY_LOOP, _RAY_TASKS = "ray/_private/worker.py", "ray/_private/function_manager.py"
#: Servers of the standard library, and the functions that they are in while they serve a client.
_SERVER, _SERVES = "socketserver.py", ("process_request", "_handle_request_noblock", "handle_request")
_READS = frozenset({"read", "recvfrom", "recvmsg", "recv", "futex"}) | POLLS | SELECTS
#: Where the standard library, ZeroMQ's binding and vLLM's MessageQueue (0.9 to 0.27: a ring in shared memory, polled, or
#: awaited on a socket of ZeroMQ's) take what another process has put.
_QUEUES = ("multiprocessing/connection.py", "multiprocessing/queues.py", "zmq/")
_MESSAGE_QUEUE = "device_communicators/shm_broadcast.py"
_THREAD_QUEUE = "/queue.py"
#: The files in which a thread waits that takes commands from outside and hands them on.
_LISTENS = (*_QUEUES, "socket.py", "selectors.py", _SERVER, "asyncio/")
#: Without call sites, a read at most so many lines below the head of its loop counts as at the head.
_AT_HEAD_LINES = 3


@dataclass(frozen=True)
class Awaiting:
    """Where a rank awaits what to do.

    ``loop``: the line at which the program's own loop begins; None if it is a library's.
    """

    place: Place
    frame: Frame
    loop: int | None = None

    @property
    def at_head(self) -> bool:
        """True if the read is at the head of its loop, or a library's: further down it may be that of an answer."""
        return self.loop is None or self.frame.line - self.loop <= _AT_HEAD_LINES


def read_awaiting(frames: Sequence[Frame], others: Sequence[ThreadStack], last: ProcessSample) -> Awaiting | None:
    """Return where a process awaits what to do, by one stack of its main thread, its other threads and its last sample."""
    if not frames:
        return None
    if frames[0].file.endswith(_RAY_LOOP) and bare(frames[0]) == "main_loop":
        works = any(calls(t.frames, _RAY_TASKS) is not None for t in others)
        return Awaiting("tasks", frames[0]) if not works else None
    above = _above(frames)
    server = calls(above, _SERVER, "serve_forever")
    if server is not None and last.syscall in POLLS | SELECTS:
        serves = calls(above, _SERVER, *_SERVES)
        return Awaiting("server", server) if serves is None else None
    if (events := find_event_loop(above)) is not None:
        # Without a port of its own it may await the answer to a request that it has made itself.
        serves_nobody = last.syscall in POLLS | SELECTS and " listening on port " in (last.blocked_on or "")
        return Awaiting("server", events) if serves_nobody else None
    return _in_loop(frames, above, others, last)


def _above(frames: Sequence[Frame]) -> Sequence[Frame]:
    """Return the frames through which the program reads: the interpreter's, ZeroMQ's, those of vLLM's MessageQueue."""
    for number, frame in enumerate(frames):
        if not (is_interpreter(frame) or "zmq/" in frame.file or _MESSAGE_QUEUE in frame.file):
            return frames[:number]
    return frames


def _in_loop(
    frames: Sequence[Frame], above: Sequence[Frame], others: Sequence[ThreadStack], last: ProcessSample
) -> Awaiting | None:
    """Return where a line reads commands in a loop that goes on until something ends it; None if it is in no such loop."""
    polled = any(_MESSAGE_QUEUE in f.file for f in above)
    if not polled and last.syscall not in _READS:
        return None
    if any(f.file.endswith(_THREAD_QUEUE) for f in above):
        # Another thread of the process fills the queue: it must take from outside.
        if not any(t.frames and any(part in t.frames[0].file for part in _LISTENS) for t in others):
            return None
    elif not polled and not any(part in f.file for f in above for part in _QUEUES):
        return None
    for frame in frames[len(above) :]:
        if is_interpreter(frame):
            return None  # the loop that calls the program from here is not the program's
        header = read_header(frame.source or "")
        if header.over.startswith("iter(") or (header.word == "while" and ":=" in header.said):
            return Awaiting("commands", frame, frame.line)
        if frame.loops:
            loop = frame.loops[-1]
            return Awaiting("commands", frame, loop.line) if _ends_from_within(loop) else None
    return None


def _ends_from_within(loop: Block) -> bool:
    header = header_of(loop)
    match header.tree:
        case ast.Constant() | ast.UnaryOp(op=ast.Not()) | ast.NamedExpr() | ast.Compare(left=ast.NamedExpr()):
            return loop.kind == "while"
    return header.over.startswith("iter(")
