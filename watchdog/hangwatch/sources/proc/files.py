"""Reading ``/proc``: small files of one process, parsed by hand because they are read every second.

May import the standard library only. Field numbers are those of proc_pid_stat(5), Linux 6.x; everything read here has
been there since 2.6.
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
    """The fields we use of ``/proc/PID/stat``. ``cpu_s`` is user + system of all threads, also of those that ended."""

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
    """The head of a small file; None where it cannot be read for whatever reason (gone, not ours).

    ``flags``: how to open it beside O_RDONLY, for files that others may have put there.
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
    """All of a file of ``/proc`` (which answers a read with a page at most), up to a limit; None where unreadable."""
    try:
        with Path(path).open("rb") as file:
            return file.read(limit_bytes)
    except OSError:
        return None


def read_memory(pid: int, address: int, length: int) -> bytes | None:
    """Bytes of the process's memory, which is not paused; None where they cannot be read.

    A read ends early where a byte 0 in the first page ends what is wanted, as it does a path.
    """
    try:
        with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
            # What is wanted may end just before an unmapped page, and a read across one fails: stop at the page's end first.
            within_page = min(length, 4096 - address % 4096)
            head = os.pread(memory.fileno(), within_page, address)
            if len(head) < length and b"\0" not in head:
                head += os.pread(memory.fileno(), length - len(head), address + len(head))
            return head
    except (OSError, OverflowError):
        return None


def inner_pid(pid: int) -> int:
    """The pid that a process has in its own PID namespace (``NSpid``, Linux 4.1 on); ours of it where that cannot be read."""
    return parse_inner_pid(read_small(f"/proc/{pid}/status", 8192) or b"") or pid


def inner_thread(pid: int, thread: int) -> int:
    """The number of a thread in its own PID namespace; ours of it where that cannot be read."""
    return parse_inner_pid(read_small(f"/proc/{pid}/task/{thread}/status", 8192) or b"") or thread


def parse_inner_pid(data: bytes) -> int | None:
    """The number that a process or thread has in its own PID namespace, by its ``status``; None where that does not tell."""
    numbers = [line.split()[-1] for line in data.splitlines() if line.startswith(b"NSpid:")]
    return int(numbers[0]) if numbers else None


def parse_switches(data: bytes) -> int | None:
    """Voluntary context switches of a thread by its ``status``, of a process's main thread by that of the process; or None.

    The involuntary ones are left out: a thread that spins for its GPU is switched out all the time, and waits still.
    """
    counts = [int(line.split()[1]) for line in data.splitlines() if line.startswith(b"voluntary_ctxt_switches:")]
    return counts[0] if counts else None


def list_folder(folder: str) -> list[str]:
    """Names in a folder of ``/proc``; none where the process is gone."""
    try:
        return os.listdir(folder)  # noqa: PTH208 - names are wanted, and nothing is cheaper
    except OSError:
        return []


def read_link(path: str) -> str | None:
    """Where a link of ``/proc`` points; None where it cannot be read."""
    try:
        return str(Path(path).readlink())
    except OSError:
        return None


def read_arguments(pid: int) -> list[str]:
    """The command line of a process; of one that is gone a single empty word."""
    command = read_whole(f"/proc/{pid}/cmdline", _COMMAND_LIMIT_BYTES) or b""
    return [part.decode(errors="replace") for part in command.rstrip(b"\0").split(b"\0")]


def read_user(pid: int) -> int | None:
    """The user of a process, by its number; None where it is gone."""
    try:
        return Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return None


def shares_namespace(pid: int, kind: str) -> bool:
    """Whether a process is in our own namespace of a kind (``net``, ``pid``, ``mnt``): a container has its own."""
    return read_link(f"/proc/{pid}/ns/{kind}") == read_link(f"/proc/self/ns/{kind}")


def read_stat(pid: int) -> Stat | None:
    """``/proc/PID/stat`` now; None when the process is gone."""
    data = read_small(f"/proc/{pid}/stat", 2048)
    return None if data is None else parse_stat(data)


def is_zombie(stat: Stat) -> bool:
    """Whether the process has ended and is not reaped. Its main thread alone may have ended, and others run."""
    return stat.state in {"Z", "X"} and stat.threads <= 1


def node_name() -> str:
    """What this node is called: ``$HANGWATCH_NODE`` (a pod's host name is not the node's), else the host's name."""
    return os.environ.get("HANGWATCH_NODE") or os.uname().nodename


@lru_cache(maxsize=1)
def node_key() -> str:
    """What tells this node from others of its name: the boot of its machine and its PID namespace; empty where not known."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:  # noqa: PTH123  # no path of the user's
            return f"{file.read(8)} {os.stat('/proc/self/ns/pid').st_ino}"  # noqa: PTH116  # the same
    except OSError:
        return ""


@lru_cache(maxsize=1)
def boot_time_s() -> float:
    """When the machine started, seconds since the epoch, read once so that start times compare equal in one agent."""
    for line in (read_whole("/proc/stat", 1 << 20) or b"").splitlines():
        if line.startswith(b"btime "):
            return float(line.split()[1])
    return 0.0


def start_time_s(stat: Stat) -> float:
    """When the process started, seconds since the epoch (psutil's ``create_time``)."""
    return boot_time_s() + stat.start_ticks / CLOCK_TICKS


def is_same_start(stat: Stat, start_time: float) -> bool:
    """Whether the process is the one that started then, and not another with its pid."""
    return is_start(stat.start_ticks, start_time)


def is_start(start_ticks: int, start_time: float) -> bool:
    """Whether both are one moment: clock ticks since boot, and seconds since the epoch."""
    return is_one_moment(boot_time_s() + start_ticks / CLOCK_TICKS, start_time)


def is_one_moment(one_s: float, other_s: float) -> bool:
    """Whether two start times, seconds since the epoch, are of one process that may have been read by two agents.

    Their ``btime`` may differ by a second but is whole: by the part behind, one that was given the pid so soon is another.
    """
    apart_s = abs(one_s - other_s)
    return apart_s <= START_TIME_TOLERANCE_S and abs(apart_s - round(apart_s)) < 0.5 / CLOCK_TICKS


def view_of(process: int | str) -> str:
    """What of the file system a process sees, as a name to compare: its mounts and its root."""
    return "|".join(read_link(f"/proc/{process}/{name}") or "" for name in ("ns/mnt", "root"))
