"""Reads small files of ``/proc``, parsed by hand because they are read every second.

May import the standard library only. Field numbers are those of proc_pid_stat(5), Linux 6.x; everything read here has
existed since 2.6.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
#: ``btime`` of /proc/stat is rounded to seconds and moves by one when the clock is disciplined.
START_TIME_TOLERANCE_S = 1.05
#: The most that Linux hands to a program as one argument (``MAX_ARG_STRLEN``, execve(2)).
_COMMAND_LIMIT_BYTES = 1 << 17


class Stat(NamedTuple):
    """The fields we use of ``/proc/PID/stat``. ``cpu_s``: user and system time of all threads, including ended ones."""

    pid: int
    name: str
    state: str
    parent: int
    cpu_s: float
    threads: int
    start_ticks: int
    wait_status: int


def parse_stat(data: bytes) -> Stat | None:
    """Parse ``/proc/PID/stat``; None for anything else. The name may hold blanks and parentheses."""
    try:
        head, tail = data.rsplit(b")", 1)
        pid, name = head.split(b"(", 1)
        fields = tail.split()
        return Stat(
            pid=int(pid),
            name=name.decode(errors="replace"),
            state=fields[0].decode(),
            parent=int(fields[1]),
            cpu_s=(int(fields[11]) + int(fields[12])) / CLOCK_TICKS,
            threads=int(fields[17]),
            start_ticks=int(fields[19]),
            wait_status=int(fields[49]) if len(fields) > 49 else 0,
        )
    except (ValueError, IndexError):
        return None


def read_small(path: str, limit_bytes: int = 65536, flags: int = 0) -> bytes | None:
    """Return the head of a small file; None if it cannot be read for whatever reason (gone, not ours).

    ``flags``: how to open it besides O_RDONLY, for files that others may have put there.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
    except OSError:
        return None
    try:
        return os.read(descriptor, limit_bytes)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def read_whole(path: str, limit_bytes: int) -> bytes | None:
    """Return a whole file of ``/proc`` (one read returns at most a page), up to a limit; None if unreadable."""
    try:
        with Path(path).open("rb") as file:
            return file.read(limit_bytes)
    except OSError:
        return None


def read_memory(pid: int, address: int, length: int) -> bytes | None:
    """Return bytes of the process's memory, fewer before a page that is not mapped; None if unreadable. No pause."""
    try:
        with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
            return os.pread(memory.fileno(), length, address)
    except (OSError, OverflowError):
        return None


def inner_pid(pid: int) -> int:
    """Return the pid that a process has in its own PID namespace (``NSpid``, Linux 4.1 on); ``pid`` if unreadable."""
    return parse_inner_pid(read_small(f"/proc/{pid}/status", 8192) or b"") or pid


def inner_thread(pid: int, thread: int) -> int:
    """Return the id that a thread has in its own PID namespace; ``thread`` if unreadable."""
    return parse_inner_pid(read_small(f"/proc/{pid}/task/{thread}/status", 8192) or b"") or thread


def parse_inner_pid(data: bytes) -> int | None:
    """Return the id of a process or thread in its own PID namespace, from its ``status``; None if it has no ``NSpid``."""
    numbers = [line.split()[-1] for line in data.splitlines() if line.startswith(b"NSpid:")]
    return int(numbers[0]) if numbers else None


def parse_switches(data: bytes) -> int | None:
    """Return the voluntary context switches of a thread, from its ``status`` (a process's: of its main thread); or None.

    Involuntary ones do not count: a thread that spins for its GPU is switched out all the time and still waits.
    """
    counts = [int(line.split()[1]) for line in data.splitlines() if line.startswith(b"voluntary_ctxt_switches:")]
    return counts[0] if counts else None


def list_folder(folder: str) -> list[str]:
    """Return the names in a folder of ``/proc``; none if the process is gone."""
    try:
        return os.listdir(folder)  # noqa: PTH208 - names are wanted, and nothing is cheaper
    except OSError:
        return []


