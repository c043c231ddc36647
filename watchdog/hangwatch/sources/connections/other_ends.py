"""Which processes have the other end of what threads are blocked on: sockets, pipes, semaphores, file locks.

May import ``sources.proc`` and the standard library. No process is touched. A TCP connection within a node is in the
tables of its network namespaces twice, with its ends swapped. The kernel's ``sock_diag`` names the peer of a UNIX
socket (sock_diag(7), Linux 3.3 on). A reader of a pipe waits for those who have it open for writing, a writer for
those who have it open for reading. Forked processes inherit descriptors: if several have an end, any of them may be
the awaited one.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from hangwatch.sources.connections.stores import Store, serves_store
from hangwatch.sources.connections.unix_sockets import read_bound_sockets, read_unix_peers
from hangwatch.sources.proc.blocking import (
    access_mode,
    descriptors_read,
    descriptors_written,
    find_lock_owner,
    read_syscall,
)
from hangwatch.sources.proc.files import list_folder, list_processes, read_link, read_small, read_stat
from hangwatch.sources.proc.semaphores import find_semaphore, find_sharing
from hangwatch.sources.proc.sockets import TcpSocket, read_descriptors, read_tcp_sockets
from hangwatch.sources.proc.syscalls import LOCKING, SystemCall

#: A node with more processes than this is not searched: whose end it is remains unknown.
_MOST_PROCESSES = 1 << 14
#: Pid and thread, the main one by its pid.
Thread = tuple[int, int]
#: Names of libraries' threads that read for others: libzmq (4.2 on), gRPC's event engine (seen with grpcio 1.85).
_READERS = (b"ZMQbg/IO", b"event_engine")
#: A TCP connection as seen by one side: its own end and the other end, each as ``HOST:PORT``.
Connection = tuple[str, str]


class Ends(NamedTuple):
    """Who is at the other end of what one thread is blocked on.

    ``holders``: the other processes that have the other end; ``accepted``: those of them that accepted the
    connection, as servers do. ``store``: set if the thread is a client of a ``TCPStore``: then it waits until
    somebody sets a key. ``elsewhere``: ``HOST:PORT`` of a TCP connection whose other end is not on this node;
    ``own_end``: this side's address.
    """

    holders: frozenset[int] = frozenset()
    accepted: frozenset[int] = frozenset()
    store: Store | None = None
    elsewhere: str = ""
    own_end: str = ""


class _End(NamedTuple):
    """The other end of a connection: the link of its descriptors, and whether they are open for writing (pipes only)."""

    link: str
    writes: bool = False


class _Wanted(NamedTuple):
    """One end to be searched on behalf of a thread.

    Of TCP connections only: ``address`` is where the other end listens, ``own_end`` this side's address, ``clients``
    the inodes of all sockets connected there.
    """

    end: _End
    accepted: bool = False
    address: str = ""
    clients: tuple[int, ...] = ()
    own_end: str = ""


def find_ends(calls: Mapping[Thread, SystemCall | None]) -> dict[Thread, Ends]:
    """Return, by thread, who has the other end of what its system call reads, writes or locks.

    Threads are left out if their call concerns no connection, or if nobody has its other end.
    """
    semaphores = {
        thread: name for thread, call in calls.items() if (name := find_semaphore(thread[0], call)) is not None
    }
    sharing = find_sharing(set(semaphores.values()))
    search = _Search()
    wanted = {thread: found for thread, call in calls.items() if (found := search.wanted_of(thread, call))}
    links = {one.end for found in wanted.values() for one in found if one.end.link}
    clients = {inode for found in wanted.values() for one in found for inode in one.clients}
    holders = _find_holders({*links, *(_End(f"socket:[{inode}]") for inode in clients)}) if links else {}
    ends = {thread: _join(thread[0], found, holders) for thread, found in wanted.items()}
    # The pods of a node have separate networks.
    afar = {thread: (one.own_end, one.elsewhere) for thread, one in ends.items() if one.own_end}
    beside = find_connected(set(afar.values())) if afar else {}
    ends |= {thread: Ends(beside[there]) for thread, there in afar.items() if beside.get(there)}
    ends |= {thread: Ends(frozenset(sharing[name]) - {thread[0]}) for thread, name in semaphores.items()}
    for thread, call in calls.items():
        owner = find_lock_owner(thread[0]) if call is not None and call.name in LOCKING else None
        # A lock outlives its owner if the owner's children inherited the descriptor.
        if owner is not None and read_stat(owner) is not None:
            ends[thread] = Ends(frozenset({owner}))
    return {thread: found for thread, found in ends.items() if found != Ends()}


def find_connected(connections: Collection[Connection]) -> dict[Connection, frozenset[int]]:
    """Return, for connections that processes elsewhere are blocked on, the processes here that have the other end.

    ``connections``: those of other nodes or network namespaces. All readable network namespaces are searched. A
    connection that is not accepted yet belongs to the process that listens. If a service's address was translated on
    the way to its server (Kubernetes), the server's end has another address, and only the client's tells the
    connection; if that was translated as well, nothing is found. A process that has a store is left out, because it
    sets no keys.
    """
    own_ends = Counter(own for own, _ in connections)
    by_client = {own: (own, other) for own, other in connections if own_ends[own] == 1}
    direct: dict[Connection, list[_End]] = {}
    translated: dict[Connection, list[_End]] = {}
    for table in _read_tables() if connections else ():
        for entry in table:
            client, server = f"{entry.remote_address}:{entry.remote_port}", f"{entry.local_address}:{entry.local_port}"
            there = (client, server) if (client, server) in connections else by_client.get(client)
            if there is None or not entry.established:
                continue
            listening = [e.inode for e in table if e.listening and e.local_port == entry.local_port]
            if there[1] == server or listening:
                found = direct if there[1] == server else translated
                inodes = [entry.inode] if entry.inode else listening
                found.setdefault(there, []).extend(_End(f"socket:[{inode}]") for inode in inodes)
    ends = translated | direct
    holders = _find_holders({end for found in ends.values() for end in found}) if ends else {}
    return {
        there: frozenset(pid for end in found for pid, number in holders[end].items() if not serves_store(pid, number))
        for there, found in ends.items()
    }


def _read_tables() -> list[tuple[TcpSocket, ...]]:
    """Return the TCP sockets of each network namespace of this node."""
    networks = {read_link(f"/proc/{pid}/ns/net"): pid for pid in _all_processes()}
    return [read_tcp_sockets(pid) for network, pid in networks.items() if network is not None]


def _all_processes() -> list[int]:
    """Return the pids of this node; none if there are too many to search."""
    pids = list_processes()
    return pids if len(pids) <= _MOST_PROCESSES else []


class _Search:
    """Finds other ends, reading each table of the kernel only once."""

    def __init__(self) -> None:
        self._tables: dict[str, tuple[TcpSocket, ...]] = {}
        self._peers: Mapping[int, int] | None = None
        self._bound: Collection[int] | None = None
        self._network = read_link("/proc/self/ns/net")

    def wanted_of(self, thread: Thread, call: SystemCall | None) -> list[_Wanted]:
        """Return the other ends of what a thread is blocked on."""
        pid, _ = thread
        found = [self._behind(pid, number) for number in descriptors_read(pid, call) + descriptors_written(call)]
        if found and _is_woken(pid, found):
            found = [self._behind(pid, number) for number in _read_for_others(pid)]
        return [one for _, ends in found for one in ends]

    def _behind(self, pid: int, descriptor: int) -> tuple[str, list[_Wanted]]:
        """Return the link of a descriptor, and its other ends."""
        link = read_link(f"/proc/{pid}/fd/{descriptor}") or ""
        kind, _, inode = link.rstrip("]").partition(":[")
        if kind == "pipe":
            return link, [_Wanted(_End(link, writes=access_mode(pid, descriptor) is False))]
        if kind == "socket" and inode.isdigit():
            return link, self._tcp(pid, int(inode)) or self._unix(pid, int(inode))
        return link, []

    def _tcp(self, pid: int, inode: int) -> list[_Wanted]:
        """Return the other end of a TCP connection; if not accepted yet, the listening socket."""
        network = read_link(f"/proc/{pid}/ns/net") or ""
        if network not in self._tables:
            self._tables[network] = read_tcp_sockets(pid)
        table = self._tables[network]
        own = next((entry for entry in table if entry.inode == inode and entry.established), None)
        if own is None:
            return []
        address = f"{own.remote_address}:{own.remote_port}"
        listening = [e for e in table if e.listening and e.local_port == own.remote_port]
        there = (own.remote_address, own.remote_port)
        clients = tuple(e.inode for e in table if e.established and (e.remote_address, e.remote_port) == there)
        swapped = (own.remote_address, own.remote_port, own.local_address, own.local_port)
        for entry in table:
            if (entry.local_address, entry.local_port, entry.remote_address, entry.remote_port) != swapped:
                continue
            if entry.inode:
                return [
                    _Wanted(_End(f"socket:[{entry.inode}]"), bool(listening), address, clients if listening else ())
                ]
            return [_Wanted(_End(f"socket:[{e.inode}]"), accepted=True, address=address) for e in listening[:1]]
        return [_Wanted(_End(""), address=address, own_end=_own_end(own, table))]

    def _unix(self, pid: int, inode: int) -> list[_Wanted]:
        if self._network is None or read_link(f"/proc/{pid}/ns/net") != self._network:
            return []
        if self._peers is None:
            self._peers, self._bound = read_unix_peers(), read_bound_sockets()
        other = self._peers.get(inode)
        return [_Wanted(_End(f"socket:[{other}]"), accepted=other in (self._bound or ()))] if other is not None else []


def _own_end(own: TcpSocket, table: Iterable[TcpSocket]) -> str:
    """Return this side's address; empty if it does not identify the connection on other nodes."""
    if ipaddress.ip_address(own.local_address).is_loopback:
        return ""  # each machine has its own loopback
    here = (own.local_address, own.local_port)
    links = sum(e.established and (e.local_address, e.local_port) == here for e in table)
    serves = any(e.listening and e.local_port == own.local_port for e in table)
    return f"{own.local_address}:{own.local_port}" if links == 1 or serves else ""


