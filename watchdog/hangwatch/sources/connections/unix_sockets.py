"""UNIX sockets of our network namespace, from the kernel's ``sock_diag`` and ``/proc/net/unix``.

May import ``sources.proc`` and the standard library.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

from hangwatch.sources.proc.files import read_whole

#: ``linux/netlink.h``, ``linux/sock_diag.h``, ``linux/unix_diag.h``.
_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY = 4, 20
_DUMP_REQUEST = 0x301
_DONE, _FAILED = 3, 2
_SHOW_PEER, _PEER = 0x4, 2
_ESTABLISHED_STATE = 1 << 1
_HEADER, _MESSAGE_BYTES = struct.Struct("=IHHII"), 16
_REPLY_BYTES, _REPLY_TIMEOUT_S = 1 << 16, 0.2
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
    """Return a socket's inode and its peer's, from one ``struct unix_diag_msg`` with attributes; empty without a peer."""
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
