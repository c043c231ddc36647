"""What the kernel says of a process's other threads, read from ``/proc/PID/task`` without touching the process.

May import hangwatch.model and the other files here. A few small reads per thread (about 0.1 ms), and only for Python
threads: torch and its backends have dozens of their own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from hangwatch.model.processes import ThreadSample
from hangwatch.sources.proc.blocking import find_blocked_on, read_sleep_left, read_syscall
from hangwatch.sources.proc.files import list_folder, parse_inner_pid, parse_stat, parse_switches, read_small
from hangwatch.sources.proc.samples import parse_io, read_wait_channel
from hangwatch.sources.proc.semaphores import on_shared_futex
from hangwatch.sources.proc.syscalls import LOCKING, ON_EPOLL, ON_POLL, READING, WRITING, SystemCall

#: A program with more Python threads than this does not use them for collectives.
THREADS_LIMIT = 32

#: Further threads of a process are not read.
_CALLS_LIMIT = 128
#: The calls of a thread that waits for another process. An event loop's wait is not among them: outside the main thread it
#: is mostly a transport's, which watches the connections to all ranks.
_BLOCKING = READING | WRITING | ON_POLL | LOCKING
#: The calls of a main thread that has left the work to other threads.
_AWAITS_OTHERS = ON_POLL | ON_EPOLL | {"futex", "accept", "accept4", "select", "pselect6"}


def read_calls(pid: int) -> dict[int, SystemCall | None]:
    """Return the system call of the main thread, by thread number; if it waits for others, those of other threads too.

    It may wait for another thread or for clients. Of other threads only calls that read, write, poll, or wait for
    something that processes share, such as a file lock.
    """
    found: dict[int, SystemCall | None] = {pid: read_syscall(pid)}
    main = found[pid]
    if main is None or main.name not in _AWAITS_OTHERS:
        return found
    for name in list_folder(f"/proc/{pid}/task")[:_CALLS_LIMIT]:
        call = read_syscall(pid, int(name))
        if call is not None and (call.name in _BLOCKING or on_shared_futex(call)):
            found[int(name)] = call
    return found


def sample_threads(pid: int, wanted: Collection[int], relatives: Iterable[int] = ()) -> tuple[ThreadSample, ...]:
    """Return samples of those wanted threads that still exist.

    ``wanted``: thread numbers in the process's own PID namespace. ``relatives``: processes that may hold the other
    end of a pipe.
    """
    numbers = _numbers(pid, wanted) if wanted else {}
    relatives = tuple(relatives)
    found = (_sample(pid, thread, numbers[thread], relatives) for thread in sorted(numbers)[:THREADS_LIMIT])
    return tuple(sample for sample in found if sample is not None)


def _numbers(pid: int, wanted: Collection[int]) -> Mapping[int, int]:
    """Return our number of each wanted thread.

    In a container threads have other numbers (``NSpid``, Linux 4.1 on).
    """
    if parse_inner_pid(read_small(f"/proc/{pid}/status", 8192) or b"") in {None, pid}:
        return {thread: thread for thread in wanted}
    found = {}
    for name in list_folder(f"/proc/{pid}/task"):
        inner = parse_inner_pid(read_small(f"/proc/{pid}/task/{name}/status", 8192) or b"")
        if inner in wanted and inner is not None:
            found[inner] = int(name)
    return found


def _sample(pid: int, thread: int, number: int, relatives: Collection[int]) -> ThreadSample | None:
    folder = f"/proc/{pid}/task/{number}"
    stat = parse_stat(read_small(f"{folder}/stat", 2048) or b"")
    if stat is None:
        return None
    call = read_syscall(pid, number)
    return ThreadSample(
        os_thread_id=thread,
        state=stat.state,
        cpu_s=stat.cpu_s,
        io_bytes=parse_io(read_small(f"{folder}/io", 1024) or b""),
        switches=parse_switches(read_small(f"{folder}/status", 8192) or b""),
        wait_channel=read_wait_channel(pid, number),
        syscall=call.name if call else None,
        blocked_on=find_blocked_on(pid, call, (stat.parent, *relatives)),
        sleep_left_s=read_sleep_left(pid, call),
    )