def _is_woken(pid: int, found: Iterable[tuple[str, list[_Wanted]]]) -> bool:
    """True if the thread only waits to be woken by another thread of its process.

    That is so if all it waits for are eventfds, or UNIX sockets with both ends in the process.
    """
    ends = {one.end.link for link, wanted in found for one in wanted if link.startswith("socket:") and not one.address}
    if any(link != "anon_inode:[eventfd]" and not ({w.end.link for w in wanted} & ends) for link, wanted in found):
        return False
    return not ends or ends <= {read_link(f"/proc/{pid}/fd/{name}") for name in list_folder(f"/proc/{pid}/fd")}


def _read_for_others(pid: int) -> tuple[int, ...]:
    """Return the descriptors that a library's reader threads are blocked on; such threads wake others."""
    read: tuple[int, ...] = ()
    for other in list_folder(f"/proc/{pid}/task"):
        if (read_small(f"/proc/{pid}/task/{other}/comm", 32) or b"").startswith(_READERS):
            read += descriptors_read(pid, read_syscall(pid, int(other)))
    return read


def _join(pid: int, wanted: Iterable[_Wanted], holders: Mapping[_End, Mapping[int, int]]) -> Ends:
    """Return what was found for one thread as one value."""
    having: set[int] = set()
    accepted: set[int] = set()
    store, elsewhere, own_end = None, "", ""
    for one in wanted:
        found = holders.get(one.end, {})
        host = next((other for other, number in found.items() if one.clients and serves_store(other, number)), None)
        if host is not None:
            links = [holders.get(_End(f"socket:[{inode}]"), {}) for inode in one.clients]
            clients = frozenset(other for link in links for other in link) - {pid}
            store = Store(one.address, host, clients, sum(not link for link in links))
            continue
        if not one.end.link:
            elsewhere, own_end = (elsewhere, own_end) if elsewhere else (one.address, one.own_end)
        having |= found.keys() - {pid}
        accepted |= found.keys() - {pid} if one.accepted else set()
    if having:
        elsewhere = own_end = ""
    return Ends(frozenset(having), frozenset(accepted), store, elsewhere, own_end)


def _find_holders(ends: Collection[_End]) -> dict[_End, dict[int, int]]:
    """Return, for each end, the processes that hold it and the number of their descriptor."""
    found: dict[_End, dict[int, int]] = {end: {} for end in ends}
    for pid in _all_processes():
        for descriptor, link in read_descriptors(pid):
            if not link.startswith(("pipe:[", "socket:[")):
                continue
            read, written = _End(link, writes=False), _End(link, writes=True)
            if link.startswith("socket:["):
                if read in found:
                    found[read][pid] = descriptor
            elif read in found or written in found:
                end = written if access_mode(pid, descriptor) is True else read
                if end in found:
                    found[end][pid] = descriptor
    return found
