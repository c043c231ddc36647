"""Which processes share the semaphore that a thread waits for: a lock, a bounded queue, a condition of multiprocessing.

May import ``sources.proc`` and the standard library. POSIX semaphores that have a name are files in ``/dev/shm``, and every
process that uses one maps its file. ``sem_open`` of glibc makes the file under another name first, which the map of the process
that made it shows. multiprocessing removes the name at once (CPython 3.10 to 3.14). A semaphore counts and has no owner, so
nothing tells who has it.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import PurePosixPath

from hangwatch.sources.proc.files import list_processes, read_link
from hangwatch.sources.proc.maps import read_maps
from hangwatch.sources.proc.syscalls import SystemCall

_SHARED_MEMORY = b"/dev/shm/"
#: ``FUTEX_PRIVATE_FLAG`` of ``linux/futex.h``: a futex within one process, as those of Python's own locks are.
_PRIVATE = 128
#: A node with more Python processes than this is not searched.
_MOST_PROGRAMS = 128


def on_shared_futex(call: SystemCall) -> bool:
    """True if a thread waits on a futex that other processes may release."""
    return call.name == "futex" and len(call.arguments) > 1 and not call.arguments[1] & _PRIVATE


def find_semaphore(pid: int, call: SystemCall | None) -> str | None:
    """Return a key of the shared semaphore that a thread of the process waits for; None if it waits for none."""
    if call is None or not on_shared_futex(call):
        return None
    return next((one.file for one in read_maps(pid, _SHARED_MEMORY) if call.arguments[0] in one), None)


def find_sharing(semaphores: Collection[str]) -> dict[str, set[int]]:
    """Return the Python processes that map each of these semaphores."""
    found: dict[str, set[int]] = {name: set() for name in semaphores}
    programs = [pid for pid in list_processes() if _runs_python(pid)] if found else []
    for pid in programs if len(programs) <= _MOST_PROGRAMS else ():
        for one in read_maps(pid, _SHARED_MEMORY):
            if one.file in found:
                found[one.file].add(pid)
    return found


def _runs_python(pid: int) -> bool:
    return PurePosixPath(read_link(f"/proc/{pid}/exe") or "").name.startswith("python")
