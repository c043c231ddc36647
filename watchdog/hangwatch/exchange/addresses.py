"""Which addresses of a host are this node's own, and where to listen for other nodes. May import the standard library only."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import socket

_Address = tuple[socket.AddressFamily, tuple[str, int]]


def is_own_address(host: str) -> bool:
    """True if a host name or address is this node's, which is tested by binding a socket to it."""
    return any(_can_bind(*address) for address in _resolve(host, 0))


def own_address(endpoint: tuple[str, int] | None) -> str:
    """Return this node's source address for connections to the exchange; empty if there is none. Sends nothing."""
    if endpoint is None:
        return ""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(*endpoint, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as trial:
            trial.connect(address)
            return str(trial.getsockname()[0])
    except OSError:
        return ""


def listen_for(host: str, port: int) -> socket.socket:
    """Return a listening socket that accepts connections made to ``host``, a name of this node.

    It listens on that address alone if possible. If the name is loopback only here (Debian's ``127.0.1.1``) or has
    several addresses, other nodes may arrive at any address: then it listens on all interfaces. Raises ``OSError`` if
    the port is taken.
    """
    found = _resolve(host, port)
    named = host != "localhost" and not _is_literal(host)
    everywhere = len(found) != 1 or (named and _is_loopback(found[0][1][0]))
    listening = _bind_everywhere(port) if everywhere else _bind(*found[0])
    try:
        listening.listen(socket.SOMAXCONN)  # another process may have bound it at the same time
    except OSError:
        listening.close()
        raise
    return listening


def _bind_everywhere(port: int) -> socket.socket:
    """Return a socket on all interfaces, for IPv6 too if this node has it."""
    if socket.has_dualstack_ipv6():
        try:
            return _bind(socket.AF_INET6, ("::", port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise
    return _bind(socket.AF_INET, ("0.0.0.0", port))  # noqa: S104  # see listen_for


def _bind(family: socket.AddressFamily, address: tuple[str, int]) -> socket.socket:
    with contextlib.ExitStack() as stack:
        bound = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        bound.bind(address)
        stack.pop_all()
        return bound


def _resolve(host: str, port: int) -> list[_Address]:
    """Return the addresses of a host without duplicates; none if its name is unknown."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return list(dict.fromkeys((family, (str(address[0]), int(address[1]))) for family, _, _, _, address in found))


def _can_bind(family: socket.AddressFamily, address: tuple[str, int]) -> bool:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as trial:
            trial.bind(address)
    except OSError:
        return False
    return True


def _is_literal(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback
