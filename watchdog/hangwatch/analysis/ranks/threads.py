"""The threads of one rank: which of them does its collectives, and the rank as seen from it. Pure.

A rank's collectives may come from its main thread, from a pool's under an event loop, from a thread that saves or reads
ahead, and from several of these. A rank waits for others only if the thread whose call they are missing waits.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Sequence
from itertools import takewhile

from msgspec.structs import replace

from hangwatch.analysis.places import bare, is_interpreter, user_frames
from hangwatch.analysis.stacks.awaiting import read_awaiting
from hangwatch.analysis.stacks.remote_calls import serving_thread
from hangwatch.analysis.stacks.waits import in_torch_distributed, read_wait
from hangwatch.model.capture import RankCapture
from hangwatch.model.collectives import Operation, OperationColumns
from hangwatch.model.processes import ProcessSample, ThreadSample
from hangwatch.model.stacks import PROBE_THREAD, Frame, StackSample, ThreadStack, once_a_stack

#: Where a worker of a pool waits for something to do (CPython 3.10 to 3.14).
_POOL, _WORKER = "concurrent/futures/thread.py", "_worker"
#: A thread of the standard library that calls a function of the program after a while.
_TIMER = "Timer.run"
#: Files in which a main thread waits for another thread of its process, and those of event loops.
_HANDOVERS = ("threading.py", "queue.py", "concurrent/futures/")
_LOOPS = ("asyncio/", "selectors.py", "trio/")
#: The outermost function of a Python thread's call path, if it is whole.
_OUTERMOST = {"<module>", "_bootstrap"}
#: What calls the program's handler of a request, in a thread: servers of the standard library and of gRPC, Starlette by AnyIO.
_SERVERS = ("socketserver.py", "http/server.py")
_FRONTS = (*_SERVERS, "multiprocessing/managers.py", "anyio/", "grpc/_server.py")
#: Where the thread that has started a gRPC server waits for its end (``grpc/_server.py``).
_AWAITS_END = "wait_for_termination"
#: The same, and pools: handlers may give parts of their work to them.
_HANDLERS = (*_FRONTS, "concurrent/futures/thread.py")


def threads_of(capture: RankCapture) -> tuple[ThreadStack, ...]:
    """Return all Python threads of a rank, as they were seen last."""
    return capture.stacks[-1].threads if capture.stacks else ()


def main_of(threads: Sequence[ThreadStack]) -> ThreadStack | None:
    """Return the main thread among these, or the one in its place; None if there is none."""
    return next((t for t in threads if t.is_main), None)


def side_threads(threads: Sequence[ThreadStack]) -> tuple[ThreadStack, ...]:
    """Return the program's Python threads beside the main one, without our probe's."""
    return tuple(t for t in threads if not t.is_main and t.name != PROBE_THREAD)


def is_idle_worker(thread: ThreadStack) -> bool:
    """True if a thread is a pool's and waits for something to do."""
    first = thread.frames[0] if thread.frames else None
    return first is not None and first.file.endswith(_POOL) and bare(first) == _WORKER


@once_a_stack
def may_join(frames: Sequence[Frame]) -> bool:
    """True if a thread with these frames may yet call a collective: one of the program, a timer, any in torch.distributed.

    A pool's idle worker does nothing unless another thread tells it to, and threads that libraries start for themselves
    (a progress bar, a writer of events) do not run the program.
    """
    return bool(user_frames(frames)) or any(in_torch_distributed(f) or f.function == _TIMER for f in frames)


def program_part(thread: ThreadStack) -> tuple[str, str] | None:
    """Return the part of the program that a thread runs: file and function of its outermost frame there; None if none."""
    own = user_frames(thread.frames)
    return (own[-1].file, bare(own[-1])) if own else None


def choose_thread(
    capture: RankCapture, pending: Sequence[Operation], excluded: Container[int] = ()
) -> ThreadStack | None:
    """Return the thread that matters, by what this rank alone shows; None for the main one.

    It is the thread that called the oldest operation in flight; if that is not recorded, one that is inside
    torch.distributed while the main thread is in an event loop. A main thread that waits for another one matters itself
    if anything is in flight, as it goes on when that one does. If it awaits the end of all remote calls, the thread
    that runs one matters. ``excluded``: threads that are left out.
    """
    threads = threads_of(capture)
    others = side_threads(threads)
    main = main_of(threads)
    if capture.identity.worldless and not capture.progress:
        serving = find_serving(capture)
        return serving if serving is not main else None
    serving = serving_thread(threads)
    if serving is not None and not pending:
        return serving
    hands_over = main is not None and _is_in(main, _HANDOVERS)
    if not others or (pending and hands_over):
        return None
    caller = pending[0].thread if pending else 0
    if caller:
        return find_thread(others, caller)
    if main is not None and not hands_over and not _is_in(main, _LOOPS):
        return None
    inside = [t for t in others if t.ident not in excluded and read_wait(t.frames) is not None]
    if not inside and hands_over:
        inside = [t for t in others if t.ident not in excluded and _asks(capture, t)]
        inside = inside if len(inside) == 1 else []
    return min(inside, key=lambda t: (t.os_thread_id, t.ident), default=None)


def _asks(capture: RankCapture, thread: ThreadStack) -> bool:
    """True if a thread runs the program, or a library for it, and is blocked on a connection to another process.

    A thread that takes its next command from there does not count.
    """
    last = capture.sample
    own = next((t for t in last.threads if t.os_thread_id == thread.os_thread_id), None) if last is not None else None
    if last is None or own is None:
        return False
    if own.server is None and own.answering is None and not own.servers and own.store is None:
        return False
    return not _takes_command(thread.frames, _process_of(last, thread)) and not all(
        is_interpreter(f) for f in thread.frames
    )


def find_serving(capture: RankCapture) -> ThreadStack | None:
    """Return the thread of a server that answers a request, the main one or another; None if there is none or several.

    A thread that takes its next command answers no request. Several threads that are stuck in one place count as one.
    """
    threads = threads_of(capture)
    main = main_of(threads)
    if main is None or not capture.processes:
        return None
    last = capture.processes[-1]
    if _answers(main, last):
        return main
    working = [t for t in side_threads(threads) if _answers(t, _process_of(last, t))]
    # A thread that a server's library has called comes before one that the program keeps for itself.
    handling = [t for t in working if any(part in f.file for f in t.frames for part in _HANDLERS)] or working
    for chosen in (handling, [t for t in handling if any(part in f.file for f in t.frames for part in _FRONTS)]):
        if len({tuple((f.file, f.line) for f in t.frames) for t in chosen}) == 1:
            return chosen[0]
    return None


def _answers(thread: ThreadStack, sample: ProcessSample) -> bool:
    """True if a thread runs the program, and not a loop that hands on what comes in, its own or a library's."""
    above = list(takewhile(is_interpreter, thread.frames))
    beyond = [f for f in thread.frames[len(above) :] if bare(f) != _AWAITS_END]
    called = any(part in f.file for f in beyond for part in _HANDLERS)
    waits = any(part in f.file for f in above for part in (*_HANDOVERS, *_LOOPS, *_SERVERS))
    accepts = bool(above) and bare(above[0]) == "accept"
    hands_on = thread.is_main and not called and (waits or accepts)
    return bool(user_frames(thread.frames)) and not hands_on and not _takes_command(thread.frames, sample)


def _takes_command(frames: Sequence[Frame], sample: ProcessSample) -> bool:
    """True if a thread takes its next command at the head of a loop."""
    awaiting = read_awaiting(frames, (), sample)
    return _reads_request(frames) if awaiting is None else awaiting.at_head


def _reads_request(frames: Sequence[Frame]) -> bool:
    """True if a handler reads its client's next request, in the header of a loop: ``for line in self.rfile:``."""
    own = next((f for f in frames if not is_interpreter(f)), None)
    reads = bool(frames) and frames[0].file.endswith("/socket.py")
    handles = any(part in f.file for f in frames for part in _SERVERS)
    return reads and handles and own is not None and (own.source or "").startswith("for ")


