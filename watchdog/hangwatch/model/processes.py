"""What the kernel says of a process."""

from __future__ import annotations

import msgspec


class ChildProcess(msgspec.Struct, frozen=True, omit_defaults=True):
    """A descendant of a rank (a DataLoader worker, a compiler). CPU time in seconds, its own descendants excluded.

    ``stack``, text lines of its main thread (deepest first, ``function (file:line): source``), is read only where the
    rank's own stack shows no wait for other ranks. ``forked``: it has its parent's command line, so it was started by fork
    alone. ``threads`` counts all its threads, Python's or not, None where unread; ``side_threads`` are the places of its other
    Python threads, a line each, and known only where ``stack`` is.
    """

    pid: int
    name: str
    state: str
    cpu_s: float
    wait_channel: str | None = None
    stack: tuple[str, ...] = ()
    forked: bool = False
    threads: int | None = None
    side_threads: tuple[str, ...] = ()


class CallerProcess(msgspec.Struct, frozen=True, omit_defaults=True):
    """The nearest Python process above a rank that is no launcher: an engine's core, a driver. CPU time in seconds.

    ``stack`` are the lines of its program that its main thread is in, deepest first, written as those of a child.
    """

    pid: int
    name: str
    cpu_s: float = 0.0
    stack: tuple[str, ...] = ()


class ExitStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a process ended, as far as anyone saw: ``code`` and ``signal`` are None when the launcher reaped it unseen."""

    code: int | None = None
    signal: int | None = None
    oom_killed: bool = False
    seen_at_ns: int | None = None


class ThreadSample(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the kernel says of one of a process's other threads: the fields of ``ProcessSample``, all of this thread alone.

    ``os_thread_id`` is in the process's own PID namespace, as ``ThreadStack`` has it.
    """

    os_thread_id: int
    state: str
    cpu_s: float = 0.0
    io_bytes: int | None = None
    switches: int | None = None
    wait_channel: str | None = None
    syscall: str | None = None
    blocked_on: str | None = None


class ProcessSample(msgspec.Struct, frozen=True, omit_defaults=True):
    """One process at one instant (``at_ns``: wall clock).

    ``state`` is the letter of ``/proc/PID/stat`` (R, S, D, T, t, Z) or ``gone``. ``cpu_s`` is user + system time of all
    its threads; ``io_bytes`` is what it moved through calls and to storage (``/proc/PID/io``), None where unreadable;
    ``switches`` counts the main thread's voluntary context switches. ``wait_channel`` is the main thread's kernel wait
    channel; ``syscall`` its system call name where /proc tells; ``blocked_on`` the path (or ``pipe:[..]``,
    ``socket:[..]``) of the descriptor a blocking read or write is on. ``frozen`` says that its cgroup is frozen.
    ``supervised``: it has ended, and who may start it anew lives. ``threads``: its other Python threads, where they were seen.
    ``caller`` is who started it, read only of a rank that awaits what to do. ``server``: the pid of the one process that has
    the other end of the connection or pipe that the main thread reads from; None where it reads from none, where that end is not
    on this node, or several have it, and where the process is a relative.
    """

    at_ns: int
    pid: int
    state: str
    cpu_s: float = 0.0
    io_bytes: int | None = None
    switches: int | None = None
    wait_channel: str | None = None
    syscall: str | None = None
    blocked_on: str | None = None
    frozen: bool = False
    children: tuple[ChildProcess, ...] = ()
    exit: ExitStatus | None = None
    supervised: bool = False
    threads: tuple[ThreadSample, ...] = ()
    caller: CallerProcess | None = None
    server: int | None = None

    @property
    def writers(self) -> tuple[int, ...]:
        """The related processes that may write to the pipe it is blocked on: 12 and 13 of ``pipe:[7] from 12 cat, 13 sort``."""
        kind, found, holders = (self.blocked_on or "").partition("] from ")
        named = (one.partition(" ") for one in holders.split(", ")) if found and "pipe:[" in kind else ()
        return tuple(int(pid) for pid, space, _ in named if space and pid.isdigit())
