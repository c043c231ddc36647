"""Files as another process sees them. May import its siblings and the standard library.

The agent may be root, and a process may name any file: only what the user of the process may read is opened, by the modes of
the file and of the folders on the way (``path_resolution(7)``; ACLs are left out). Links are followed below the root of the
process: otherwise those of a container would lead to files of the node.
"""

from __future__ import annotations

import errno
import functools
import os
import stat
from collections.abc import Callable, Iterable

from hangwatch.sources.proc.files import is_zombie, read_link, read_small, read_stat, shares_namespace

#: As many as Linux follows.
_LINKS = 40
_READ, _SEARCH = 4, 1
#: Users of processes with their groups, by pid: the last ones that were noted.
_users: dict[int, tuple[int, frozenset[int]]] = {}
_USERS_KEPT = 16384
_NOBODY = (-1, frozenset[int]())


def open_seen(pid: int, file: str) -> int:
    """Return a descriptor of a regular file, to read from; ``file``: as process ``pid`` names it. Raises OSError, ValueError."""
    if not file.startswith("/"):
        file = f"{read_link(f'/proc/{pid}/cwd') or ''}/{file}"
    found = _walk(_root_of(pid), file, _reader(pid))
    try:
        if not stat.S_ISREG(os.fstat(found).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        # Opened only now: to open a device may have an effect.
        return os.open(f"/proc/self/fd/{found}", os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY)
    finally:
        os.close(found)


def _root_of(pid: int) -> str:
    """Return where the root of a process is. One that has ended shows its view no more, also while it is not reaped."""
    alike = read_link(f"/proc/{pid}/root") == read_link("/proc/self/root") and shares_namespace(pid, "mnt")
    status = read_stat(pid)
    return "/" if alike or status is None or is_zombie(status) else f"/proc/{pid}/root"


def note_user(pid: int) -> int | None:
    """Return the effective user of a process, and remember whose it is for when it has ended; None if it has."""
    data = read_small(f"/proc/{pid}/status")
    if data is None:
        return None
    fields = dict(line.split(b":", 1) for line in data.splitlines() if b":" in line)
    # Real, effective, saved, and what counts for files (proc_pid_status(5)).
    (_, user, _, files), (_, _, _, group) = (map(int, fields[name].split()) for name in (b"Uid", b"Gid"))
    _users.pop(pid, None)
    _users[pid] = files, frozenset((group, *map(int, fields.get(b"Groups", b"").split())))
    while len(_users) > _USERS_KEPT:
        del _users[next(iter(_users))]
    return user


@functools.cache
def _is_privileged() -> bool:
    """Return whether this process may read any file: CAP_DAC_OVERRIDE or CAP_DAC_READ_SEARCH (capabilities(7))."""
    data = read_small("/proc/self/status") or b""
    return any(line.startswith(b"CapEff:") and int(line.split()[1], 16) & 0b110 for line in data.splitlines())


def _reader(pid: int) -> Callable[[os.stat_result], bool]:
    """Return whether the user of a process may read a file, or search a folder; nobody in particular if he is not known."""
    note_user(pid)
    user, groups = _users.get(pid, _NOBODY)
    if user in {0, os.geteuid()} or not _is_privileged():
        return lambda _: True  # the kernel says it

    def may(found: os.stat_result) -> bool:
        bits = _SEARCH if stat.S_ISDIR(found.st_mode) else _READ
        shift = 6 if found.st_uid == user else 3 if found.st_gid in groups else 0
        return bool(found.st_mode >> shift & bits)

    return may


def _walk(root: str, file: str, may: Callable[[os.stat_result], bool]) -> int:
    """Return a descriptor (``O_PATH``) of what a path below ``root`` leads to. Raises OSError, ValueError."""
    way, left, links = [os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)], file.split("/")[::-1], 0
    try:
        while left:
            name = left.pop()
            if name == "..":
                if len(way) > 1:
                    os.close(way.pop())
            elif name not in {"", "."}:
                way.append(os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=way[-1]))
                found = os.fstat(way[-1])
                if stat.S_ISLNK(found.st_mode):
                    links += 1
                    target = os.readlink("", dir_fd=way[-1])
                    start = 1 if target.startswith("/") else len(way) - 1
                    _close(way[start:])
                    del way[start:]
                    left += target.split("/")[::-1]
                elif not may(found):
                    raise PermissionError(errno.EACCES, "not for the user of the process")
                if links > _LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        return way.pop()
    finally:
        _close(way)


def _close(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
