"""The kernel's list of the sockets of our network namespace, asked over netlink (sock_diag(7), Linux 3.3 on).

May import the standard library only.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

#: ``linux/netlink.h``, ``linux/sock_diag.h``.
_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY = 4, 20
_DUMP_REQUEST = 0x301
#: A bit for each state that is asked for; ``TCP_ESTABLISHED`` is 1.
ESTABLISHED = 1 << 1
_DONE, _FAILED = 3, 2
_HEADER = struct.Struct("=IHHII")
_REPLY_BYTES, _REPLY_TIMEOUT_S = 1 << 16, 0.2


def dump_sockets(request: bytes) -> Iterator[bytes]:
    """Yield the messages that answer a request for all sockets of a kind; nothing if the kernel does not tell."""
    head = _HEADER.pack(_HEADER.size + len(request), _SOCK_DIAG_BY_FAMILY, _DUMP_REQUEST, 1, 0)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG) as netlink:
            netlink.settimeout(_REPLY_TIMEOUT_S)
            netlink.send(head + request)
            while True:
                for kind, body in _messages(netlink.recv(_REPLY_BYTES)):
                    if kind in {_DONE, _FAILED}:
                        return
                    yield body
    except (OSError, AttributeError):
        return


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + _HEADER.size <= len(data):
        length, kind = _HEADER.unpack_from(data, at)[:2]
        if length < _HEADER.size:
            return
        yield kind, data[at + _HEADER.size : at + length]
        at += (length + 3) & ~3


def read_attribute(body: bytes, at: int, kind: int) -> bytes:
    """Return the value of an attribute (``struct nlattr``), which come from ``at`` on; empty if it is not there or cut."""
    while at + 4 <= len(body):
        length, found = struct.unpack_from("=HH", body, at)
        if length < 4:
            break
        if found == kind and at + length <= len(body):
            return body[at + 4 : at + length]
        at += (length + 3) & ~3
    return b""
