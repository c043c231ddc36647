"""What a process is blocked on: the file, pipe, socket or path of its main thread's system call.

May import hangwatch.model and the standard library. Nothing here pauses the process: only ``/proc`` is read, and the
process's memory for calls that take a path, and for the time at which a sleep ends.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterable

from hangwatch.sources.proc.files import read_link, read_memory, read_small, read_stat, read_whole
from hangwatch.sources.proc.sockets import TcpSocket, read_descriptors, read_tcp_sockets
from hangwatch.sources.proc.syscalls import (
    AT_FDCWD,
    LOCKING,
    ON_DESCRIPTOR,
    ON_EPOLL,
    ON_PATH,
    ON_POLL,
    READING,
    WRITING,
    SystemCall,
    as_int,
    parse_syscall,
)

#: ``struct timespec`` on 64 bits, and TIMER_ABSTIME (``linux/time.h``).
_TIME, _ABSOLUTE = struct.Struct("=qq"), 1
#: FUTEX_WAIT_BITSET, by which glibc waits with a time-out; its flags FUTEX_PRIVATE and FUTEX_CLOCK_REALTIME (``linux/futex.h``).
_WAIT_UNTIL, _PRIVATE, _REALTIME = 9, 128, 256
#: Which argument of a wait is its time-out.
_TIMED = {"futex": 3, "poll": 2, "epoll_wait": 3, "epoll_pwait": 3}
#: If the end of a sleep is longer ago than this, it is by another clock.
_CLOCKS_APART_S = 5.0
_PATH_LIMIT_BYTES = 4096
_POLLED_LIMIT = 4
_WATCHED_LIMIT_BYTES = 1 << 16
_LOCKS_LIMIT_BYTES = 1 << 20
_HOLDERS_LIMIT = 4


def read_syscall(pid: int, thread: int | None = None) -> SystemCall | None:
    """Return the system call that a thread is in (default: the main thread); None if it runs or may not be seen."""
    data = read_small(f"/proc/{pid}/task/{pid if thread is None else thread}/syscall", 512)
    return None if data is None else parse_syscall(data)


def read_sleep_left(pid: int, call: SystemCall | None) -> float | None:
    """Return for how many more seconds, at most, a thread sleeps; None if it does not sleep.

    ``clock_nanosleep(2)`` with TIMER_ABSTIME gets the address of its end: seconds and nanoseconds of a clock that all
    processes share, except those in a time namespace of their own (time_namespaces(7)). Without it (sleep(1), the C
    library's ``sleep``), that of the length of the whole sleep, so less may be left.
    """
    if call is None or call.name != "clock_nanosleep" or len(call.arguments) < 3:
        return None
    clock, flags, address = call.arguments[:3]
    if flags & _ABSOLUTE:
        return _read_time_left(pid, clock, address) if clock == time.CLOCK_MONOTONIC else None
    return _read_seconds(pid, address)


def read_wait_left(pid: int, call: SystemCall | None) -> float | None:
    """Return for how many more seconds, at most, a thread sleeps or waits with a time-out; None if not known.

    ``futex(2)`` with FUTEX_WAIT_BITSET (a lock, an event, a queue, a future) gets the address of the time at which it
    gives up, or none. ``poll(2)`` and ``epoll_wait(2)`` get the length of the whole wait in milliseconds, so less may
    be left; negative means for ever.
    """
    if call is None or call.name not in _TIMED or len(call.arguments) < 4:
        return read_sleep_left(pid, call)
    timeout = call.arguments[_TIMED[call.name]]
    if call.name != "futex":
        return as_int(timeout) / 1000 if as_int(timeout) > 0 else None
    operation = call.arguments[1]
    if operation & ~(_PRIVATE | _REALTIME) != _WAIT_UNTIL or not timeout:
        return None
    return _read_time_left(pid, time.CLOCK_REALTIME if operation & _REALTIME else time.CLOCK_MONOTONIC, timeout)


def _read_time_left(pid: int, clock: int, address: int) -> float | None:
    """Return the seconds until a time that is stored in a process's memory; None if unreadable."""
    until_s = _read_seconds(pid, address)
    if until_s is None or (left_s := until_s - time.clock_gettime(clock)) <= -_CLOCKS_APART_S:
        return None
    return left_s


def _read_seconds(pid: int, address: int) -> float | None:
    """Return a ``struct timespec`` of a process's memory in seconds; None if unreadable."""
    found = read_memory(pid, address, _TIME.size) or b""
    if len(found) < _TIME.size:
        return None
    seconds, nanoseconds = _TIME.unpack(found)
    return float(seconds + nanoseconds / 1e9)


def find_blocked_on(pid: int, call: SystemCall | None, relatives: Iterable[int] = ()) -> str | None:
    """Return what the call waits for: a path, ``pipe:[INODE]``, ``socket:[INODE]``, a terminal; None for other calls.

    After a pipe come the processes of ``relatives`` that hold its other end (``pipe:[7] from 12 cat``), after a TCP
    socket its remote end (``socket:[7] to 10.0.0.1:29500``), after a locked file the owner of the lock (``/x held by
    12 cat``). A sleeping process waits for an open file on which another process has a write lock, if there is one:
    SQLite and HDF5 sleep and look again.
    """
    if call is None:
        return None
    if call.name in ON_PATH and len(call.arguments) > ON_PATH[call.name]:
        return _path_argument(pid, call)
    if call.name in ON_EPOLL and call.arguments:
        return _describe_watched(pid, as_int(call.arguments[0]), relatives)
    if call.name in ON_DESCRIPTOR and call.arguments:
        on = _describe_descriptor(pid, as_int(call.arguments[0]), relatives)
        owner = find_lock_owner(pid) if on is not None and call.name in LOCKING else None
        return held_by(on, owner) if on is not None and owner is not None else on
    if call.asleep:
        return _describe_locked_file(pid)
    if call.name in ON_POLL and len(call.arguments) > 1:
        descriptors = _polled_descriptors(pid, call.arguments[0], call.arguments[1])
        described = (_describe_descriptor(pid, descriptor, relatives) for descriptor in descriptors)
        return ", ".join(text for text in described if text) or None
    return None


def descriptors_read(pid: int, call: SystemCall | None) -> tuple[int, ...]:
    """Return the descriptors that the call reads from, or waits to read from; none for other calls."""
    if call is None or not call.arguments:
        return ()
    if call.name in READING:
        return (as_int(call.arguments[0]),)
    if call.name in ON_POLL and len(call.arguments) > 1:
        return tuple(_polled_descriptors(pid, call.arguments[0], call.arguments[1]))
    return watched_descriptors(pid, as_int(call.arguments[0])) if call.name in ON_EPOLL else ()


def descriptors_written(call: SystemCall | None) -> tuple[int, ...]:
    """Return the descriptor that the call writes to; none for other calls."""
    writes = call is not None and call.name in WRITING and bool(call.arguments)
    return (as_int(call.arguments[0]),) if call is not None and writes else ()


def watched_descriptors(pid: int, descriptor: int) -> tuple[int, ...]:
    """Return the descriptors that an epoll descriptor watches (``tfd`` lines of its fdinfo, proc_pid_fdinfo(5))."""
    lines = (read_small(f"/proc/{pid}/fdinfo/{descriptor}", _WATCHED_LIMIT_BYTES) or b"").splitlines()
    return tuple(int(line[4:].split()[0]) for line in lines if line.startswith(b"tfd:"))


def _path_argument(pid: int, call: SystemCall) -> str | None:
    """Return the path argument of a call, absolute in the process's file system; None if its memory is unreadable."""
    index = ON_PATH[call.name]
    raw = read_memory(pid, call.arguments[index], _PATH_LIMIT_BYTES)
    if not raw:
        return None
    path = raw.split(b"\0", 1)[0].decode(errors="replace")
    if not path or path.startswith("/") or not path.isprintable():
        return path if path.isprintable() and path else None
    start = AT_FDCWD if index == 0 else as_int(call.arguments[0])
    folder = read_link(f"/proc/{pid}/cwd" if start == AT_FDCWD else f"/proc/{pid}/fd/{start}")
    return path if folder is None else f"{folder}/{path}"


def _polled_descriptors(pid: int, address: int, count: int) -> list[int]:
    """Return the first descriptors of an array of ``struct pollfd`` (8 bytes each: int fd, short events, short revents)."""
    raw = read_memory(pid, address, 8 * min(count, _POLLED_LIMIT)) if 0 < count <= 4096 else None
    return [int.from_bytes((raw or b"")[at : at + 4], "little", signed=True) for at in range(0, len(raw or b""), 8)]


def _describe_watched(pid: int, descriptor: int, relatives: Iterable[int]) -> str | None:
    """Return the first files and connections that an epoll descriptor watches; its own link if it watches only local sockets.

    An event loop watches a socket of its own, by which other threads wake it: that is no connection to anybody.
    """
    watched: list[str] = []
    for number in watched_descriptors(pid, descriptor):
        if len(watched) < _POLLED_LIMIT:
            found = _describe_descriptor(pid, number, relatives)
            if found is not None and not (found.startswith("socket:") and found.endswith("]")):
                watched.append(found)
    return ", ".join(watched) or read_link(f"/proc/{pid}/fd/{descriptor}")


def _describe_descriptor(pid: int, descriptor: int, relatives: Iterable[int]) -> str | None:
    """Return the target of a descriptor, with its other end if that is cheap to find."""
    target = read_link(f"/proc/{pid}/fd/{descriptor}")
    if target is None:
        return None
    if target.startswith("pipe:["):
        return target + _describe_holders(pid, descriptor, target, relatives)
    if target.startswith("socket:[") and target[8:-1].isdigit():
        return target + _describe_peer(pid, int(target[8:-1]))
    return target


def _describe_holders(pid: int, descriptor: int, target: str, relatives: Iterable[int]) -> str:
    """Return which related processes hold the pipe's other end."""
    writing = access_mode(pid, descriptor)
    if writing is None:
        return ""
    holders: list[str] = []
    for other in relatives:
        if other == pid or len(holders) >= _HOLDERS_LIMIT:
            continue
        if any(
            link == target and access_mode(other, number) == (not writing) for number, link in read_descriptors(other)
        ):
            stat = read_stat(other)
            holders.append(f"{other} {stat.name}" if stat else str(other))
    if not holders:
        return ""
    return f" {'to' if writing else 'from'} {', '.join(holders)}"


def held_by(file: str, owner: int) -> str:
    """Return a file and the process that has it, as ``ProcessSample.lock_owner`` reads it: ``/x held by 12 python``."""
    stat = read_stat(owner)
    return f"{file} held by {owner} {stat.name}" if stat is not None else f"{file} held by {owner}"


def find_lock_owner(pid: int) -> int | None:
    """Return the process of this node that has the file lock which a process waits for; None if not known.

    In proc_locks(5) the waiting processes follow under the number of the lock.
    """
    entries = _read_locks()
    number = next((e[0] for e in entries if len(e) > 5 and e[1] == "->" and e[5] == str(pid)), None)
    owner = next((e[4] for e in entries if len(e) > 5 and e[0] == number and e[1] != "->"), "")
    return int(owner) if owner.isdigit() and owner != "0" else None  # of another node or container


def _read_locks() -> list[list[str]]:
    """Return the fields of all file locks (proc_locks(5)): ``1: POSIX ADVISORY WRITE 4242 fd:00:2531452 0 EOF``."""
    return [line.split() for line in (read_whole("/proc/locks", _LOCKS_LIMIT_BYTES) or b"").decode().splitlines()]


def _describe_locked_file(pid: int) -> str | None:
    """Return a file of the process that another process has locked exclusively (proc_locks(5)), and who that is; else None.

    The file itself is never touched: its file system may be the one that hangs.
    """
    locks: dict[tuple[str, str], int] = {}
    for fields in _read_locks():
        if len(fields) < 6 or fields[1] == "->" or fields[3] != "WRITE":
            continue
        if fields[4].isdigit() and fields[4] not in {"0", str(pid)}:
            device, _, inode = fields[5].rpartition(":")
            locks[device, inode] = int(fields[4])
    if not locks:
        return None
    devices = _devices_of_mounts(pid)
    for number, link in read_descriptors(pid):
        fdinfo = dict(line.partition(b":")[::2] for line in _read_fdinfo(pid, number).splitlines())
        device = devices.get(fdinfo.get(b"mnt_id", b"").strip().decode(), "")
        owner = locks.get((device, fdinfo.get(b"ino", b"").strip().decode()))
        if owner is not None and link.startswith("/"):
            return held_by(link, owner)
    return None


def _devices_of_mounts(pid: int) -> dict[str, str]:
    """Return each mount's device number as ``/proc/locks`` writes it (proc_pid_mountinfo(5): ``36 35 253:0 ..``)."""
    found = {}
    for line in (read_whole(f"/proc/{pid}/mountinfo", _LOCKS_LIMIT_BYTES) or b"").decode(errors="replace").splitlines():
        mount, _, device = line.split(" ", 3)[:3]
        major, _, minor = device.partition(":")
        found[mount] = f"{int(major):02x}:{int(minor):02x}"
    return found


def _read_fdinfo(pid: int, descriptor: int) -> bytes:
    return read_small(f"/proc/{pid}/fdinfo/{descriptor}", 512) or b""


def read_flags(pid: int, descriptor: int) -> int | None:
    """Return the flags with which a descriptor was opened (open(2)); None if unreadable."""
    lines = _read_fdinfo(pid, descriptor).splitlines()
    return next((int(line.split()[1], 8) for line in lines if line.startswith(b"flags:")), None)


def access_mode(pid: int, descriptor: int) -> bool | None:
    """True if a descriptor is open for writing, False if only for reading; None if unreadable."""
    flags = read_flags(pid, descriptor)
    return flags & os.O_ACCMODE != os.O_RDONLY if flags is not None else None


def has_locked(pid: int, descriptor: int) -> bool:
    """True if a process has a lock on the file behind a descriptor (``lock:`` of ``/proc/PID/fdinfo``, proc(5))."""
    return b"\nlock:" in _read_fdinfo(pid, descriptor)


def _describe_peer(pid: int, inode: int) -> str:
    """Return the remote end of a TCP socket, or the port it listens on."""
    found: TcpSocket | None = next((entry for entry in read_tcp_sockets(pid) if entry.inode == inode), None)
    if found is None:
        return ""
    if found.listening:
        return f" listening on port {found.local_port}"
    host = f"[{found.remote_address}]" if ":" in found.remote_address else found.remote_address
    return f" to {host}:{found.remote_port}"
