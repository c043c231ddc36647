"""Notifies systemd: ready, reloading, stopping, and a ping after each tick. Standard library only.

The protocol is sd_notify(3): one datagram to the unix socket in ``$NOTIFY_SOCKET`` (a leading ``@`` is an abstract
one), lines ``NAME=VALUE``. Without that variable nothing is sent. The socket does not block, and what cannot be sent
is dropped, so a manager that does not listen never delays us.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass

_VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


@dataclass(frozen=True)
class ServiceManager:
    """The service manager.

    ``watchdog_s``: how long it waits for a ping before it restarts us; None without a watchdog.
    """

    address: str = ""
    watchdog_s: float | None = None

    def ready(self, status: str) -> None:
        """Report that we run; ``status`` is one line for ``systemctl status``."""
        self._send("READY=1", f"STATUS={status}")

    def reloading(self) -> None:
        """Report that the configuration is being read again; ``ready`` ends that."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def stopping(self) -> None:
        """Report that the agent stops."""
        self._send("STOPPING=1")

    def alive(self) -> None:
        """Report that a tick has completed."""
        if self.watchdog_s is not None:
            self._send("WATCHDOG=1")

    def _send(self, *lines: str) -> None:
        if not self.address:
            return
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as end,
        ):
            end.setblocking(False)
            end.sendto("\n".join(lines).encode(), self.address)


def parse_service_manager(environ: Mapping[str, str], pid: int) -> ServiceManager:
    """Return the manager that the environment of process ``pid`` names.

    The watchdog may be meant for another process.
    """
    address = environ.get("NOTIFY_SOCKET", "")
    if address.startswith("@"):
        address = "\0" + address[1:]
    elif not address.startswith("/"):
        address = ""
    wanted, period_us = environ.get("WATCHDOG_PID", ""), environ.get("WATCHDOG_USEC", "")
    ours = not wanted or wanted == str(pid)
    watchdog_s = (
        int(period_us) / 1e6 if ours and period_us.isascii() and period_us.isdigit() and int(period_us) else None
    )
    return ServiceManager(address, watchdog_s if address else None)


def take_service_manager(environ: MutableMapping[str, str] = os.environ) -> ServiceManager:
    """Return the manager of this process and remove its variables.

    So no process that we start can speak for us.
    """
    found = parse_service_manager(environ, os.getpid())
    for name in _VARIABLES:
        environ.pop(name, None)
    return found
