"""Which threads of a process wait for a mutex of the C library, and which thread has it.

May import hangwatch.model, ``sources.proc`` and the standard library. The process is not touched: ``/proc`` shows the
address of the futex that a thread sleeps on, and glibc writes the owner into the mutex
(``sysdeps/nptl/bits/struct_mutex.h`` and its x86 form, read in 2.36; the layout is a part of its ABI). Python's own
locks are no such mutexes: they have no owner.
"""

from __future__ import annotations

import struct
from pathlib import PurePosixPath

from hangwatch.model.processes import GIL, MutexWait
from hangwatch.sources.proc.blocking import read_syscall
from hangwatch.sources.proc.files import (
    inner_thread,
    list_folder,
    parse_stat,
    read_memory,
    read_small,
)
from hangwatch.sources.proc.maps import read_maps
from hangwatch.sources.proc.syscalls import SystemCall

#: ``FUTEX_WAIT`` with ``FUTEX_PRIVATE_FLAG`` (``linux/futex.h``): how ``__lll_lock_wait`` of glibc waits, without a time limit.
#: Waits of conditions and semaphores are other operations.
_WAIT_PRIVATE = 128
#: What the word of a mutex is while others wait for it (``lowlevellock.h``).
_CONTENDED = 2
#: ``__lock``, ``__count``, ``__owner``, ``__nusers``, ``__kind``: the same on x86-64 and aarch64.
_MUTEX = struct.Struct("<iIiIi")
#: Kinds that a thread waits for in this way: normal, recursive, error-checking, adaptive, with or without bits of lock elision.
_KINDS = 0x3 | 0x300
#: A process with more threads is not searched: an owner among the unread ones would look as if it had ended.
_MOST_THREADS = 1024
_INTERPRETER = ("python", "libpython")


def find_mutex_waits(pid: int) -> tuple[MutexWait, ...]:
    """Return all current waits; none if they are not visible, or for another C library.

    Takes about 15 us per thread.
    """
    threads = [int(name) for name in list_folder(f"/proc/{pid}/task")]
    if len(threads) > _MOST_THREADS:
        return ()
    calls = {thread: read_syscall(pid, thread) for thread in threads}
    found = {thread: owner for thread, call in calls.items() if (owner := _read_owner(pid, call)) is not None}
    if not found:
        return ()
    inner = {thread: inner_thread(pid, thread) for thread in threads}
    outer = {number: thread for thread, number in inner.items()}
    owners = {owner: outer[owner] for owner in found.values() if owner in outer}
    described = {owner: (_thread_name(pid, t), _describe_call(pid, calls[t])) for owner, t in owners.items()}
    return tuple(
        MutexWait(inner[thread], owner, _thread_name(pid, thread), *described.get(owner, ("", "")))
        for thread, owner in found.items()
    )


def parse_owner(data: bytes) -> int | None:
    """Return the thread that owns the mutex in these bytes; None if they are no mutex that somebody waits for."""
    if len(data) < _MUTEX.size:
        return None
    lock, _, owner, users, kind = _MUTEX.unpack_from(data)
    held = lock == _CONTENDED and owner > 0 and users > 0
    return owner if held and kind & ~_KINDS == 0 else None


def _read_owner(pid: int, call: SystemCall | None) -> int | None:
    if call is None or call.name != "futex" or len(call.arguments) < 4:
        return None
    address, operation, value, limit = call.arguments[:4]
    if operation != _WAIT_PRIVATE or value != _CONTENDED or limit != 0:
        return None
    return parse_owner(read_memory(pid, address, _MUTEX.size) or b"")


def _describe_call(pid: int, call: SystemCall | None) -> str:
    """Return what the owner is in, for ``MutexWait.owner_in``."""
    if call is None:
        return ""
    return GIL if _awaits_interpreter(pid, call) else call.name


def _thread_name(pid: int, thread: int) -> str:
    stat = parse_stat(read_small(f"/proc/{pid}/task/{thread}/stat", 2048) or b"")
    return stat.name if stat is not None else ""


def _awaits_interpreter(pid: int, call: SystemCall) -> bool:
    """True if a futex belongs to the interpreter itself: it is among its library's variables (``_PyRuntime``).

    Seen so on CPython 3.8 to 3.13. Other locks are on the heap or on a stack. Uninitialised variables are in
    anonymous memory right behind the library's.
    """
    if call.name != "futex" or not call.arguments:
        return False
    path, end = "", 0
    for one in read_maps(pid):
        path = one.path or (path if one.start == end else "")
        if call.arguments[0] in one:
            return PurePosixPath(path).name.startswith(_INTERPRETER)
        end = one.end
    return False