def list_processes() -> list[int]:
    """Return the pids of this node, in no order that one may rely on."""
    return [int(name) for name in list_folder("/proc") if name.isdigit()]


def read_link(path: str) -> str | None:
    """Return the target of a link of ``/proc``; None if unreadable."""
    try:
        return str(Path(path).readlink())
    except OSError:
        return None


def read_arguments(pid: int) -> list[str]:
    """Return the command line of a process; a single empty word if the process is gone."""
    command = read_whole(f"/proc/{pid}/cmdline", _COMMAND_LIMIT_BYTES) or b""
    return [part.decode(errors="replace") for part in command.rstrip(b"\0").split(b"\0")]


def read_user(pid: int) -> int | None:
    """Return the user id of a process; None if it is gone."""
    try:
        return os.stat(f"/proc/{pid}").st_uid  # noqa: PTH116  # of every process that starts, for many each second
    except OSError:
        return None


def shares_namespace(pid: int, kind: str) -> bool:
    """True if a process is in our own namespace of a kind (``net``, ``pid``, ``mnt``); a container has its own."""
    return read_link(f"/proc/{pid}/ns/{kind}") == read_link(f"/proc/self/ns/{kind}")


def read_stat(pid: int) -> Stat | None:
    """Return ``/proc/PID/stat`` as of now; None if the process is gone."""
    data = read_small(f"/proc/{pid}/stat", 2048)
    return None if data is None else parse_stat(data)


def is_zombie(stat: Stat) -> bool:
    """True if the process has ended and is not reaped. False if only its main thread has ended and others run."""
    return stat.state in {"Z", "X"} and stat.threads <= 1


def node_name() -> str:
    """Return this node's name: ``$HANGWATCH_NODE`` (a pod's host name is not the node's), else the host's name."""
    return os.environ.get("HANGWATCH_NODE") or os.uname().nodename


@lru_cache(maxsize=1)
def node_key() -> str:
    """Return what tells this node from others of its name: its machine's boot and PID namespace; empty if not known."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:  # noqa: PTH123  # no path of the user's
            return f"{file.read(8)} {os.stat('/proc/self/ns/pid').st_ino}"  # noqa: PTH116  # the same
    except OSError:
        return ""


@lru_cache(maxsize=1)
def boot_time_s() -> float:
    """Return when the machine started, seconds since the epoch.

    It is read once, so that all start times that one agent computes compare equal.
    """
    for line in (read_whole("/proc/stat", 1 << 20) or b"").splitlines():
        if line.startswith(b"btime "):
            return float(line.split()[1])
    return 0.0


def start_time_s(stat: Stat) -> float:
    """Return when the process started, seconds since the epoch (psutil's ``create_time``)."""
    return boot_time_s() + stat.start_ticks / CLOCK_TICKS


def is_same_start(stat: Stat, start_time: float) -> bool:
    """True if the process started at ``start_time``; False for a later process with its pid."""
    return is_start(stat.start_ticks, start_time)


def is_start(start_ticks: int, start_time: float) -> bool:
    """True if clock ticks since boot and seconds since the epoch mean the same moment."""
    return is_one_moment(boot_time_s() + start_ticks / CLOCK_TICKS, start_time)


def is_one_moment(one_s: float, other_s: float) -> bool:
    """True if two start times, seconds since the epoch, can be of one process, read by two agents.

    The agents' ``btime`` may differ by a whole second, so the fractions must agree: they tell the process from
    another that got its pid soon after.
    """
    apart_s = abs(one_s - other_s)
    return apart_s <= START_TIME_TOLERANCE_S and abs(apart_s - round(apart_s)) < 0.5 / CLOCK_TICKS


def view_of(process: int | str) -> str:
    """Return which file system a process sees, as a name to compare: its mounts and its root."""
    return "|".join(read_link(f"/proc/{process}/{name}") or "" for name in ("ns/mnt", "root"))
