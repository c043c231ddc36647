"""What the kernel says of a process."""

from __future__ import annotations

import msgspec

from hangwatch.model.stacks import Position

#: What ``MutexWait.owner_in`` says of a thread that waits for the interpreter's lock.
GIL = "GIL"
#: The system calls that only let time pass.
SLEEPS = frozenset({"clock_nanosleep", "nanosleep"})


class MutexWait(msgspec.Struct, frozen=True, omit_defaults=True):
    """A thread that waits for a mutex of the C library, and the thread that has it.

    ``thread`` and ``owner`` are numbers in the process's own PID namespace, as ``ThreadStack.os_thread_id`` has them; ``name``
    and ``owner_name`` what the kernel calls them (``pt_nccl_watchdg``). ``owner_name`` is empty where the process has no such
    thread: it has ended with the mutex, or was not forked along. ``owner_in``: the system call that the owner is in, ``GIL``
    where that is the wait for the interpreter's lock; empty where it runs.
    """

    thread: int
    owner: int
    name: str = ""
    owner_name: str = ""
    owner_in: str = ""


class ChildProcess(msgspec.Struct, frozen=True, omit_defaults=True):
    """A descendant of a rank (a DataLoader worker, a compiler). CPU time in seconds, its own descendants excluded.

    ``io_bytes`` and ``switches`` are what they are of the rank.

    ``stack``, text lines of its main thread (deepest first, ``function (file:line): source``), is read only where the rank's own
    stack shows no wait for other ranks, or another rank of the node sleeps. ``forked``: it has its parent's command line, so it
    was started by fork alone. ``threads`` counts all its threads, Python's or not, None where unread; ``side_threads`` are the
    places of its other Python threads, a line each, and known only where ``stack`` is, as are ``positions``: how far its main
    thread is in its data, and ``mutexes``. ``sleep_left_s`` is what it is of the rank; of a loop that counts its sleeps all that
    are left. ``between_items``: behind that sleep is the next item of a loop that ends with its data.
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
    positions: tuple[Position, ...] = ()
    mutexes: tuple[MutexWait, ...] = ()
    sleep_left_s: float | None = None
    between_items: bool = False
    io_bytes: int | None = None
    switches: int | None = None


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


class StoreSample(msgspec.Struct, frozen=True, omit_defaults=True):
    """A torch ``TCPStore`` that a thread awaits an answer of, as its clients on this node show it.

    ``address``: ``HOST:PORT``. ``clients``: pids of the other processes here that are connected to it. ``unseen``: how many
    of its connections are of processes that are not seen here.
    """

    address: str
    clients: tuple[int, ...] = ()
    unseen: int = 0


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
    server: int | None = None
    servers: tuple[int, ...] = ()
    store: StoreSample | None = None
    elsewhere: str = ""
    own_end: str = ""
    answering: int | None = None
    sleep_left_s: float | None = None


class WatchdogSample(msgspec.Struct, frozen=True):
    """One of torch's watchdogs of NCCL while it is asleep.

    ``thread``: its number in the process's own PID namespace. ``switches`` counts its voluntary context switches: it looks at the
    device ten times a second, so that they grow as long as its calls come back.
    """

    thread: int
    switches: int


class ProcessSample(msgspec.Struct, frozen=True, omit_defaults=True):
    """One process at one instant (``at_ns``: wall clock).

    ``state`` is the letter of ``/proc/PID/stat`` (R, S, D, T, t, Z) or ``gone``. ``cpu_s`` is user + system time of all
    its threads; ``io_bytes`` is what it moved through calls and to storage (``/proc/PID/io``), None where unreadable;
    ``switches`` counts the main thread's voluntary context switches. ``wait_channel`` is the main thread's kernel wait
    channel; ``syscall`` its system call name where /proc tells; ``blocked_on`` the path (or ``pipe:[..]``,
    ``socket:[..]``) of the descriptor a blocking read or write is on. ``frozen`` says that its cgroup is frozen.
    ``supervised``: it has ended, and who may start it anew lives. ``threads``: its other Python threads, where they were seen.
    ``caller`` is who started it, read only of a rank that awaits what to do. ``server``: the pid of the one process that has
    the other end of the connection or pipe that the main thread reads from or writes to; None where there is none, or several
    have it (``servers``), and where that is a child that is no server. ``store``: where that connection is one to a store.
    ``elsewhere``: ``HOST:PORT`` of the other end, where that is not on this node, and ``own_end`` that of this one.
    ``answering``: the number of the process that has the other end, where that is on another node of the job; ``elsewhere`` is
    empty then.
    ``runs_in``: the names of the mapped files (libraries) in which the main thread was found running since the sample before, the
    most frequent first, an empty name for code of no file; looked for only where it may spin for its device.
    ``mutexes``: which of its threads, Python's or not, wait for a mutex of the C library. ``watchdogs``: torch's of NCCL, those
    that were asleep. ``sleep_left_s``: how long the main thread is still to sleep, where it has named the time at which to wake
    (``time.sleep`` of Python 3.11 and later), or to wait for another thread with a time-out. ``tasks``: those of Ray's that it
    has called and that are not done, with Ray's word for their state; read only of one in ``ray.get`` or ``ray.wait``, whose
    ``servers`` are those that run them on this node.
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
    servers: tuple[int, ...] = ()
    store: StoreSample | None = None
    elsewhere: str = ""
    own_end: str = ""
    answering: int | None = None
    runs_in: tuple[str, ...] = ()
    mutexes: tuple[MutexWait, ...] = ()
    watchdogs: tuple[WatchdogSample, ...] = ()
    sleep_left_s: float | None = None
    tasks: tuple[str, ...] = ()

    @property
    def ended(self) -> bool:
        """Whether there is no such process any more: at most its exit status is there still."""
        return self.state in {"gone", "Z", "X"}

    @property
    def other_ends(self) -> tuple[int, ...]:
        """The pids of those on this node that have the other end: ``server``, or several of which any may be meant."""
        return (self.server,) if self.server is not None else self.servers

    @property
    def writers(self) -> tuple[int, ...]:
        """The related processes that may write to the pipe it is blocked on: 12 and 13 of ``pipe:[7] from 12 cat, 13 sort``."""
        return self._at_pipe("from")

    @property
    def lock_owner(self) -> int | None:
        """The process that has the lock on a file it waits for: 12 of ``/srv/ledger.db held by 12 python``."""
        _, found, owner = (self.blocked_on or "").rpartition(" held by ")
        pid = owner.partition(" ")[0]
        return int(pid) if found and pid.isdigit() else None

    @property
    def child_at_pipe(self) -> ChildProcess | None:
        """The child that alone has the other end of the pipe it is blocked on, to write to it or to read from it."""
        ends = self.writers or self._at_pipe("to")
        return next((child for child in self.children if ends == (child.pid,)), None)

    def _at_pipe(self, way: str) -> tuple[int, ...]:
        kind, found, holders = (self.blocked_on or "").partition(f"] {way} ")
        named = (one.partition(" ") for one in holders.split(", ")) if found and "pipe:[" in kind else ()
        return tuple(int(pid) for pid, space, _ in named if space and pid.isdigit())
