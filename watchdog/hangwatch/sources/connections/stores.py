"""Which connections are those of clients to torch's ``TCPStore``: such a client waits for a key, not for the store's process.

May import ``sources.proc`` and the standard library. The store's own thread is called ``pt_tcpstore_uv``, or
``pt_tcpstore`` without libuv (``TCPStoreLibUvBackend.cpp``, ``TCPStoreBackend.cpp``, seen with torch 2.13); it
watches the connections of all clients. Without a thread of such a name no store is recognised.
"""

from __future__ import annotations

from typing import NamedTuple

from hangwatch.sources.proc.blocking import watched_descriptors
from hangwatch.sources.proc.files import list_folder, read_small
from hangwatch.sources.proc.syscalls import ON_EPOLL, ON_POLL, as_int, parse_syscall

_THREAD = b"pt_tcpstore"


class Store(NamedTuple):
    """A store, as one of its clients sees it.

    ``host``: the process that has it; ``clients``: the other processes here that are connected to it; ``unseen``: the
    number of connections from processes that are not visible here.
    """

    address: str
    host: int
    clients: frozenset[int]
    unseen: int


def serves_store(pid: int, descriptor: int) -> bool:
    """True if the descriptor is a connection that the process's store thread watches.

    Without libuv the thread polls an array, which is not read: then every descriptor of a process with such a thread
    counts.
    """
    for thread in list_folder(f"/proc/{pid}/task"):
        folder = f"/proc/{pid}/task/{thread}"
        if not (read_small(f"{folder}/comm", 32) or b"").startswith(_THREAD):
            continue
        call = parse_syscall(read_small(f"{folder}/syscall", 512) or b"")
        if call is None or not call.arguments:
            continue
        if call.name in ON_POLL:
            return True
        if call.name in ON_EPOLL and descriptor in watched_descriptors(pid, as_int(call.arguments[0])):
            return True
    return False
