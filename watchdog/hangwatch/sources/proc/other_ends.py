"""Which process has the other end of a socket or pipe that another one reads from, without touching either.

May import ``sources.proc`` and the standard library. A TCP connection within one network namespace is in its table twice,
with its ends swapped; of UNIX sockets the kernel's ``sock_diag`` tells the peer (sock_diag(7), Linux 3.3 on); a pipe is held
for writing. A process has the end if it alone holds it: forked processes inherit descriptors, and any of them may answer.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from hangwatch.sources.proc.blocking import access_mode, descriptors_read
from hangwatch.sources.proc.files import list_folder, read_link, read_small
from hangwatch.sources.proc.sockets import read_descriptors, read_tcp_sockets
from hangwatch.sources.proc.syscalls import SystemCall, parse_syscall

#: ``linux/netlink.h``, ``linux/sock_diag.h``, ``linux/unix_diag.h``.
_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY = 4, 20
_DUMP_REQUEST = 0x301
_DONE, _FAILED = 3, 2
_SHOW_PEER, _PEER = 0x4, 2
_ESTABLISHED_STATE = 1 << 1
_HEADER, _MESSAGE_BYTES = struct.Struct("=IHHII"), 16
_REPLY_BYTES, _REPLY_TIMEOUT_S = 1 << 16, 0.2
#: A node with more processes than this is not searched: whose end it is remains unknown.
_MOST_PROCESSES = 1 << 14


class _End(NamedTuple):
    """The other end of a connection: what a descriptor of it points at, and whether it is one open for writing (of a pipe)."""

    link: str
    writes: bool


def find_other_ends(calls: Mapping[int, SystemCall | None]) -> dict[int, int]:
    """By pid: the one process that has the other ends of what a process reads from, by the system call it is in.

    Without those that read from nothing, from a file, from another machine, or from what no process or several have.
    """
    wanted = {pid: ends for pid, call in calls.items() if (ends := _ends_read(pid, call))}
    holders = _find_holders({end for ends in wanted.values() for end in ends}) if wanted else {}
    found = {}
    for pid, ends in wanted.items():
        having = {other for end in ends for other in holders.get(end, ())} - {pid}
        if len(having) == 1:
            found[pid] = next(iter(having))
    return found


def _ends_read(pid: int, call: SystemCall | None) -> set[_End]:
    """The other ends of what a process reads from."""
    ends: set[_End] = set()
    peers: Mapping[int, int] | None = None
    for descriptor in _descriptors(pid, call):
        link = read_link(f"/proc/{pid}/fd/{descriptor}") or ""
        kind, _, inode = link.rstrip("]").partition(":[")
        if kind == "pipe":
            ends.add(_End(link, writes=True))
        elif kind == "socket" and inode.isdigit():
            other = _tcp_peer(pid, int(inode))
            if other is None and _shares_our_network(pid):
                peers = read_unix_peers() if peers is None else peers
                other = peers.get(int(inode))
            ends |= {_End(f"socket:[{other}]", writes=False)} if other is not None else set()
    return ends


def _descriptors(pid: int, call: SystemCall | None) -> tuple[int, ...]:
    """What a process reads from. ZeroMQ reads in a thread of its own (``ZMQbg/IO/0``, libzmq 4.2 on), which wakes the others."""
    read = descriptors_read(pid, call)
    if [read_link(f"/proc/{pid}/fd/{number}") for number in read] != ["anon_inode:[eventfd]"]:
        return read
    found: tuple[int, ...] = ()
    for thread in list_folder(f"/proc/{pid}/task"):
        if (read_small(f"/proc/{pid}/task/{thread}/comm", 32) or b"").startswith(b"ZMQbg/IO"):
            found += descriptors_read(pid, parse_syscall(read_small(f"/proc/{pid}/task/{thread}/syscall", 512) or b""))
    return found


def _tcp_peer(pid: int, inode: int) -> int | None:
    """The inode of the other end of a TCP connection, where that is in the same network namespace."""
    table = [entry for entry in read_tcp_sockets(pid) if entry.established]
    own = next((entry for entry in table if entry.inode == inode), None)
    if own is None:
        return None
    swapped = (own.remote_address, own.remote_port, own.local_address, own.local_port)
    ends = ((e.inode, (e.local_address, e.local_port, e.remote_address, e.remote_port)) for e in table)
    return next((other for other, end in ends if end == swapped and other), None)


def _shares_our_network(pid: int) -> bool:
    ours = read_link("/proc/self/ns/net")
    return ours is not None and read_link(f"/proc/{pid}/ns/net") == ours


def _find_holders(ends: Collection[_End]) -> dict[_End, set[int]]:
    """The processes that hold these ends."""
    pids = [int(name) for name in list_folder("/proc") if name.isdigit()]
    found: dict[_End, set[int]] = {end: set() for end in ends}
    for pid in pids if len(pids) <= _MOST_PROCESSES else ():
        for descriptor, link in read_descriptors(pid):
            read, written = _End(link, writes=False), _End(link, writes=True)
            if read in found or (written in found and access_mode(pid, descriptor) is True):
                found[read if read in found else written].add(pid)
    return found


def read_unix_peers() -> dict[int, int]:
    """The inode of the other end of each connected UNIX socket of our network namespace; empty where the kernel does not tell."""
    request = struct.pack("=BBHIIIII", socket.AF_UNIX, 0, 0, _ESTABLISHED_STATE, 0, _SHOW_PEER, 0xFFFFFFFF, 0xFFFFFFFF)
    head = _HEADER.pack(_HEADER.size + len(request), _SOCK_DIAG_BY_FAMILY, _DUMP_REQUEST, 1, 0)
    found: dict[int, int] = {}
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG) as netlink:
            netlink.settimeout(_REPLY_TIMEOUT_S)
            netlink.send(head + request)
            while True:
                for kind, body in _messages(netlink.recv(_REPLY_BYTES)):
                    if kind in {_DONE, _FAILED}:
                        return found
                    found.update(parse_unix_diag(body))
    except (OSError, AttributeError):
        return found


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + _HEADER.size <= len(data):
        length, kind = _HEADER.unpack_from(data, at)[:2]
        if length < _HEADER.size:
            return
        yield kind, data[at + _HEADER.size : at + length]
        at += (length + 3) & ~3


def parse_unix_diag(body: bytes) -> dict[int, int]:
    """The inode of a socket and its peer's, of one ``struct unix_diag_msg`` with its attributes; empty where it has none."""
    if len(body) < _MESSAGE_BYTES:
        return {}
    inode = struct.unpack_from("=I", body, 4)[0]
    at = _MESSAGE_BYTES
    while at + 4 <= len(body):
        length, kind = struct.unpack_from("=HH", body, at)
        if length < 4:
            return {}
        if kind == _PEER and length >= 8 and at + 8 <= len(body):
            return {inode: struct.unpack_from("=I", body, at + 4)[0]}
        at += (length + 3) & ~3
    return {}
