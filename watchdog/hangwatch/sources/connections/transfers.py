"""For how long data of some processes waits for the network, by TCP's own account, without touching them.

May import hangwatch.model, ``sources.proc``, ``sock_diag`` and the standard library. Format: ``struct inet_diag_msg`` with a
``struct tcp_info`` (``linux/inet_diag.h``, ``linux/tcp.h``, 6.1). The time in ``tcpi_busy_time`` (Linux 4.9 on) is that in which
sent data is not acknowledged yet; in ``tcpi_rwnd_limited`` the other end does not read.
"""

from __future__ import annotations

import socket
import struct
import sys
import time
from collections.abc import Collection
from ipaddress import IPv6Address, ip_address
from typing import NamedTuple

from hangwatch.model.slowness import Traffic
from hangwatch.sources.connections.sock_diag import ESTABLISHED, dump_sockets, read_attribute
from hangwatch.sources.proc.sockets import read_socket_inodes

#: ``INET_DIAG_INFO``, and the bit that asks for it.
_INFO, _ASK_INFO = 2, 1 << 1
_MESSAGE_BYTES = 72
#: ``tcpi_bytes_acked``; ``tcpi_delivery_rate``, then ``tcpi_busy_time`` and ``tcpi_rwnd_limited`` in microseconds;
#: ``tcpi_bytes_retrans``, which Linux has from 4.19 on.
_ACKED_AT, _RATE_AT, _INFO_BYTES, _REPEATED_AT = 120, 160, 184, 208
#: The busiest are enough to tell, and a node may have thousands.
_MOST = 16


class Connection(NamedTuple):
    """One connection: its socket and both addresses.

    ``sent``: bytes that have arrived. ``rate``: bytes a second, while there was enough to send. ``busy_s``: seconds in which data
    waited for the network. ``repeated``: bytes that were sent again.
    """

    inode: int
    local: str
    remote: str
    sent: int
    rate: int
    busy_s: float
    repeated: int


class LinkMeter:
    """Compares the connections of processes with those of the look before."""

    def __init__(self) -> None:
        self._before: dict[int, Connection] = {}
        self._before_s = 0.0

    def look(self, pids: Collection[int]) -> tuple[Traffic, ...]:
        """Return the busiest links to other hosts since the last look; none at the first one."""
        held = frozenset[int]().union(*map(read_socket_inodes, pids))
        now_s = time.monotonic()
        now = {one.inode: one for one in read_connections() if one.inode in held}
        before, took_s = self._before, now_s - self._before_s
        self._before, self._before_s = now, now_s
        own = {one.local for one in now.values()}
        found: dict[tuple[str, str], Traffic] = {}
        for inode, one in now.items():
            if inode in before and one.remote not in own and took_s > 0:
                busy = round((one.busy_s - before[inode].busy_s) / took_s, 3)
                sent = round((one.sent - before[inode].sent) / took_s)
                again = round((one.repeated - before[inode].repeated) / took_s)
                link = one.local, one.remote
                known = found.get(link, Traffic(*link, -1.0, 0, 0, 0))
                rate = one.rate if busy > known.busy else known.rate
                found[link] = Traffic(*link, max(busy, known.busy), sent + known.sent, rate, again + known.repeated)
        return tuple(sorted(found.values(), key=lambda link: -link.busy)[:_MOST])


def read_connections() -> list[Connection]:
    """Return all established TCP connections of our network namespace; none if the kernel does not tell."""
    found = []
    for family in (socket.AF_INET, socket.AF_INET6):
        request = struct.pack("=BBBBI48x", family, socket.IPPROTO_TCP, _ASK_INFO, 0, ESTABLISHED)
        found += [one for body in dump_sockets(request) if (one := parse_tcp_diag(body)) is not None]
    return found


def parse_tcp_diag(body: bytes) -> Connection | None:
    """Return a connection, from one ``struct inet_diag_msg`` with attributes; None if it lacks the times."""
    if len(body) < _MESSAGE_BYTES:
        return None
    info = read_attribute(body, _MESSAGE_BYTES, _INFO)
    if len(info) < _INFO_BYTES:
        return None
    size = 4 if body[0] == socket.AF_INET else 16
    local, remote = (_address(body[at : at + size]) for at in (8, 24))
    rate, busy_us, unread_us = struct.unpack_from("=QQQ", info, _RATE_AT)
    (sent,) = struct.unpack_from("=Q", info, _ACKED_AT)
    (inode,) = struct.unpack_from("=I", body, 68)
    repeated = int.from_bytes(info[_REPEATED_AT : _REPEATED_AT + 8], sys.byteorder)
    return Connection(inode, local, remote, sent, rate, (busy_us - unread_us) / 1e6, repeated)


def _address(packed: bytes) -> str:
    found = ip_address(packed)
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return str(mapped or found)