def find_thread(threads: Sequence[ThreadStack], ident: int) -> ThreadStack | None:
    """Return the thread with this number (``ThreadStack.ident``) among these; None if it is missing or has no frames."""
    return next((t for t in threads if ident and t.ident == ident and t.frames), None)


def is_engines(capture: RankCapture, operation: Operation) -> bool:
    """True if a thread of torch's own called an operation: the engine of a backward pass has one for each device.

    The call site of a Python thread begins with the program or with what started the thread. An operation without a
    call site is the engine's if its thread is none of those that were seen.
    """
    if not operation.thread:
        return False
    if operation.frames:
        return bare(operation.frames[-1]) not in _OUTERMOST
    return bool(threads_of(capture)) and all(t.ident != operation.thread for t in threads_of(capture))


def _is_in(thread: ThreadStack, places: Sequence[str]) -> bool:
    """True if a thread's deepest frame is in one of these files, and the thread does not wait for other ranks."""
    first = thread.frames[0] if thread.frames else None
    return first is not None and any(part in first.file for part in places) and read_wait(thread.frames) is None


def find_joining(
    capture: RankCapture, last: Operation | None, parts: Collection[tuple[str, str]]
) -> ThreadStack | None:
    """Return the thread that would call the next operation of a group; None if that cannot be told.

    ``last``: what the rank called there before. ``parts``: the parts of the program (``program_part``) in which other
    ranks wait in the group. A thread that runs such a part comes first: the number of a thread that has ended may be
    another's by now. If the thread has ended or is idle, the main one has to give a thread something to do.
    """
    threads = threads_of(capture)
    main = main_of(threads)
    ident = last.thread if last is not None else 0
    if main is not None and ident and main.ident == ident:
        return main
    working = [t for t in side_threads(threads) if t.frames and not is_idle_worker(t)]
    same_part = [t for t in working if program_part(t) in parts]
    found = find_thread(same_part, ident) or next(iter(same_part), None) or find_thread(working, ident)
    return found or (main if ident else None)


def last_called(capture: RankCapture, key: str) -> Operation | None:
    """Return the last recorded collective of a rank in a group; None if there is none."""
    operations = capture.flight.operations if capture.flight is not None else ()
    if isinstance(operations, OperationColumns):
        history = next((h for h in operations.histories if h.group.key == key), None)
        place = history.place(history.newest) if history is not None else None
        return operations[place] if place is not None else None
    return next((o for o in reversed(operations) if o.group.key == key and not o.p2p), None)


def seen_from(capture: RankCapture, thread: ThreadStack) -> RankCapture:
    """Return the rank seen from one of its other threads, which takes the place of the main thread in all samples.

    Motion, wait and cost are then those of that thread. What ends or stops the process concerns all threads.
    """
    return replace(
        capture,
        processes=tuple(_process_of(p, thread) for p in capture.processes),
        stacks=tuple(_stack_of(s, thread) for s in capture.stacks),
    )


def _stack_of(sample: StackSample, thread: ThreadStack) -> StackSample:
    turned = [replace(t, is_main=_same(t, thread)) for t in sample.threads]
    return replace(sample, threads=tuple(sorted(turned, key=lambda t: not t.is_main)))


def _same(one: ThreadStack, other: ThreadStack) -> bool:
    return one.ident == other.ident if one.ident and other.ident else one.os_thread_id == other.os_thread_id > 0


def _process_of(sample: ProcessSample, thread: ThreadStack) -> ProcessSample:
    if sample.state not in {"R", "S", "D", "I"}:
        return sample
    asleep = ThreadSample(thread.os_thread_id, "S", sample.cpu_s)
    own = next((t for t in sample.threads if t.os_thread_id == thread.os_thread_id), asleep)
    shared = [name for name in ThreadSample.__struct_fields__ if name != "os_thread_id"]
    return replace(sample, **{name: getattr(own, name) for name in shared})
