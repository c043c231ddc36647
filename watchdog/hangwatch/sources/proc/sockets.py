"""TCP sockets of a process, from ``/proc/PID/net/tcp`` and its descriptors. May import the standard library only.

Needed where nothing else tells which processes talk to each other: processes of one ``mp.spawn`` meet at one store.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple

from hangwatch.sources.proc.files import list_folder, read_link, read_whole

_LISTEN = "0A"
_ESTABLISHED = "01"
_TABLE_LIMIT_BYTES = 8 << 20
_MOST_DESCRIPTORS = 4096


class TcpSocket(NamedTuple):
    """One TCP socket: its inode, its two ends, and whether it listens."""

    inode: int
    local_address: str
    local_port: int
    remote_address: str
    remote_port: int
    listening: bool
    established: bool


def parse_tcp_table(data: bytes) -> tuple[TcpSocket, ...]:
    """Parse ``/proc/net/tcp`` or ``tcp6`` (proc_pid_net(5)); lines of another form are left out."""
    found = []
    for line in data.decode(errors="replace").splitlines()[1:]:
        fields = line.split()
        try:
            local, remote, state, inode = fields[1], fields[2], fields[3], int(fields[9])
            host, port = remote.split(":")
            own_host, own_port = local.split(":")
            found.append(
                TcpSocket(
                    inode=inode,
                    local_address=_address(own_host),
                    local_port=int(own_port, 16),
                    remote_address=_address(host),
                    remote_port=int(port, 16),
                    listening=state == _LISTEN,
                    established=state == _ESTABLISHED,
                )
            )
        except (ValueError, IndexError):
            continue
    return tuple(found)


def read_socket_inodes(pid: int) -> frozenset[int]:
    """Return the inodes of all sockets the process holds; empty if its descriptors are unreadable."""
    return frozenset(
        int(target[8:-1])
        for _, target in read_descriptors(pid)
        if target.startswith("socket:[") and target[8:-1].isdigit()
    )


def listening_sockets(pid: int) -> list[TcpSocket]:
    """Return the process's own listening sockets."""
    held = read_socket_inodes(pid)
    return [one for one in read_tcp_sockets(pid) if one.listening and one.inode in held]


def read_descriptors(pid: int) -> Iterator[tuple[int, str]]:
    """Yield a process's descriptor numbers and their targets; nothing if unreadable."""
    folder = f"/proc/{pid}/fd"
    for name in list_folder(folder)[:_MOST_DESCRIPTORS]:
        target = read_link(f"{folder}/{name}")
        if target is not None and name.isdigit():
            yield int(name), target


def read_tcp_sockets(pid: int) -> tuple[TcpSocket, ...]:
    """Return all TCP sockets in the network namespace of the process (compare inodes to find its own)."""
    found: tuple[TcpSocket, ...] = ()
    for table in ("tcp", "tcp6"):
        found += parse_tcp_table(read_whole(f"/proc/{pid}/net/{table}", _TABLE_LIMIT_BYTES) or b"")
    return found


def _address(field: str) -> str:
    """Return an address of the table (words in host byte order) as people write it."""
    words = [int(field[start : start + 8], 16) for start in range(0, len(field), 8)]
    packed = b"".join(struct.pack("=I", word) for word in words)
    if len(packed) == 16 and packed[:12] == b"\x00" * 10 + b"\xff\xff":
        packed = packed[12:]
    return socket.inet_ntop(socket.AF_INET if len(packed) == 4 else socket.AF_INET6, packed)
