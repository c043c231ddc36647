"""System calls in which a rank may block: their names by number, and what their arguments point at.

May import the standard library only. Numbers are those of Linux 6.x: ``asm/unistd_64.h`` (x86-64) and
``asm-generic/unistd.h`` (aarch64).
"""

from __future__ import annotations

import platform
from typing import NamedTuple

_X86_64 = {
    0: "read", 1: "write", 2: "open", 3: "close", 4: "stat", 5: "fstat", 6: "lstat", 7: "poll", 8: "lseek", 9: "mmap",
    11: "munmap", 16: "ioctl", 17: "pread64", 18: "pwrite64", 19: "readv", 20: "writev", 21: "access", 23: "select",
    24: "sched_yield", 26: "msync", 28: "madvise", 34: "pause", 35: "nanosleep", 40: "sendfile", 42: "connect",
    43: "accept", 44: "sendto", 45: "recvfrom", 46: "sendmsg", 47: "recvmsg", 59: "execve", 60: "exit", 61: "wait4",
    65: "semop", 70: "msgrcv", 72: "fcntl", 73: "flock", 74: "fsync", 75: "fdatasync", 76: "truncate", 77: "ftruncate",
    80: "chdir", 82: "rename", 83: "mkdir", 87: "unlink", 89: "readlink", 128: "rt_sigtimedwait",
    130: "rt_sigsuspend", 137: "statfs", 138: "fstatfs", 162: "sync", 165: "mount", 166: "umount2", 202: "futex",
    208: "io_getevents", 217: "getdents64", 219: "restart_syscall", 220: "semtimedop", 230: "clock_nanosleep",
    231: "exit_group", 232: "epoll_wait", 243: "mq_timedreceive", 247: "waitid", 257: "openat", 258: "mkdirat",
    262: "newfstatat", 263: "unlinkat", 264: "renameat", 267: "readlinkat", 269: "faccessat", 270: "pselect6",
    271: "ppoll", 275: "splice", 276: "tee", 277: "sync_file_range", 278: "vmsplice", 281: "epoll_pwait",
    285: "fallocate", 288: "accept4", 295: "preadv", 296: "pwritev", 299: "recvmmsg", 306: "syncfs", 316: "renameat2",
    326: "copy_file_range", 332: "statx", 426: "io_uring_enter", 437: "openat2", 439: "faccessat2",
    441: "epoll_pwait2", 449: "futex_waitv",
}  # fmt: skip

_AARCH64 = {
    4: "io_getevents", 22: "epoll_pwait", 25: "fcntl", 29: "ioctl", 32: "flock", 34: "mkdirat", 35: "unlinkat",
    38: "renameat", 39: "umount2", 40: "mount", 43: "statfs", 44: "fstatfs", 45: "truncate", 46: "ftruncate",
    47: "fallocate", 48: "faccessat", 49: "chdir", 56: "openat", 57: "close", 61: "getdents64", 62: "lseek",
    63: "read", 64: "write", 65: "readv", 66: "writev", 67: "pread64", 68: "pwrite64", 69: "preadv", 70: "pwritev",
    71: "sendfile", 72: "pselect6", 73: "ppoll", 75: "vmsplice", 76: "splice", 77: "tee", 78: "readlinkat",
    79: "newfstatat", 80: "fstat", 81: "sync", 82: "fsync", 83: "fdatasync", 84: "sync_file_range", 93: "exit",
    94: "exit_group", 95: "waitid", 98: "futex", 101: "nanosleep", 115: "clock_nanosleep", 124: "sched_yield",
    128: "restart_syscall", 133: "rt_sigsuspend", 137: "rt_sigtimedwait", 183: "mq_timedreceive", 188: "msgrcv",
    192: "semtimedop", 193: "semop", 202: "accept", 203: "connect", 206: "sendto", 207: "recvfrom", 211: "sendmsg",
    212: "recvmsg", 215: "munmap", 221: "execve", 222: "mmap", 227: "msync", 233: "madvise", 242: "accept4",
    243: "recvmmsg", 260: "wait4", 267: "syncfs", 276: "renameat2", 285: "copy_file_range", 291: "statx",
    426: "io_uring_enter", 437: "openat2", 439: "faccessat2", 441: "epoll_pwait2", 449: "futex_waitv",
}  # fmt: skip

_NAMES = {"x86_64": _X86_64, "aarch64": _AARCH64}

#: The first argument is the descriptor that is read, written, synchronised, locked or listened on.
ON_DESCRIPTOR = frozenset(
    {
        "read", "write", "readv", "writev", "pread64", "pwrite64", "preadv", "pwritev", "fsync", "fdatasync", "flock",
        "fcntl", "ioctl", "getdents64", "recvfrom", "recvmsg", "recvmmsg", "sendto", "sendmsg", "accept", "accept4",
        "connect", "close", "fstat", "fstatfs", "ftruncate", "fallocate", "lseek", "sync_file_range", "syncfs",
        "splice", "copy_file_range", "tee", "vmsplice", "sendfile",
    }
)  # fmt: skip
#: Those that wait until the other end has sent something.
READING = frozenset({"read", "readv", "recvfrom", "recvmsg", "recvmmsg"})
#: Those that wait until the other end has made room.
WRITING = frozenset({"write", "writev", "sendto", "sendmsg"})
#: Those that wait for a lock on the file.
LOCKING = frozenset({"flock", "fcntl"})
#: The first argument is a descriptor that watches others.
ON_EPOLL = frozenset({"epoll_wait", "epoll_pwait", "epoll_pwait2"})
#: The first argument is an array of descriptors to be polled, the second its length.
ON_POLL = frozenset({"poll", "ppoll"})
#: Which argument is a path.
ON_PATH = {
    "open": 0, "stat": 0, "lstat": 0, "access": 0, "unlink": 0, "mkdir": 0, "rename": 0, "statfs": 0, "truncate": 0,
    "readlink": 0, "chdir": 0, "execve": 0, "umount2": 0, "openat": 1, "openat2": 1, "newfstatat": 1, "statx": 1,
    "faccessat": 1, "faccessat2": 1, "readlinkat": 1, "mkdirat": 1, "unlinkat": 1, "renameat": 1, "renameat2": 1,
}  # fmt: skip
AT_FDCWD = -100


class SystemCall(NamedTuple):
    """The call a thread is in: its name (``#NUMBER`` for one not in the table) and its six arguments as unsigned."""

    name: str
    arguments: tuple[int, ...]

    @property
    def asleep(self) -> bool:
        """True if the call only lets time pass; before Python 3.11 ``time.sleep`` is a select without descriptors."""
        on_nothing = self.name in {"select", "pselect6"} and self.arguments[:1] == (0,)
        return on_nothing or self.name in {"nanosleep", "clock_nanosleep"}


def parse_syscall(data: bytes, machine: str = platform.machine()) -> SystemCall | None:
    """Parse ``/proc/PID/syscall`` (proc_pid_syscall(5)); None for a thread that runs or is not in a system call."""
    fields = data.split()
    try:
        number = int(fields[0])
        arguments = tuple(int(field, 16) for field in fields[1:7])
    except (ValueError, IndexError):
        return None
    if number < 0:
        return None
    return SystemCall(_NAMES.get(machine, {}).get(number, f"#{number}"), arguments)


def as_int(argument: int) -> int:
    """Return an argument as a C ``int``: a descriptor, or a time in milliseconds."""
    low = argument & 0xFFFFFFFF
    return low - (1 << 32) if low >= 1 << 31 else low
