"""UNIX sockets of our network namespace, from the kernel's ``sock_diag`` and ``/proc/net/unix``.

May import ``sources.proc``, ``sock_diag`` and the standard library.
"""

from __future__ import annotations

import socket
import struct

from hangwatch.sources.connections.sock_diag import ESTABLISHED, dump_sockets, read_attribute
from hangwatch.sources.proc.files import read_whole

#: ``linux/unix_diag.h``.
_SHOW_PEER, _PEER = 0x4, 2
_MESSAGE_BYTES = 16
_TABLE_LIMIT_BYTES = 8 << 20


def read_bound_sockets() -> frozenset[int]:
    """Return the inodes of UNIX sockets that have a name: those that listen, and those they accepted.

    Format: ``/proc/net/unix``, proc_pid_net(5).
    """
    lines = (read_whole("/proc/net/unix", _TABLE_LIMIT_BYTES) or b"").splitlines()[1:]
    fields = (line.split(maxsplit=7) for line in lines)
    return frozenset(int(one[6]) for one in fields if len(one) > 7 and one[6].isdigit())


def read_unix_peers() -> dict[int, int]:
    """Return, for each connected UNIX socket of our network namespace, the inode of its other end.

    Empty if the kernel does not tell.
    """
    request = struct.pack("=BBHIIIII", socket.AF_UNIX, 0, 0, ESTABLISHED, 0, _SHOW_PEER, 0xFFFFFFFF, 0xFFFFFFFF)
    found: dict[int, int] = {}
    for body in dump_sockets(request):
        found.update(parse_unix_diag(body))
    return found


def parse_unix_diag(body: bytes) -> dict[int, int]:
    """Return a socket's inode and its peer's, from one ``struct unix_diag_msg`` with attributes; empty without a peer."""
    if len(body) < _MESSAGE_BYTES:
        return {}
    peer = read_attribute(body, _MESSAGE_BYTES, _PEER)
    return {struct.unpack_from("=I", body, 4)[0]: struct.unpack_from("=I", peer)[0]} if len(peer) >= 4 else {}
