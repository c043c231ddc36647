"""Which connections are those of clients to torch's ``TCPStore``: what such a client awaits is a key, and not its host.

May import ``sources.proc`` and the standard library. The store's own thread is called ``pt_tcpstore_uv``, or ``pt_tcpstore``
without libuv (``TCPStoreLibUvBackend.cpp``, ``TCPStoreBackend.cpp``, seen with torch 2.13); it watches the connections of all
clients. Where it has no such name, nothing is said of the store.
"""

from __future__ import annotations

from typing import NamedTuple

from hangwatch.sources.proc.blocking import watched_descriptors
from hangwatch.sources.proc.files import list_folder, read_small
from hangwatch.sources.proc.syscalls import ON_EPOLL, ON_POLL, as_int, parse_syscall

_THREAD = b"pt_tcpstore"


class Store(NamedTuple):
    """A store, as one of its clients sees it.

    ``host``: the process that has it; ``clients``: the other processes here that are connected to it; ``unseen``: how many of its
    connections are of processes that are not seen here.
    """

    address: str
    host: int
    clients: frozenset[int]
    unseen: int


def serves_store(pid: int, descriptor: int) -> bool:
    """Whether a descriptor of the process is a connection that the thread of its store watches.

    The one without libuv polls an array of all connections, which is not read: a process that has such a thread has it for that.
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
