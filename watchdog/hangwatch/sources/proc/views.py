"""Files as another process sees them. May import its siblings and the standard library.

The agent may be root, and a process may name any file: only what the user of the process may read is opened, by the modes of the
file and of the folders on the way (``path_resolution(7)``; ACLs are left out). Links are followed below the root of the process:
those of a container would else lead to the files of the node.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable

from hangwatch.sources.proc.files import is_zombie, read_link, read_small, read_stat, shares_namespace

#: As many as Linux follows.
_LINKS = 40
_READ, _SEARCH = 4, 1


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


def _reader(pid: int) -> Callable[[os.stat_result], bool]:
    """Return whether the user of a process may read a file, or search a folder; nobody in particular if it is gone."""
    fields = dict(
        line.split(b":", 1) for line in (read_small(f"/proc/{pid}/status") or b"").splitlines() if b":" in line
    )
    # The last of four is what counts for files (proc_pid_status(5)).
    user, group = (int((fields.get(name) or b"-1").split()[-1]) for name in (b"Uid", b"Gid"))
    if user in {0, os.geteuid()}:
        return lambda _: True  # the kernel says it
    groups = {group, *map(int, fields.get(b"Groups", b"").split())}

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
