"""What the kernel says of a process."""

from __future__ import annotations

import msgspec

from hangwatch.model.stacks import Position

#: What ``MutexWait.owner_in`` says of a thread that waits for the interpreter's lock.
GIL = "GIL"
#: The system calls that only let time pass.
SLEEPS = frozenset({"clock_nanosleep", "nanosleep"})
#: System calls that wait for one of several descriptors.
SELECTS = frozenset({"select", "pselect6"})
POLLS = frozenset({"poll", "ppoll", "epoll_wait", "epoll_pwait", "epoll_pwait2"})


class MutexWait(msgspec.Struct, frozen=True, omit_defaults=True):
    """A thread that waits for a mutex of the C library, and the thread that has it.

    ``thread`` and ``owner``: numbers in the process's own PID namespace, as ``ThreadStack.os_thread_id``. ``name``
    and ``owner_name``: the kernel's names for them (``pt_nccl_watchdg``). ``owner_name`` is empty if the process has
    no such thread: it ended with the mutex, or did not survive a fork. ``owner_in``: the system call that the owner
    is in, ``GIL`` if it waits for the interpreter's lock; empty if it runs.
    """

    thread: int
    owner: int
    name: str = ""
    owner_name: str = ""
    owner_in: str = ""


class ChildProcess(msgspec.Struct, frozen=True, omit_defaults=True):
    """A descendant of a rank (a DataLoader worker, a compiler).

    - ``cpu_s``: CPU time in seconds, without its own descendants. ``io_bytes``, ``switches``: as in
      ``ProcessSample``.
    - ``stack``: text lines of its main thread (deepest first, ``function (file:line): source``). It is read only if
      the rank's own stack shows no wait for other ranks, or if another rank of the node sleeps. ``own_line``: the
      deepest line of the user's program in that stack which is not the parent's, in the same form.
    - ``side_threads`` (the places of its other Python threads, one line each), ``positions`` (how far its main thread
      is in its data) and ``mutexes``: known only together with ``stack``.
    - ``forked``: it has its parent's command line, so it was only forked.
    - ``threads``: the number of all its threads, Python's or not; None if unread.
    - ``sleep_left_s``: as in ``ProcessSample``; in a loop that counts its sleeps, the time of all that are left.
    - ``between_items``: after that sleep comes the next item of a loop that ends with its data.
    - ``exit``: how it ended, if it has and nobody has collected its status yet.
    """

    pid: int
    name: str
    state: str
    cpu_s: float
    wait_channel: str | None = None
    stack: tuple[str, ...] = ()
    own_line: str | None = None
    forked: bool = False
    threads: int | None = None
    side_threads: tuple[str, ...] = ()
    positions: tuple[Position, ...] = ()
    mutexes: tuple[MutexWait, ...] = ()
    sleep_left_s: float | None = None
    between_items: bool = False
    io_bytes: int | None = None
    switches: int | None = None
    exit: ExitStatus | None = None


class CallerProcess(msgspec.Struct, frozen=True, omit_defaults=True):
    """The nearest Python process above a rank that is no launcher: an engine's core, a driver.

    ``cpu_s``: CPU time in seconds. ``stack``: the main thread's lines in its own program, deepest first, in the form
    of a child's.
    """

    pid: int
    name: str
    cpu_s: float = 0.0
    stack: tuple[str, ...] = ()


class ExitStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a process ended, as far as seen: ``code`` and ``signal`` are None if the launcher reaped it unseen."""

    code: int | None = None
    signal: int | None = None
    oom_killed: bool = False
    seen_at_ns: int | None = None


class StoreSample(msgspec.Struct, frozen=True, omit_defaults=True):
    """A torch ``TCPStore`` whose answer a thread awaits, as its clients on this node show it.

    ``address``: ``HOST:PORT``. ``clients``: pids of the other processes here that are connected to it. ``unseen``:
    the number of connections from processes that are not visible here.
    """

    address: str
    clients: tuple[int, ...] = ()
    unseen: int = 0


class ThreadSample(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the kernel says of one of a process's other threads: the fields of ``ProcessSample``, of this thread alone.

    ``os_thread_id``: in the process's own PID namespace, as in ``ThreadStack``.
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
    """One of torch's NCCL watchdog threads while it is asleep.

    ``thread``: its number in the process's own PID namespace. ``switches``: its voluntary context switches. It looks
    at the device ten times a second, so they grow as long as its calls return.
    """

    thread: int
    switches: int


class ProcessSample(msgspec.Struct, frozen=True, omit_defaults=True):
    """One process at one instant (``at_ns``: wall clock).

    - ``state``: the letter of ``/proc/PID/stat`` (R, S, D, T, t, Z) or ``gone``. ``frozen``: its cgroup is frozen.
    - ``cpu_s``: user and system time of all its threads. ``io_bytes``: what it moved through calls and to storage
      (``/proc/PID/io``); None if unreadable. ``switches``: the main thread's voluntary context switches.
    - ``wait_channel``: the main thread's kernel wait channel. ``syscall``: the name of its system call, if visible.
      ``blocked_on``: the path (or ``pipe:[..]``, ``socket:[..]``) of the descriptor that a blocking read or write is
      on.
    - ``supervised``: it has ended, and a living process may restart it.
    - ``threads``: its other Python threads, if seen.
    - ``caller``: the process that started it; only for a rank that awaits a command.
    - ``server``: the pid of the one process at the other end of the connection or pipe that the main thread reads or
      writes. None if there is none, if there are several (``servers``), or if it is a child that is no server.
    - ``store``: set if that connection leads to a store.
    - ``elsewhere``: ``HOST:PORT`` of the other end, if not on this node; ``own_end``: of this end.
    - ``answering``: the number of the process at the other end, if on another node of the job; then ``elsewhere`` is
      empty.
    - ``runs_in``: the names of the mapped files (libraries) in which the main thread was found running since the
      previous sample, the most frequent first, an empty name for code of no file; only if it may spin for its device.
    - ``mutexes``: which of its threads, Python's or not, wait for a mutex of the C library.
    - ``watchdogs``: torch's NCCL watchdogs that were asleep.
    - ``sleep_left_s``: how long the main thread will still sleep, if it named the time at which to wake
      (``time.sleep`` of Python 3.11 and later), or wait for another thread with a time-out.
    - ``tasks``: the unfinished Ray tasks that it called, with Ray's word for their state; only in ``ray.get`` or
      ``ray.wait``, when ``servers`` are the processes of this node that run them.
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
        """True if there is no such process any more, except perhaps its exit status."""
        return self.state in {"gone", "Z", "X"}

    @property
    def other_ends(self) -> tuple[int, ...]:
        """The pids of this node at the other end of what it reads or writes; if several, any may be the awaited one."""
        return (self.server,) if self.server is not None else self.servers

    @property
    def writers(self) -> tuple[int, ...]:
        """The pids that may write to the pipe it is blocked on: 12 and 13 of ``pipe:[7] from 12 cat, 13 sort``."""
        return self._at_pipe("from")

    @property
    def lock_owner(self) -> int | None:
        """The pid that holds the awaited lock, 12 of ``/srv/ledger.db held by 12 python``; None if there is none."""
        _, found, owner = (self.blocked_on or "").rpartition(" held by ")
        pid = owner.partition(" ")[0]
        return int(pid) if found and pid.isdigit() else None

    @property
    def child_at_pipe(self) -> ChildProcess | None:
        """The child that alone has the other end of the pipe it is blocked on; None if there is none."""
        ends = self.writers or self._at_pipe("to")
        return next((child for child in self.children if ends == (child.pid,)), None)

    def _at_pipe(self, way: str) -> tuple[int, ...]:
        kind, found, holders = (self.blocked_on or "").partition(f"] {way} ")
        named = (one.partition(" ") for one in holders.split(", ")) if found and "pipe:[" in kind else ()
        return tuple(int(pid) for pid, space, _ in named if space and pid.isdigit())
